"""Iceberg's own Java library in a real Spark session, as a second reader and writer.

How to use it in a test (fixtures come from the top-level conftest):

    def test_something(lake):
        lake.sql("CREATE TABLE {t} (id BIGINT, kind STRING) USING iceberg", t=lake.full("db.events"))
        lake.sql(f"INSERT INTO {lake.name}.db.events VALUES (1, 'a')")
        table = lake.load("db.events")                     # pyiceberg's view of the same table
        lake.equality_delete("db.events", ["id"], [(1,)])   # written and committed by Java
        lake.position_delete("db.events", [(path, 0)])      # likewise
        assert lake.rows("db.events", order_by="id") == []  # read by Java

* `java_spark` is one session per pytest process (local[2], UTC, Iceberg's jar and extensions). Do not stop it.
* `lake` is a fresh catalog for each test: unique name, own SQLite file and warehouse under tmp_path, namespace `db`.
  Spark and pyiceberg see the same tables; Spark caches none of them, so a read is always of the current state.
* `lake.conf` is what a `SessionView` needs: the `spark.sql.catalog.<name>.*` settings as a dict.
* Tables without a JVM: `plain_lake` (tests/support/plain.py). S3: `s3_server` (tests/support/s3.py).
* Start pytest for such tests through the machine's semaphore if others work there: a session costs 8 s.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from tests.support import java_deletes
from tests.support.jars import Jar, fetch

ICEBERG_VERSION = "1.12.0"
RUNTIME = [
    Jar("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", ICEBERG_VERSION),
    Jar("org.xerial", "sqlite-jdbc", "3.50.3.0"),
]
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def session_conf(scratch: Path) -> dict[str, str]:
    """Settings of a small local session with Iceberg's jar that writes nothing outside `scratch`."""
    return {
        "spark.jars": ",".join(str(jar) for jar in fetch("runtime", RUNTIME)),
        "spark.sql.extensions": EXTENSIONS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.local.dir": str(scratch),
        # Tests are short: a serial collector and the quick compiler start in half the CPU time.
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }


def start_session(scratch: Path, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A local session with Iceberg's jar; fails when this process already has a session without it."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    active = SparkSession.getActiveSession()
    if active is not None and EXTENSIONS not in (active.conf.get("spark.sql.extensions", "") or ""):
        raise RuntimeError("a session without Iceberg's jar is already running in this process: start yours in another")
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for key, value in {**session_conf(scratch), **(conf or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@dataclass(frozen=True)
class Lake:
    """One catalog that Java (through Spark) and pyiceberg share; table names are `db.t`, without the catalog."""

    name: str
    spark: SparkSession
    catalog: SqlCatalog
    folder: Path
    conf: Mapping[str, str] = field(repr=False)

    def full(self, table: str) -> str:
        return f"{self.name}.{table}"

    def sql(self, text: str, **names: str) -> DataFrame:
        """Run a statement; `{name}` is replaced from `names`, and `{lake}` by the catalog's name."""
        for key, value in {"lake": self.name, **names}.items():
            text = text.replace("{" + key + "}", value)
        return self.spark.sql(text)

    def rows(self, table: str, order_by: str | None = None, branch: str | None = None) -> list[tuple[Any, ...]]:
        """All rows as Java reads them now, as tuples."""
        version = f" VERSION AS OF '{branch}'" if branch else ""
        order = f" ORDER BY {order_by}" if order_by else ""
        return [tuple(row) for row in self.sql(f"SELECT * FROM {self.full(table)}{version}{order}").collect()]

    def load(self, table: str) -> Table:
        return self.catalog.load_table(table)

    def java_table(self, table: str) -> Any:
        """`org.apache.iceberg.Table`, freshly loaded, through py4j."""
        spark: Any = self.spark
        return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, self.full(table))

    def files(self, table: str) -> list[dict[str, Any]]:
        """Live files, data and deletes, as Java's `files` metadata table shows them (content 0, 1, 2)."""
        columns = "content, file_path, file_format, spec_id, record_count, file_size_in_bytes, equality_ids"
        found = self.sql(f"SELECT {columns} FROM {self.full(table)}.files ORDER BY content, file_path").collect()
        return [row.asDict() for row in found]

    def data_paths(self, table: str) -> list[str]:
        """Paths of the live data files, as the manifests spell them."""
        return [row["file_path"] for row in self.files(table) if row["content"] == 0]

    def equality_delete(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        partition: str | None = None,
        spec_id: int | None = None,
        branch: str | None = None,
        file_format: str = "parquet",
    ) -> str:
        """Delete all rows equal to one of `rows` in `columns`, by a delete file that Java writes and commits.

        `partition` is a path such as `kind=a`; without it the delete is global, which needs an unpartitioned spec.
        """
        return java_deletes.commit_equality_delete(
            self, table, columns, rows, partition=partition, spec_id=spec_id, branch=branch, file_format=file_format
        )

    def position_delete(
        self,
        table: str,
        positions: Sequence[tuple[str, int]],
        *,
        branch: str | None = None,
        file_format: str = "parquet",
    ) -> str:
        """Delete rows by (data file path, position) in one v2 delete file that Java writes and commits.

        All data files must be of one partition. For deletion vectors of v3 use DELETE with merge-on-read.
        """
        return java_deletes.commit_position_delete(self, table, positions, branch=branch, file_format=file_format)


@pytest.fixture(scope="session")
def java_spark() -> Iterator[SparkSession]:
    """The one Spark session of this pytest process, with Iceberg's jar."""
    with tempfile.TemporaryDirectory(prefix="java-spark-", ignore_cleanup_errors=True) as scratch:
        spark = start_session(Path(scratch))
        yield spark
        spark.stop()


def open_lake(spark: SparkSession, folder: Path, name: str | None = None) -> Lake:
    """A new JDBC catalog under `folder`, configured in `spark` and opened by pyiceberg too."""
    name = name or f"lake_{secrets.token_hex(4)}"
    folder.mkdir(parents=True, exist_ok=True)
    database, warehouse = folder / "catalog.db", (folder / "warehouse").as_uri()
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{database}",
        ".jdbc.schema-version": "V1",
        ".warehouse": warehouse,
        ".cache-enabled": "false",
    }
    conf = {f"spark.sql.catalog.{name}{key}": value for key, value in settings.items()}
    for key, value in conf.items():
        spark.conf.set(key, value)
    catalog = SqlCatalog(name, uri=f"sqlite:///{database}", warehouse=warehouse)
    catalog.create_namespace("db")
    return Lake(name, spark, catalog, folder, conf)


@pytest.fixture
def lake(tmp_path: Path, java_spark: SparkSession) -> Iterator[Lake]:
    """A fresh catalog with namespace `db`, shared by Java and pyiceberg."""
    opened = open_lake(java_spark, tmp_path / "lake")
    yield opened
    opened.catalog.close()
    for key in opened.conf:
        java_spark.conf.unset(key)
