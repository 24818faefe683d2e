"""The JVM door: the jar for spark-sql, Thrift, Connect and dbt, its Java sources and its build."""

from __future__ import annotations

from pathlib import Path

JAR_NAME = "iceberg-compact-sql.jar"


def jar_path() -> Path:
    """The path of the jar in this package, for `spark-sql --jars`.

    >>> jar_path().name
    'iceberg-compact-sql.jar'
    """
    return Path(__file__).resolve().parent / JAR_NAME
