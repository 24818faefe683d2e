"""Expiry beside Iceberg's own procedure: twin tables with the same history, the same rest afterwards."""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.procedures.expire_snapshots import PROCEDURE
from tests.support.java import Lake
from tests.support.reclaim import FUTURE_MS, needed, on_disk

JAVA_COLUMNS = 6
Step = Callable[[Lake, str, random.Random], None]


def ours(lake: Lake, **arguments: object) -> list[tuple[Any, ...]]:
    context = Context(view=SessionView(conf=lake.conf, current_catalog=lake.name, current_namespace=("db",)))
    given = [GivenArgument(value, name) for name, value in arguments.items()]
    return PROCEDURE.run(context, bind(PROCEDURE, given, now_ms=context.now_ms, time_zone=lambda: "UTC"))


def snapshots(lake: Lake, table: str) -> list[int]:
    """Ids in the order in which they were made."""
    found = sorted(lake.load(table).metadata.snapshots, key=lambda s: (s.timestamp_ms, s.sequence_number or 0))
    return [snapshot.snapshot_id for snapshot in found]


def insert(lake: Lake, table: str, dice: random.Random) -> None:
    low = dice.randrange(1000)
    lake.sql(f"INSERT INTO {lake.full(table)} SELECT id, concat('k', id % 2) FROM range({low}, {low + 6})")


def insert_on_side(lake: Lake, table: str, dice: random.Random) -> None:
    if "side" not in lake.load(table).metadata.refs:
        lake.sql(f"ALTER TABLE {lake.full(table)} CREATE BRANCH side WITH SNAPSHOT RETENTION 2 SNAPSHOTS 1 DAYS")
    lake.sql(f"INSERT INTO {lake.full(table)}.branch_side VALUES ({dice.randrange(1000)}, 'side')")


def tag(lake: Lake, table: str, dice: random.Random) -> None:
    at = dice.choice(range(len(snapshots(lake, table))))
    name = f"tag{len(lake.load(table).metadata.refs)}"
    lake.sql(f"ALTER TABLE {lake.full(table)} CREATE TAG {name} AS OF VERSION {snapshots(lake, table)[at]}")


def delete_rows(lake: Lake, table: str, dice: random.Random) -> None:
    lake.sql(f"DELETE FROM {lake.full(table)} WHERE id % 5 = {dice.randrange(5)}")


def delete_all_and_more(lake: Lake, table: str, dice: random.Random) -> None:
    lake.sql(f"INSERT OVERWRITE {lake.full(table)} VALUES ({dice.randrange(1000)}, 'new')")


def equality_delete(lake: Lake, table: str, dice: random.Random) -> None:
    lake.equality_delete(table, ["kind"], [("k1",)])


def roll_back(lake: Lake, table: str, dice: random.Random) -> None:
    ancestors = lake.sql(f"SELECT snapshot_id FROM {lake.full(table)}.history WHERE is_current_ancestor").collect()
    chosen = ancestors[dice.randrange(len(ancestors))][0]
    lake.sql(f"CALL {lake.name}.system.rollback_to_snapshot('{table}', {chosen})")


def stage(lake: Lake, table: str, dice: random.Random) -> None:
    lake.spark.conf.set("spark.wap.id", f"wap{dice.randrange(10**9)}")
    try:
        insert(lake, table, dice)
    finally:
        lake.spark.conf.unset("spark.wap.id")


def stage_and_pick(lake: Lake, table: str, dice: random.Random) -> None:
    stage(lake, table, dice)
    insert(lake, table, dice)
    staged = [s for s in lake.load(table).metadata.snapshots if s.summary and s.summary.get("wap.id")][-1]
    lake.sql(f"CALL {lake.name}.system.cherrypick_snapshot('{table}', {staged.snapshot_id})")


def statistics(lake: Lake, table: str, dice: random.Random) -> None:
    lake.sql(f"CALL {lake.name}.system.compute_table_stats('{table}')")
    lake.sql(f"CALL {lake.name}.system.compute_partition_stats('{table}')")


def compact(lake: Lake, table: str, dice: random.Random) -> None:
    lake.sql(f"CALL {lake.name}.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")


def rewrite_manifests(lake: Lake, table: str, dice: random.Random) -> None:
    lake.sql(f"CALL {lake.name}.system.rewrite_manifests('{table}')")


HISTORIES: dict[str, list[Step]] = {
    "appends": [insert] * 5,
    "deletes and overwrites": [insert, delete_rows, insert, equality_delete, delete_all_and_more, insert],
    "branches and tags": [insert, tag, insert_on_side, insert, insert_on_side, tag, insert_on_side, insert],
    "rollbacks and staged": [insert, insert, stage, roll_back, insert, stage_and_pick, insert],
    "statistics and compaction": [insert, statistics, insert, delete_rows, compact, statistics, rewrite_manifests],
}


