"""What a REST catalog hides or shares: partial lists of snapshots, nested namespaces, views, failing listings."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

from iceberg_compact_sql.catalogs.open_table import close_catalogs
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.reclaim import metadata_versions
from iceberg_compact_sql.storage.metadata_json import unzipped
from iceberg_compact_sql.storage.same_file import same_file_key
from tests.support.calls import call
from tests.support.plain import PlainLake
from tests.support.reclaim import DAY_MS, SCHEMA, append_ids, ids_in, needed, on_disk
from tests.support.rest import RestServer
from tests.support.rewriting_proxy import RewritingProxy

LATER_MS = int(time.time() * 1000) + 10 * DAY_MS


@pytest.fixture(autouse=True)
def fresh_catalogs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(metadata_versions, "_WAITS_S", ())
    yield
    close_catalogs()


@pytest.fixture
def table(rest_server: RestServer) -> Table:
    table: Table = rest_server.open().create_table(f"{rest_server.new_namespace()}.t", SCHEMA)
    for i in range(5):
        append_ids(table, i)
    return table


def lake(uri: str, **settings: str) -> PlainLake:
    conf = {"spark.sql.catalog.rest.type": "rest", "spark.sql.catalog.rest.uri": uri}
    conf |= {f"spark.sql.catalog.rest.{key}": value for key, value in settings.items()}
    return PlainLake("rest", None, Path(), conf)  # type: ignore[arg-type]


def run(where: PlainLake, sql: str) -> list[dict[str, Any]]:
    return call(where, sql, now_ms=LATER_MS)


def calls_on(table: Table) -> list[str]:
    name = ".".join(table.name())
    return [
        f"CALL remove_orphans('{name}', force => true)",
        f"CALL expire_snapshots('{name}', older_than => '20d', retain_last => 1)",
        f"CALL maintain_table('{name}', older_than => '20d')",
    ]


@pytest.mark.parametrize("told_by", ["client", "defaults", "overrides"])
def test_all_snapshots_are_asked_for_whoever_says_refs(rest_server: RestServer, table: Table, told_by: str) -> None:
    before = needed(table)
    settings = {"snapshot-loading-mode": "refs"}

    def rewrite(path: str, answer: dict[str, Any]) -> dict[str, Any]:
        if path.startswith("/v1/config") and told_by != "client":
            answer.setdefault(told_by, {}).update(settings)
        return answer

    with RewritingProxy(rest_server.uri, rewrite) as proxy:
        where = lake(proxy.uri, **(settings if told_by == "client" else {}))
        for sql in calls_on(table)[:2]:
            run(where, sql)
    assert on_disk(table.refresh()) >= before
    assert len(table.metadata.snapshots) == 5
    for snapshot in table.metadata.snapshots:
        ids_in(table, snapshot.snapshot_id)


@pytest.mark.parametrize("number", [0, 1])
def test_a_server_that_gives_some_snapshots_only_is_refused(rest_server: RestServer, table: Table, number: int) -> None:
    def rewrite(path: str, answer: dict[str, Any]) -> dict[str, Any]:
        if "metadata" in answer:
            head = answer["metadata"]["current-snapshot-id"]
            snapshots = answer["metadata"]["snapshots"]
            answer["metadata"]["snapshots"] = [s for s in snapshots if s["snapshot-id"] == head]
        return answer

    before = on_disk(table)
    refused = pytest.raises(UnsupportedError, match="gives 1 of the 5 snapshots")
    with RewritingProxy(rest_server.uri, rewrite) as proxy, refused:
        run(lake(proxy.uri), calls_on(table)[number])
    assert on_disk(table) == before
    assert len(table.refresh().metadata.snapshots) == 5


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("left_out", ["refs", "statistics"])
def test_a_server_that_leaves_out_refs_or_statistics_is_refused(
    rest_server: RestServer, table: Table, number: int, left_out: str
) -> None:
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "kept").commit()
    head = table.metadata.current_snapshot_id
    assert head is not None
    path = f"{table.location()}/metadata/head.stats"
    with table.io.new_output(path).create() as stream:
        stream.write(b"statistics")
    with table.update_statistics() as change:
        change.set_statistics(
            StatisticsFile(
                snapshot_id=head,
                statistics_path=path,
                file_size_in_bytes=10,
                file_footer_size_in_bytes=1,
                blob_metadata=[],
            )
        )

    def rewrite(path: str, answer: dict[str, Any]) -> dict[str, Any]:
        if "metadata" in answer:
            refs = answer["metadata"]["refs"]
            answer["metadata"][left_out] = {"main": refs["main"]} if left_out == "refs" else []
        return answer

    before = on_disk(table)
    with RewritingProxy(rest_server.uri, rewrite) as proxy:
        sql = calls_on(table)[number]
        if number == 2:
            outcomes = {row["step"]: row["outcome"] for row in run(lake(proxy.uri), sql)}
            assert outcomes["expire"] == "refused", outcomes
        else:
            with pytest.raises(UnsupportedError, match=f"the catalog gives .* {left_out}"):
                run(lake(proxy.uri), sql)
    assert on_disk(table) >= before
    assert len(table.refresh().metadata.snapshots) >= 5
    assert "kept" in table.metadata.refs


def test_tables_in_nested_namespaces_and_views_are_seen_and_a_failing_listing_is_named(
    rest_server: RestServer, table: Table
) -> None:
    catalog = rest_server.open()
    top = table.name()[0]
    catalog.create_namespace((top, "deep"))
    other = catalog.create_table(
        (top, "deep", "other"), SCHEMA, properties={"write.data.path": f"{table.location()}/data"}
    )
    append_ids(other, 7)
    sql = calls_on(table)[0]
    with pytest.raises(UnsupportedError, match=rf"{top}\.deep\.other keeps files in"):
        run(lake(rest_server.uri), sql)
    with other.transaction() as change:
        change.remove_properties("write.data.path")
    version = ViewVersion(
        version_id=1,
        schema_id=0,
        timestamp_ms=LATER_MS,
        summary={},
        representations=[SQLViewRepresentation(type="sql", sql="SELECT 1 AS id", dialect="spark")],
        default_namespace=[top],
    )
    catalog.create_view((top, "v"), Schema(NestedField(1, "id", LongType())), version, location=table.location())
    root = Path(same_file_key(table.location()).removeprefix("file:"))
    orphan = root / "data" / "left.parquet"
    orphan.write_bytes(b"orphan")

    def fail(path: str, answer: dict[str, Any]) -> dict[str, Any] | None:
        listing = path.partition("?")[0].endswith("/tables")
        return None if listing and top in path and "deep" in path else answer

    refused = pytest.raises(UnsupportedError, match=rf"namespace {top}\.deep of catalog 'rest' cannot be listed")
    with RewritingProxy(rest_server.uri, fail) as proxy, refused:
        run(lake(proxy.uri), sql)
    assert [row["orphan_file_location"] for row in run(lake(rest_server.uri), sql)] == [
        f"{table.location()}/data/left.parquet"
    ]
    assert ids_in(other.refresh()) == [7]
    assert catalog.view_exists((top, "v"))
    kept = [
        path for path in root.glob("metadata/*.metadata.json") if "view-uuid" in json.loads(unzipped(path.read_bytes()))
    ]
    assert len(kept) == 1
