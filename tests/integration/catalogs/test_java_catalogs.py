"""One name, one table: what Java's catalogs hold is what we open, and Java reads what we commit."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from iceberg_compact_sql.catalogs.open_table import close_catalogs, open_table
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import UnsupportedError
from tests.support.java import Lake
from tests.support.s3 import S3Server


@pytest.fixture(autouse=True)
def no_configuration_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    close_catalogs()


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def add_catalog(spark: SparkSession, **settings: str) -> tuple[str, dict[str, str]]:
    """A new Spark catalog of Iceberg's with these settings; its name and all of its conf."""
    name = f"cat_{secrets.token_hex(4)}"
    conf = {f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog"}
    conf |= {f"spark.sql.catalog.{name}.{key.replace('_', '-')}": value for key, value in settings.items()}
    for key, value in conf.items():
        spark.conf.set(key, value)
    return name, conf


def java_ids(spark: SparkSession, table: str) -> list[int]:
    return [row[0] for row in spark.sql(f"SELECT id FROM {table} ORDER BY id").collect()]


def test_a_jdbc_catalog_is_the_same_to_java_and_to_us(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.events (id BIGINT) USING iceberg")
    lake.sql("INSERT INTO {lake}.db.events VALUES (1)")
    opened = open_table(SessionView(conf=lake.conf, current_catalog=lake.name), "db.events")
    opened.table.append(ids(2))
    assert lake.rows("db.events", order_by="id") == [(1,), (2,)]
    lake.sql("INSERT INTO {lake}.db.events VALUES (3)")
    assert opened.reload().table.scan().to_arrow().num_rows == 3
    lake.sql(f"REFRESH TABLE {opened.spark_name}")


def test_a_jdbc_catalog_of_the_first_schema_version(java_spark: SparkSession, tmp_path: Path) -> None:
    uri = f"jdbc:sqlite:{tmp_path}/v0.db"
    name, conf = add_catalog(java_spark, type="jdbc", uri=uri, warehouse=f"file://{tmp_path}/wh", cache_enabled="false")
    java_spark.sql(f"CREATE NAMESPACE {name}.db")
    java_spark.sql(f"CREATE TABLE {name}.db.t (id BIGINT) USING iceberg")
    open_table(SessionView(conf=conf), "db.t").table.append(ids(7))
    assert java_ids(java_spark, f"{name}.db.t") == [7]


def test_names_with_dots_are_the_same_table_to_java(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.`odd.name` (id BIGINT) USING iceberg")
    opened = open_table(SessionView(conf=lake.conf), "db.`odd.name`")
    opened.table.append(ids(5))
    assert java_ids(lake.spark, opened.spark_name) == [5]


def test_a_view_is_not_a_table(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.t (id BIGINT) USING iceberg")
    lake.sql("CREATE VIEW {lake}.db.v AS SELECT id FROM {lake}.db.t")
    with pytest.raises(UnsupportedError, match=r"'db\.v' in catalog .* is a view, not a table"):
        open_table(SessionView(conf=lake.conf), "db.v")


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_hadoop_catalog_is_the_same_to_java_and_to_us(java_spark: SparkSession, tmp_path: Path, codec: str) -> None:
    name, conf = add_catalog(java_spark, type="hadoop", warehouse=str(tmp_path / "wh"), cache_enabled="false")
    table = f"{name}.db.t"
    properties = f"TBLPROPERTIES ('write.metadata.compression-codec'='{codec}')"
    java_spark.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg {properties}")
    java_spark.sql(f"INSERT INTO {table} VALUES (1)")
    opened = open_table(SessionView(conf=conf), "db.t")
    opened.require_commits()
    assert opened.table.scan().to_arrow()["id"].to_pylist() == [1]
    opened.table.append(ids(2))
    assert java_ids(java_spark, table) == [1, 2]
    java_spark.sql(f"INSERT INTO {table} VALUES (3)")
    again = opened.reload()
    # Made on the version that Java has left behind: pyiceberg's loop reloads and wins the next number.
    opened.table.append(ids(4))
    assert java_ids(java_spark, table) == [1, 2, 3, 4]
    assert again.reload().table.scan().to_arrow().num_rows == 4
    versions = [path.name for path in (tmp_path / "wh/db/t/metadata").iterdir() if path.name.startswith("v")]
    assert sum(name.endswith(".metadata.json") for name in versions) == 5
    java_spark.sql(f"CALL {name}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))")
    assert java_ids(java_spark, table) == [1, 2, 3, 4]


def test_hadoop_verifies_every_file_after_our_commits(java_spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's local file system checks `.name.crc`: after each commit of ours all files must pass."""
    name, conf = add_catalog(java_spark, type="hadoop", warehouse=str(tmp_path / "wh"), cache_enabled="false")
    table = f"{name}.db.t"
    java_spark.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
    java_spark.sql(f"INSERT INTO {table} VALUES (1)")
    metadata = tmp_path / "wh/db/t/metadata"
    assert (metadata / ".version-hint.text.crc").exists()
    open_table(SessionView(conf=conf), "db.t").table.append(ids(2))
    require_checksums(java_spark, tmp_path / "wh")
    java_spark.sql(f"INSERT INTO {table} VALUES (3)")
    open_table(SessionView(conf=conf), "db.t").table.append(ids(4))
    require_checksums(java_spark, tmp_path / "wh")
    assert java_ids(java_spark, table) == [1, 2, 3, 4]
    hint = (metadata / "version-hint.text").read_text()
    assert (metadata / f"v{hint}.metadata.json").exists()


def require_checksums(spark: SparkSession, folder: Path) -> None:
    """Read every file through Hadoop's checksummed file system, which raises ChecksumException."""
    jvm = spark._jvm
    assert jvm is not None
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(jvm.org.apache.hadoop.conf.Configuration())
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.endswith(".crc"):
            stream = files.open(jvm.org.apache.hadoop.fs.Path(path.as_uri()))
            jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
            stream.close()


def test_java_reads_a_hadoop_table_that_we_created(java_spark: SparkSession, tmp_path: Path) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog

    name, _ = add_catalog(java_spark, type="hadoop", warehouse=str(tmp_path / "wh"), cache_enabled="false")
    catalog = HadoopCatalog(name, warehouse=str(tmp_path / "wh"))
    catalog.create_namespace(("a", "b"))
    catalog.create_table(("a", "b", "t"), Schema(NestedField(1, "id", LongType()))).append(ids(1, 2))
    java_spark.sql(f"INSERT INTO {name}.a.b.t VALUES (3)")
    assert java_ids(java_spark, f"{name}.a.b.t") == [1, 2, 3]
    assert catalog.load_table(("a", "b", "t")).scan().to_arrow().num_rows == 3


def test_creating_on_s3_never_overwrites(s3_server: S3Server) -> None:
    from iceberg_compact_sql.storage.file_io import ExactFileIO
    from iceberg_compact_sql.storage.stores import Stores

    files = Stores(ExactFileIO(s3_server.properties))
    location = f"s3a://{s3_server.bucket}/exclusive/{secrets.token_hex(4)}#odd key"
    assert files.create(location, b"first")
    assert not files.create(location, b"second")
    assert files.read(location) == b"first"
    # The same content is our own request, sent twice by the client.
    assert files.create(location, b"first")
    files.write(location, b"third")
    assert files.read(location) == b"third"


def test_a_hadoop_catalog_on_s3_commits_by_conditional_put(s3_server: S3Server) -> None:
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
    from iceberg_compact_sql.events import listening

    warehouse = f"s3://{s3_server.bucket}/hadoop_{secrets.token_hex(4)}"
    catalog = HadoopCatalog("h", warehouse=warehouse, **s3_server.properties)
    catalog.require_commits()
    catalog.create_namespace("db")
    catalog.create_table("db.t", Schema(NestedField(1, "id", LongType()))).append(ids(1))
    other = HadoopCatalog("h", warehouse=warehouse, **s3_server.properties)
    meddled: list[bool] = []

    def meddle(point: str, facts: object) -> None:
        if point == "hadoop.commit" and not meddled:
            meddled.append(True)
            other.load_table("db.t").append(ids(2))

    stale = catalog.load_table("db.t")
    transaction = stale.transaction().set_properties({"commit.retry.num-retries": "0", "mine": "yes"})
    with listening(meddle), pytest.raises(CommitFailedException):
        transaction.commit_transaction()
    table = catalog.load_table("db.t")
    assert "mine" not in table.properties
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert catalog.list_tables("db") == [("db", "t")]
