"""Tables whose objects have keys that clients refuse, cut or take for another object; each key is one object."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem
from pyiceberg.table import Table

from iceberg_compact_sql.catalogs.open_table import close_catalogs
from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.storage.file_io import ExactFileIO
from iceberg_compact_sql.storage.kinds.arrow import ArrowStore
from iceberg_compact_sql.storage.s3.client import make_s3_client
from iceberg_compact_sql.storage.s3.store import S3Store
from iceberg_compact_sql.storage.stores import Stores
from tests.support.calls import call
from tests.support.plain import PlainLake, open_plain
from tests.support.reclaim import DAY_MS, SCHEMA, append_ids, id_rows, ids_in, needed
from tests.support.s3 import S3Server

# Relative to the bucket: below the name of the test, and one that starts with a slash.
PLACES = (
    "{test}//double/t",
    "{test}/a/./t",
    "{test}/a/../t",
    "/{test}/leading/t",
    "{test}/a#b?c=d/t",
    "{test}/50%25+x/t",
    "{test}/caf\u00e9/cafe\u0301/t",
)
ODD_KEYS = (
    "a//b",
    "a/./b",
    "a/../b",
    "/a",
    "a/",
    "a#b",
    "a?b",
    "a%2Fb",
    "a+b",
    "a b",
    "\u00e9",
    "e\u0301",
    "a//",
    "..",
)
LATER_MS = 40 * DAY_MS


@pytest.fixture
def client(s3_server: S3Server) -> Iterator[Any]:
    made = make_s3_client(s3_server.properties)
    yield made
    made.close()


@pytest.fixture
def lake(tmp_path: Path, s3_server: S3Server) -> Iterator[PlainLake]:
    """A catalog on S3 whose own FileIO takes paths as they are, so that odd tables can be made."""
    with open_plain(tmp_path / "plain", s3_server.properties) as made:
        made.catalog.properties["py-io-impl"] = "iceberg_compact_sql.storage.file_io.ExactFileIO"
        yield made
    close_catalogs()


def make_table(lake: PlainLake, location: str, **properties: str) -> Table:
    return lake.catalog.create_table("db.odd", SCHEMA, location=location, properties=properties)


def keys(client: Any, server: S3Server, text: str) -> set[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=server.bucket)
    return {item["Key"] for page in pages for item in page.get("Contents", ()) if text in item["Key"]}


@pytest.mark.parametrize("place", PLACES)
def test_every_procedure_works_on_odd_keys(
    place: str, lake: PlainLake, client: Any, s3_server: S3Server, tmp_path: Path
) -> None:
    table = make_table(lake, f"s3://{s3_server.bucket}/{place.format(test=tmp_path.name)}")
    for number in range(4):
        append_ids(table, number)
    now_ms = table.metadata.last_updated_ms + LATER_MS
    folder = table.location().removeprefix(f"s3://{s3_server.bucket}/")
    before = keys(client, s3_server, tmp_path.name)
    assert all(key.startswith(f"{folder}/") for key in before)

    (row,) = call(lake, "CALL compact_table('db.odd', min_input_files => 2)")
    assert (row["rewritten_data_files_count"], row["added_data_files_count"]) == (4, 1)
    assert ids_in(table.refresh()) == [0, 1, 2, 3]
    append_ids(table, 4)
    call(lake, "CALL rewrite_manifests('db.odd')")
    assert ids_in(table.refresh()) == [0, 1, 2, 3, 4]

    left_over = check_orphans(lake, table, folder, client, s3_server)
    (row,) = call(lake, "CALL expire_snapshots('db.odd', older_than => '1h', retain_last => 1)", now_ms=now_ms)
    assert row["deleted_data_files_count"] == 4
    assert ids_in(table.refresh()) == [0, 1, 2, 3, 4]
    names = {path.removeprefix(f"s3://{s3_server.bucket}/") for path in needed(table)}
    left = keys(client, s3_server, tmp_path.name)
    assert names <= left
    rest = {key for key in left - names if "_quarantine" not in key and not key.endswith((".metadata.json", "/"))}
    assert rest == left_over


def check_orphans(lake: PlainLake, table: Table, folder: str, client: Any, s3_server: S3Server) -> set[str]:
    """Put an orphan aside and bring it back; its neighbour of nearly the same key is another object."""
    if "/./" in folder or "/../" in folder:
        with pytest.raises(InvalidArgumentError, match=r"has '\.+' in it"):
            call(lake, "CALL remove_orphans('db.odd')")
        return set()
    now_ms = table.metadata.last_updated_ms + LATER_MS
    client.put_object(Bucket=s3_server.bucket, Key=f"{folder}/data/x//left", Body=b"orphan")
    twin = f"{folder}/data/x/left"
    client.put_object(Bucket=s3_server.bucket, Key=twin, Body=b"another object")
    listed = call(lake, "CALL remove_orphans('db.odd', dry_run => true, force => true)", now_ms=now_ms)
    assert {row["orphan_file_location"] for row in listed} >= {f"{table.location()}/data/x//left"}
    call(lake, "CALL remove_orphans('db.odd', quarantine => '7d', force => true)", now_ms=now_ms)
    assert f"{folder}/data/x//left" not in keys(client, s3_server, folder)
    restored = call(lake, "CALL restore_quarantine('db.odd')")
    assert restored
    assert client.get_object(Bucket=s3_server.bucket, Key=f"{folder}/data/x//left")["Body"].read() == b"orphan"
    assert client.get_object(Bucket=s3_server.bucket, Key=twin)["Body"].read() == b"another object"
    return {f"{folder}/data/x//left", twin}


def test_a_denied_delete_is_reported_and_done_by_the_next_expiry(
    lake: PlainLake, tmp_path: Path, s3_server: S3Server, client: Any
) -> None:
    table = make_table(lake, f"s3://{s3_server.bucket}/{tmp_path.name}//t")
    append_ids(table, 1)
    table.overwrite(id_rows(2))
    now_ms = table.metadata.last_updated_ms + LATER_MS
    sql = "CALL expire_snapshots('db.odd', older_than => '1h', retain_last => 1)"
    with pytest.MonkeyPatch.context() as store:
        deny_deletes(store)
        (row,) = call(lake, sql, now_ms=now_ms)
    assert row["failed_deletes_count"] > 0
    (row,) = call(lake, sql, now_ms=now_ms)
    assert row["failed_deletes_count"] == 0
    assert len([key for key in keys(client, s3_server, tmp_path.name) if key.endswith(".parquet")]) == 1
    assert ids_in(table.refresh()) == [2]


def deny_deletes(store: pytest.MonkeyPatch) -> None:
    """Answer every delete outside the quarantine with AccessDenied; moto has no policy that does it."""
    from botocore.client import BaseClient
    from botocore.exceptions import ClientError

    send = BaseClient._make_api_call
    answer = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}

    def denied(self: Any, operation: str, arguments: dict[str, Any]) -> Any:
        if operation in ("DeleteObject", "DeleteObjects") and "_quarantine" not in str(arguments):
            raise ClientError(answer, operation)
        return send(self, operation, arguments)

    store.setattr(BaseClient, "_make_api_call", denied)


@pytest.mark.parametrize("key", ODD_KEYS)
def test_each_key_is_one_object(key: str, s3_server: S3Server, client: Any, tmp_path: Path) -> None:
    stores = Stores(ExactFileIO(s3_server.properties))
    root = f"s3://{s3_server.bucket}/{tmp_path.name}"
    path = f"{root}/{key}"
    bucket, exact = s3_server.bucket, f"{tmp_path.name}/{key}"
    plain = f"{tmp_path.name}/b"
    client.put_object(Bucket=bucket, Key=plain, Body=b"neighbour")
    data = pa.py_buffer(bytes(range(256)) * 40_000)
    with stores.open_output(path) as sink:  # type: ignore[attr-defined]
        sink.write(data)
    assert client.get_object(Bucket=bucket, Key=exact)["Body"].read() == data.to_pybytes()
    with stores.open_input(path) as file:
        assert file.size() == data.size
        assert file.read_at(100, 9_000_000) == data.slice(9_000_000, 100).to_pybytes()
        assert file.read_at(300, 7) == data.slice(7, 300).to_pybytes()
    stores.write(path, b"small")
    assert stores.read(path) == b"small"
    found = stores.stat(path)
    assert found is not None
    assert found.size_bytes == 5
    assert {file.path for file in stores.walk(root)} == {path, f"{root}/b"}
    stores.move(path, f"{root}/moved//{key}")
    assert stores.stat(path) is None
    stores.move(f"{root}/moved//{key}", path)
    assert not stores.create(path, b"other")
    assert stores.delete([path]) == {}
    assert keys(client, s3_server, tmp_path.name) == {plain}
    assert client.get_object(Bucket=bucket, Key=plain)["Body"].read() == b"neighbour"


def test_keys_that_cannot_be_addressed_are_refused_before_the_commit(
    lake: PlainLake, tmp_path: Path, s3_server: S3Server, client: Any
) -> None:
    location = f"s3://{s3_server.bucket}/{tmp_path.name}/t"
    table = make_table(lake, location, **{"write.data.path": f"{location}/data//x"})
    append_ids(table, 1)
    table.overwrite(id_rows(2))
    before = keys(client, s3_server, tmp_path.name)
    now_ms = table.metadata.last_updated_ms + LATER_MS
    with pytest.MonkeyPatch.context() as modules:
        modules.setitem(sys.modules, "boto3", None)
        with pytest.raises(UnsupportedError, match=r"an empty, '\.' or '\.\.' component, which only boto3 can address"):
            call(lake, "CALL expire_snapshots('db.odd', older_than => '1h', retain_last => 1)", now_ms=now_ms)
    assert keys(client, s3_server, tmp_path.name) == before


def test_the_setting_that_rules_out_boto3_is_named() -> None:
    store = S3Store(ArrowStore(LocalFileSystem()), {"s3.signer": "S3V4RestSigner"}, "lake")
    with pytest.raises(UnsupportedError, match=r"the setting s3\.signer cannot be used with boto3"):
        store.require_addressable("s3://lake/a//b")
    store.require_addressable("s3://lake/a/b#c")
