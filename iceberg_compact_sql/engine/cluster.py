"""The cluster of a Spark session, and the largest plan that the driver rewrites itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.units import parse_size

# For less input a Spark job costs more than it saves: it takes at least 0.2 s, and 1 s for a new Python worker.
DEFAULT_DRIVER_BYTES = 64 * 1024**2
# More where the tasks would run on the driver's own machine.
LOCAL_DRIVER_BYTES = 8 * DEFAULT_DRIVER_BYTES


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the tasks of a session run. In a Connect session some values are estimates."""

    is_connect: bool
    is_local: bool
    slots: int
    task_cpus: int
    speculates: bool

    @classmethod
    def of(cls, spark: Any) -> Cluster:
        connect = is_connect(spark)
        master = _setting(spark, "spark.master", "")
        task_cpus = max(1, int(_setting(spark, "spark.task.cpus", "1")))
        if connect:
            cores = int(_setting(spark, "spark.default.parallelism", "0")) or _local_cores(master) or 8
        else:
            cores = spark.sparkContext.defaultParallelism
        return cls(
            is_connect=connect,
            is_local=master.startswith("local") and "cluster" not in master,
            slots=max(1, cores // task_cpus),
            task_cpus=task_cpus,
            speculates=_setting(spark, "spark.speculation", "false").lower() == "true",
        )

    @property
    def driver_bytes(self) -> int:
        """Input bytes that the driver rewrites itself by default."""
        return LOCAL_DRIVER_BYTES if self.is_local and not self.is_connect else DEFAULT_DRIVER_BYTES


def is_connect(spark: Any) -> bool:
    """Whether a session talks to a Spark Connect server."""
    return ".connect." in f"{type(spark).__module__}."


def engine_summary(spark: Any) -> dict[str, str]:
    """Engine and application, under the names by which Iceberg's Spark catalogs write them into snapshot summaries."""
    if is_connect(spark):
        app_id, app_name = _setting(spark, "spark.app.id", ""), _setting(spark, "spark.app.name", "")
    else:
        app_id, app_name = spark.sparkContext.applicationId, spark.sparkContext.appName
    facts = {"engine-name": "spark", "engine-version": spark.version, "app-id": app_id, "app-name": app_name}
    return {key: value for key, value in facts.items() if value}


def driver_bytes_setting(name: str, text: str | None) -> int | None:
    """Read the setting `driver_bytes`; None where it is not set.

    >>> driver_bytes_setting("driver_bytes", "64MB"), driver_bytes_setting("driver_bytes", "0")
    (67108864, 0)
    """
    hint = "Give the largest input that the driver rewrites itself, such as '64MB'; 0 always uses Spark tasks."
    return _limit(name, text, parse_size, hint)


def shuffle_bytes_setting(name: str, text: str | None) -> int | None:
    """Read the setting `shuffle_bytes`; None where it is not set.

    >>> shuffle_bytes_setting("shuffle_bytes", "1g"), shuffle_bytes_setting("shuffle_bytes", "0")
    (1073741824, 0)
    """
    hint = "Give the largest group that one Spark task sorts, such as '128MB'; 0 always uses Spark's shuffle."
    return _limit(name, text, parse_size, hint)


def driver_files_setting(name: str, text: str | None) -> int | None:
    """Read the setting `driver_files`; None where it is not set.

    >>> driver_files_setting("driver_files", "3000000"), driver_files_setting("driver_files", "0")
    (3000000, 0)
    """
    hint = "Give the most files of a table that the driver compares itself, such as 3000000; 0 always uses Spark tasks."
    return _limit(name, text, _parse_count, hint)


def _limit(name: str, text: str | None, parse: Callable[[str], int], hint: str) -> int | None:
    if text is None:
        return None
    try:
        limit = parse(text.strip())
        if limit < 0:
            raise ValueError("is below 0")
    except ValueError as error:
        raise InvalidArgumentError(f"setting {name} is {text!r}, which {error}", value=text, hint=hint) from None
    return limit


def _parse_count(text: str) -> int:
    # `int` alone also takes '1_000' and digits of other scripts.
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError("is not a whole number of at most 18 digits")
    return int(text)


def _setting(spark: Any, name: str, default: str) -> str:
    return str(spark.conf.get(name, default) or default)


def _local_cores(master: str) -> int:
    """Cores of `local[2]` and `local[2, 4]`; 0 if the master names no number."""
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0].strip()
    return int(inside) if inside.isdigit() else 0
