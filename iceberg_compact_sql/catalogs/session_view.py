"""The settings of a Spark session that decide which table a name means, as plain data that a task can carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SETTING_PREFIX = "spark.iceberg_compact_sql."


@dataclass(frozen=True, slots=True)
class SessionView:
    """Catalog settings, current catalog and namespace, time zone and case rule of one session at one moment.

    `conf` holds `spark.sql.catalog.*`, `spark.hadoop.*` and `spark.iceberg_compact_sql.*` entries; it may hold
    credentials, so it is never shown.
    """

    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    current_catalog: str = "spark_catalog"
    current_namespace: tuple[str, ...] = ()
    time_zone: str = "UTC"
    # The embedded default of `register(spark, warehouse=...)`: catalog `local`, SQLite in its folder.
    embedded_warehouse: str | None = None
    # `spark.sql.caseSensitive`: whether names of columns are told apart by case.
    case_sensitive: bool = False

    def setting(self, name: str, default: str | None = None) -> str | None:
        """Return a setting of this package: `setting("takeover")` reads `spark.iceberg_compact_sql.takeover`."""
        return self.conf.get(SETTING_PREFIX + name, default)
