"""HDFS: every procedure, hadoop tables, locations without a host, name services, and a name node that is down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.catalogs.open_table import close_catalogs
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.pyiceberg_internals.session_trust import load_trusted_catalog
from iceberg_compact_sql.storage.file_io import ExactFileIO
from iceberg_compact_sql.storage.kinds.hdfs import HdfsStore
from iceberg_compact_sql.storage.stores import Stores
from tests.support.calls import call
from tests.support.hdfs import HdfsServer
from tests.support.plain import PlainLake

EXPIRE = "CALL expire_snapshots('db.t', retain_last => 1, older_than => TIMESTAMP '2100-01-01 00:00:00')"
DAY_MS = 86_400_000
ROWS = pa.table({"id": list(range(100))})


@pytest.fixture
def lake(tmp_path: Path, hdfs_server: HdfsServer) -> Iterator[PlainLake]:
    """A SQL catalog whose files are on HDFS; pyiceberg's own FileIO for HDFS needs libhdfs."""
    warehouse = f"{hdfs_server.uri}/{tmp_path.name}"
    database = tmp_path / "catalog.db"
    prefix = "spark.sql.catalog.plain"
    conf = {
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{database}",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.warehouse": warehouse,
    }
    properties = {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": warehouse}
    catalog = load_trusted_catalog("plain", properties, frozenset())
    catalog.create_namespace("db")
    yield PlainLake("plain", catalog, tmp_path, conf)  # type: ignore[arg-type]
    catalog.close()
    close_catalogs()


def ids(lake: PlainLake) -> list[int]:
    return sorted(lake.load("db.t").scan().to_arrow()["id"].to_pylist())


def test_every_procedure_works_on_hdfs(lake: PlainLake, hdfs_server: HdfsServer) -> None:
    table = lake.create("db.t", *[ROWS] * 6)
    location = table.location()
    before = ids(lake)
    (score,) = call(lake, "CALL score_partitions('db.t')")
    assert score["data_files"] == 6
    (row,) = call(lake, "CALL compact_table('db.t')")
    assert (row["rewritten_data_files_count"], row["added_data_files_count"]) == (6, 1)
    (row,) = call(lake, "CALL rewrite_manifests('db.t')")
    (row,) = call(
        lake, "CALL expire_snapshots('db.t', retain_last => 1, older_than => TIMESTAMP '2100-01-01 00:00:00')"
    )
    assert row["deleted_data_files_count"] == 6 and row["failed_deletes_count"] == 0
    stores = Stores(ExactFileIO({}))
    stores.write(f"{location}/data/left behind #1.parquet", b"PAR1")
    now_ms = lake.load("db.t").metadata.last_updated_ms + 10 * DAY_MS
    orphans = call(lake, "CALL remove_orphans('db.t')", now_ms=now_ms)
    assert [row["orphan_file_location"] for row in orphans] == [f"{location}/data/left behind #1.parquet"]
    assert stores.stat(f"{location}/data/left behind #1.parquet") is None
    assert ids(lake) == before


def test_a_store_keeps_the_promises_of_the_protocol(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    root = f"{hdfs_server.uri}/{tmp_path.name}"
    stores = Stores(ExactFileIO({}))
    store = stores.of(root)
    assert stores.create(f"{root}/v1", b"one") and not stores.create(f"{root}/v1", b"two")
    assert stores.read(f"{root}/v1") == b"one"
    stores.write(f"{root}/v1", b"three")
    assert stores.read(f"{root}/v1") == b"three"
    stores.move(f"{root}/v1", f"{root}/deep/er/v2")
    assert [file.path for file in stores.walk(root)] == [f"{root}/deep/er/v2"]
    assert store.level(root) == ([], ["deep"]) and store.has_folder(f"{root}/deep")
    with stores.open_input(f"{root}/deep/er/v2") as file:
        assert file.read_at(3, 2) == b"ree" and file.size() == 5
    assert stores.delete([f"{root}/deep/er/v2", f"{root}/nothing"]) == {}
    assert list(stores.walk(root)) == [] and list(stores.walk(f"{root}/nothing")) == []
    with pytest.raises(FileNotFoundError):
        stores.read(f"{root}/nothing")
    sink = stores.open_output(f"{root}/unused")
    sink.write(b"x")
    sink.discard()  # type: ignore[attr-defined]
    assert stores.stat(f"{root}/unused") is None


class LostAnswers:
    """A client whose renames are carried out, and whose answers are lost."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def rename(self, *arguments: Any, **options: Any) -> None:
        self._client.rename(*arguments, **options)
        raise OSError("connection reset by peer")


def test_a_rename_without_an_answer_is_an_unknown_outcome(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    path = f"{hdfs_server.uri}/{tmp_path.name}/v1.metadata.json"
    store = HdfsStore("hdfs", f"127.0.0.1:{hdfs_server.port}", {})
    store._client = LostAnswers(store._client)
    with pytest.raises(CommitStateUnknownException, match=r"did not say whether .* was created: .*connection reset"):
        store.create(path, b"{}")
    assert store.read(path) == b"{}"


@pytest.mark.parametrize("spelling", ["hdfs:/", "hdfs://lakehouse/"])
def test_a_location_without_a_host_and_a_name_service(hdfs_server: HdfsServer, tmp_path: Path, spelling: str) -> None:
    """The first name node of the name service is down: the client goes on to the second."""
    conf = {
        "hdfs.conf.fs.defaultFS": hdfs_server.uri,
        "hdfs.conf.dfs.ha.namenodes.lakehouse": "a,b",
        "hdfs.conf.dfs.namenode.rpc-address.lakehouse.a": "127.0.0.1:9",
        "hdfs.conf.dfs.namenode.rpc-address.lakehouse.b": f"127.0.0.1:{hdfs_server.port}",
    }
    stores = Stores(ExactFileIO(conf))
    stores.write(f"{spelling}{tmp_path.name}/x", b"content")
    assert stores.read(f"{hdfs_server.uri}/{tmp_path.name}/x") == b"content"


def test_a_hadoop_table_is_committed_by_a_rename(hdfs_server: HdfsServer, tmp_path: Path) -> None:
    prefix = "spark.sql.catalog.plain"
    conf = {
        f"{prefix}.type": "hadoop",
        f"{prefix}.warehouse": f"/{tmp_path.name}",
        "spark.hadoop.fs.defaultFS": hdfs_server.uri,
    }
    catalog = HadoopCatalog("plain", warehouse=f"{hdfs_server.uri}/{tmp_path.name}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    for _ in range(5):
        table.append(ROWS)
    lake = PlainLake("plain", catalog, tmp_path, conf)  # type: ignore[arg-type]
    before = ids(lake)
    (row,) = call(lake, "CALL compact_table('db.t')")
    assert row["rewritten_data_files_count"] == 5
    assert ids(lake) == before
    close_catalogs()


def test_a_name_node_that_is_down_is_one_clear_error(lake: PlainLake) -> None:
    lake.create("db.t", ROWS)
    down = replace(
        lake,
        conf={
            **lake.conf,
            "spark.sql.catalog.plain.hdfs.conf.dfs.client.failover.max.attempts": "1",
            "spark.iceberg_compact_sql.answer_timeout": "500ms",
            "spark.iceberg_compact_sql.attempts": "2",
        },
    )
    with lake.catalog.engine.begin() as connection:
        from sqlalchemy import text

        connection.execute(
            text("UPDATE iceberg_tables SET metadata_location = 'hdfs://127.0.0.1:9/db/t/metadata/1.metadata.json'")
        )
    with pytest.raises(IcebergCompactError, match=r"did not answer within 1 s|Connection refused"):
        call(down, "CALL compact_table('db.t')")


def test_a_location_without_a_host_needs_a_default(tmp_path: Path) -> None:
    with pytest.raises(IcebergCompactError, match=r"HDFS at hdfs:/ cannot be reached.*fs\.defaultFS"):
        Stores(ExactFileIO({})).read("hdfs:/lake/x")
