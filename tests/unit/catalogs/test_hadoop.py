"""The hadoop catalog: versions are found, commits never overwrite each other."""

from __future__ import annotations

import gzip
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.events import listening
from iceberg_compact_sql.storage.file_io import ExactFileIO
from iceberg_compact_sql.storage.stores import Stores

SCHEMA = Schema(NestedField(1, "id", LongType()))


@pytest.fixture
def catalog(tmp_path: Path) -> HadoopCatalog:
    made = HadoopCatalog("h", warehouse=str(tmp_path))
    made.create_namespace("db")
    made.create_table("db.t", SCHEMA)
    return made


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def all_ids(catalog: HadoopCatalog) -> list[int]:
    return sorted(catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist())


def metadata_folder(tmp_path: Path) -> Path:
    return tmp_path / "db" / "t" / "metadata"


def test_commits_make_one_version_each(catalog: HadoopCatalog, tmp_path: Path) -> None:
    table = catalog.load_table("db.t")
    table.append(rows(1))
    table.append(rows(2))
    folder = metadata_folder(tmp_path)
    assert sorted(path.name for path in folder.glob("*.json")) == [f"v{n}.metadata.json" for n in (1, 2, 3)]
    assert (folder / "version-hint.text").read_text() == "3"
    assert [entry.metadata_file for entry in catalog.load_table("db.t").metadata.metadata_log] == [
        f"file://{folder}/v1.metadata.json",
        f"file://{folder}/v2.metadata.json",
    ]
    assert all_ids(catalog) == [1, 2]


@pytest.mark.parametrize("hint", [None, "", "1", "2\n", "junk", "99"])
def test_the_newest_version_is_found_whatever_the_hint_says(
    catalog: HadoopCatalog, tmp_path: Path, hint: str | None
) -> None:
    catalog.load_table("db.t").append(rows(1))
    catalog.load_table("db.t").append(rows(2))
    hint_file = metadata_folder(tmp_path) / "version-hint.text"
    hint_file.unlink()
    if hint is not None:
        hint_file.write_text(hint)
    assert catalog.load_table("db.t").metadata_location.endswith("/v3.metadata.json")


@pytest.mark.parametrize("spelling", ["v{}.gz.metadata.json", "v{}.metadata.json.gz"])
def test_compressed_versions_are_read_and_not_overwritten(
    catalog: HadoopCatalog, tmp_path: Path, spelling: str
) -> None:
    stale = catalog.load_table("db.t")
    stale.append(rows(1))
    folder = metadata_folder(tmp_path)
    plain = folder / "v2.metadata.json"
    (folder / spelling.format(2)).write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert all_ids(catalog) == [1]
    catalog.load_table("db.t").append(rows(2))
    assert (folder / "v3.metadata.json").is_file()
    assert all_ids(catalog) == [1, 2]


def test_gzip_is_written_where_the_table_asks_for_it(tmp_path: Path) -> None:
    catalog = HadoopCatalog("h", warehouse=f"file:{tmp_path}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", SCHEMA, properties={"write.metadata.compression-codec": "gzip"})
    table.append(rows(1))
    assert (metadata_folder(tmp_path) / "v2.gz.metadata.json").read_bytes().startswith(b"\x1f\x8b")
    assert all_ids(catalog) == [1]


def test_a_version_that_somebody_else_made_meanwhile_is_a_conflict_and_is_kept(
    catalog: HadoopCatalog, tmp_path: Path
) -> None:
    """The other writer comes after we looked at the newest version and before we create ours."""
    theirs = metadata_folder(tmp_path) / "v2.metadata.json"

    def meddle(point: str, facts: object) -> None:
        if point == "hadoop.commit" and not theirs.exists():
            theirs.write_bytes((metadata_folder(tmp_path) / "v1.metadata.json").read_bytes())

    table = catalog.load_table("db.t")
    transaction = table.transaction().set_properties({"commit.retry.num-retries": "0", "mine": "yes"})
    with listening(meddle), pytest.raises(CommitFailedException, match=r"Version 2 of db\.t already exists"):
        transaction.commit_transaction()
    assert "mine" not in catalog.load_table("db.t").properties
    assert [path.name for path in metadata_folder(tmp_path).iterdir() if path.name.startswith("v")]
    assert not list(metadata_folder(tmp_path).glob("[0-9a-f]*.metadata.json"))


def test_many_writers_at_once_lose_nothing(tmp_path: Path, catalog: HadoopCatalog) -> None:
    with catalog.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "200", "commit.retry.min-wait-ms": "1"})
    failures: list[BaseException] = []

    def write(first: int) -> None:
        try:
            own = HadoopCatalog("h", warehouse=str(tmp_path))
            for number in range(first, first + 5):
                own.load_table("db.t").append(rows(number))
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(base,)) for base in (0, 100, 200, 300)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert not failures
    assert all_ids(catalog) == sorted(base + n for base in (0, 100, 200, 300) for n in range(5))


def test_creating_never_overwrites(tmp_path: Path) -> None:
    files = Stores(ExactFileIO())
    assert files.create(f"file:{tmp_path}/v1.metadata.json", b"first")
    assert not files.create(f"file://{tmp_path}/v1.metadata.json", b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["v1.metadata.json"]
    assert files.read(str(tmp_path / "v1.metadata.json")) == b"first"


def test_names_that_would_leave_the_warehouse_are_refused(catalog: HadoopCatalog) -> None:
    for identifier in (("..", "t"), ("db", "../t"), ("db", ""), ("/etc", "t")):
        with pytest.raises(InvalidArgumentError):
            catalog.load_table(identifier)


def test_listing(catalog: HadoopCatalog) -> None:
    catalog.create_namespace(("db", "inner"))
    assert catalog.list_tables("db") == [("db", "t")]
    assert catalog.list_namespaces() == [("db",)]
    assert catalog.list_namespaces("db") == [("db", "inner")]
    assert catalog.namespace_exists("db")
    assert not catalog.namespace_exists("db.t")
    assert catalog.table_exists("db.t")


def test_what_is_missing_or_there_already(catalog: HadoopCatalog) -> None:
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.other")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("db.t", SCHEMA)
    with pytest.raises(UnsupportedError, match="does not drop tables"):
        catalog.drop_table("db.t")


def test_commits_are_refused_early_where_they_would_not_be_safe() -> None:
    HadoopCatalog("h", warehouse="/wh").require_commits()
    HadoopCatalog("h", warehouse="hdfs://nn/wh").require_commits()
    for warehouse in ("gs://b/wh", "abfss://c@a/wh"):
        with pytest.raises(UnsupportedError, match="risk of lost commits"):
            HadoopCatalog("h", warehouse=warehouse).require_commits()
