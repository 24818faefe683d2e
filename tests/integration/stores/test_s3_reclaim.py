"""Listing, bulk deletes and quarantine on S3's protocol, with the keys that trip others up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from iceberg_compact_sql.errors import IcebergCompactError, UnsupportedError
from iceberg_compact_sql.reclaim import quarantine
from iceberg_compact_sql.reclaim.expiry import run_expiry
from iceberg_compact_sql.reclaim.find_records import find_records
from iceberg_compact_sql.reclaim.orphans import OrphanRequest, OrphanSearch
from iceberg_compact_sql.reclaim.retention import ExpiryRequest
from iceberg_compact_sql.storage.stores import Stores
from tests.support.reclaim import DAY_MS, FUTURE_MS, SCHEMA, append_ids, id_rows, ids_in, needed
from tests.support.s3 import S3Server

ODD_NAMES = (
    "a b.parquet",
    "a+c.parquet",
    "a%20d.parquet",
    "a#e.parquet",
    "a?f=1.parquet",
    "a&g=h.parquet",
    "\u00fcml\u00e4ut \u6587.parquet",
    "k=1/x:y.parquet",
    "quote'\".parquet",
)


@pytest.fixture(scope="module")
def client(s3_server: S3Server) -> Iterator[Any]:
    import boto3

    made = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        aws_access_key_id=s3_server.access_key,
        aws_secret_access_key=s3_server.secret_key,
        region_name=s3_server.region,
    )
    yield made
    made.close()


@pytest.fixture
def table(tmp_path: Path, s3_server: S3Server) -> Table:
    warehouse = f"s3://{s3_server.bucket}/{tmp_path.name}"
    properties = {**s3_server.properties, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse, **properties)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", SCHEMA)
    for i in range(3):
        append_ids(table, i)
    return table


def keys(client: Any, table: Table) -> set[str]:
    bucket, prefix = table.location().removeprefix("s3://").split("/", 1)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/")
    return {f"s3://{bucket}/{item['Key']}" for page in pages for item in page.get("Contents", ())}


def put(client: Any, table: Table, name: str) -> str:
    bucket, prefix = table.location().removeprefix("s3://").split("/", 1)
    client.put_object(Bucket=bucket, Key=f"{prefix}/data/{name}", Body=b"orphan")
    return f"s3://{bucket}/{prefix}/data/{name}"


def later(**changes: Any) -> OrphanRequest:
    return OrphanRequest(now_ms=int(time.time() * 1000) + 10 * DAY_MS, **changes)


@pytest.mark.parametrize("bulk", [True, False])
def test_orphans_with_odd_keys_go_and_nothing_else(table: Table, client: Any, bulk: bool) -> None:
    before = keys(client, table)
    if not bulk:
        # A setting that boto3 is not told: single deletes through the FileIO's own file system.
        table.io.properties["s3.resolve-region"] = "True"
    left = {put(client, table, name) for name in ODD_NAMES}
    neighbour = put(client, table, "a")
    search = OrphanSearch(table, later(location=f"{table.location()}/data", force=True))
    plan = search.find()
    assert {file.path for file in plan.orphans} == left | {neighbour}
    assert {file.size_bytes for file in plan.orphans} == {6}
    assert all(gone for _, gone in search.delete(plan))
    assert {key for key in keys(client, table) if not key.endswith("/")} == before
    assert ids_in(table.refresh()) == [0, 1, 2]


def test_a_thousand_and_more_keys_go_in_bulk(table: Table, client: Any) -> None:
    before = keys(client, table)
    paths = [put(client, table, f"left{i:04}") for i in range(1100)]
    assert Stores(table.io).delete([*paths, f"{table.location()}/data/never there"]) == {}
    assert keys(client, table) == before


def test_expiry_frees_exactly_what_nothing_needs(table: Table, client: Any) -> None:
    table.overwrite(id_rows(9))
    result = run_expiry(table, ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS))
    assert result.failed_deletes == 0
    left = {key for key in keys(client, table) if not key.endswith((".metadata.json", "/"))}
    assert left == needed(table.refresh())
    assert ids_in(table) == [9]


def test_quarantine_and_back(table: Table, client: Any) -> None:
    left = put(client, table, "a b+c%20d.parquet")
    before = keys(client, table)
    search = OrphanSearch(table, later(quarantine_ms=DAY_MS))
    assert [gone for _, gone in search.delete(search.find())] == [True]
    assert left not in keys(client, table)
    stores = Stores(table.io)
    outcome = list(quarantine.restore(stores, find_records(stores, table.metadata).quarantined, FUTURE_MS))
    assert [(file.original, back) for file, back in outcome] == [(left, True)]
    assert {key for key in keys(client, table) if not key.endswith("/")} == before


def test_another_spelling_of_the_scheme_is_the_same_file(table: Table) -> None:
    live = table.inspect.files()["file_path"].to_pylist()
    spelled = [(path.replace("s3://", "s3a://"), 0) for path in live]
    assert OrphanSearch(table, later()).find(spelled).orphans == ()


def test_a_spelling_that_leaves_doubt_stops_the_run(table: Table, client: Any) -> None:
    live = table.inspect.files()["file_path"].to_pylist()[0].rsplit("/", 1)[1]
    put(client, table, live.replace("-", "%2D"))
    with pytest.raises(IcebergCompactError, match="another spelling"):
        OrphanSearch(table, later()).find()


def test_a_bucket_is_refused(table: Table, s3_server: S3Server) -> None:
    with pytest.raises(UnsupportedError, match="whole bucket"):
        OrphanSearch(table, later(location=f"s3://{s3_server.bucket}/"))


def test_a_store_that_is_down_is_told_and_not_asked_key_by_key() -> None:
    asked: list[str] = []

    class Down(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = b"<Error><Code>InternalError</Code><Message>try later</Message></Error>"
            self.send_response(500)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the test says what matters."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Down) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        properties = {
            "s3.endpoint": f"http://127.0.0.1:{server.server_address[1]}",
            "s3.access-key-id": "x",
            "s3.secret-access-key": "x",
            "s3.region": "us-east-1",
        }
        paths = [f"s3://lake/{i}" for i in range(50)]
        failures = Stores(PyArrowFileIO(properties)).delete(paths)
        server.shutdown()
    assert list(failures) == paths
    assert all("try later" in reason for reason in failures.values())
    assert len(asked) < 10
