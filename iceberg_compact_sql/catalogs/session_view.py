"""What of a Spark session decides which table a name means: plain data, so that a task can carry it too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SETTING_PREFIX = "spark.iceberg_compact_sql."


@dataclass(frozen=True, slots=True)
class SessionView:
    """Catalog settings, current catalog and namespace, and time zone of one session at one moment.

    `conf` holds `spark.sql.catalog.*`, `spark.hadoop.*` and `spark.iceberg_compact_sql.*` entries; it may hold
    credentials and is therefore never shown.
    """

    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    current_catalog: str = "spark_catalog"
    current_namespace: tuple[str, ...] = ()
    time_zone: str = "UTC"
    # The embedded default of `register(spark, warehouse=...)`: catalog `local`, SQLite in its folder.
    embedded_warehouse: str | None = None

    def setting(self, name: str, default: str | None = None) -> str | None:
        """A setting of our own: `setting("takeover")` reads `spark.iceberg_compact_sql.takeover`."""
        return self.conf.get(SETTING_PREFIX + name, default)