def twin(lake: Lake, name: str, steps: list[Step], seed: int) -> None:
    layout = "PARTITIONED BY (kind)" if statistics in steps else ""
    lake.sql(
        f"CREATE TABLE {lake.full(name)} (id BIGINT, kind STRING) USING iceberg {layout} TBLPROPERTIES ("
        "'format-version'='2', 'write.delete.mode'='merge-on-read', 'write.wap.enabled'='true', "
        "'commit.manifest.min-count-to-merge'='3')"
    )
    dice = random.Random(seed)
    for step in steps:
        step(lake, name, dice)
        time.sleep(0.002)


def rest(lake: Lake, name: str, order: list[int]) -> dict[str, Any]:
    """What is left of a table without ids and random names."""
    metadata = lake.load(name).metadata
    files = on_disk(lake.load(name))
    kinds = {suffix: sum(path.endswith(suffix) for path in files) for suffix in (".parquet", ".avro", ".stats")}
    return {
        "snapshots": sorted(order.index(s.snapshot_id) for s in metadata.snapshots),
        "refs": {ref: order.index(value.snapshot_id) for ref, value in metadata.refs.items()},
        "log": [order.index(entry.snapshot_id) for entry in metadata.snapshot_log],
        "statistics": sorted(order.index(s.snapshot_id) for s in metadata.statistics),
        "partition statistics": sorted(order.index(s.snapshot_id) for s in metadata.partition_statistics),
        "files": len(files),
        "kinds": kinds,
    }


def read_all(lake: Lake, name: str) -> dict[int, Any]:
    """The rows of every snapshot, read by Java."""
    found = {}
    for at, snapshot_id in enumerate(snapshots(lake, name)):
        rows = lake.sql(f"SELECT * FROM {lake.full(name)} VERSION AS OF {snapshot_id} ORDER BY id, kind").collect()
        found[snapshot_id] = (at, [tuple(row) for row in rows])
    return found


def _utc(moment_ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=moment_ms)


def _sql(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
    return f"array({', '.join(map(str, value))})" if isinstance(value, list) else str(value)


CASES = [
    ("appends", "half"),
    ("deletes and overwrites", "all"),
    ("deletes and overwrites", "half"),
    ("branches and tags", "all"),
    ("branches and tags", "retain 2"),
    ("rollbacks and staged", "all"),
    ("rollbacks and staged", "half"),
    ("rollbacks and staged", "one id"),
    ("statistics and compaction", "all"),
    ("statistics and compaction", "retain 2"),
]


@pytest.mark.parametrize(("history", "how"), CASES)
def test_the_same_rest_as_with_icebergs_procedure(lake: Lake, history: str, how: str, seed: int) -> None:
    for name in ("db.java", "db.python"):
        twin(lake, name, HISTORIES[history], seed)
    orders = {name: snapshots(lake, name) for name in ("db.java", "db.python")}
    readable = read_all(lake, "db.python")

    def arguments(name: str) -> dict[str, Any]:
        middle = orders[name][len(orders[name]) // 2]
        moment = next(s.timestamp_ms for s in lake.load(name).metadata.snapshots if s.snapshot_id == middle)
        heads = {ref.snapshot_id for ref in lake.load(name).metadata.refs.values()}
        victim = next(i for i in orders[name] if i not in heads)
        results: dict[str, dict[str, Any]] = {
            "all": {"older_than": _utc(FUTURE_MS)},
            "retain 2": {"older_than": _utc(FUTURE_MS), "retain_last": 2},
            "half": {"older_than": _utc(moment)},
            "one id": {"snapshot_ids": [victim]},
        }
        return results[how]

    spelled = ", ".join(f"{key} => {_sql(value)}" for key, value in arguments("db.java").items())
    expected = tuple(lake.sql(f"CALL {lake.name}.system.expire_snapshots(table => 'db.java', {spelled})").collect()[0])
    mine = {"table": "db.python", **arguments("db.python")}
    before = on_disk(lake.load("db.python"))
    dry = ours(lake, **mine, dry_run=True)
    [row] = ours(lake, **mine)
    assert row[:JAVA_COLUMNS] == expected
    assert rest(lake, "db.python", orders["db.python"]) == rest(lake, "db.java", orders["db.java"])
    after = on_disk(lake.load("db.python"))
    assert needed(lake.load("db.python")) <= after
    listed = {f"file:{Path(path.removeprefix('file:')).as_posix()}" for kind, path, _ in dry if kind != "snapshot"}
    assert listed == {path for path in before - after if not path.endswith(".crc")}
    for snapshot_id, (_, rows) in read_all(lake, "db.python").items():
        assert rows == readable[snapshot_id][1]
