"""The JVM door: the small jar for spark-sql, Thrift, Connect and dbt; its sources, and how it is built."""

from __future__ import annotations

from pathlib import Path

JAR_NAME = "iceberg-compact-sql.jar"


def jar_path() -> Path:
    """The jar that came with this package, for `spark-sql --jars`.

    >>> jar_path().name
    'iceberg-compact-sql.jar'
    """
    return Path(__file__).resolve().parent / JAR_NAME
