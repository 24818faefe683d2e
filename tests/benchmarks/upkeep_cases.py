"""Planning, and the maintenance that is not compaction: ours next to Iceberg's procedures on twin tables."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.benchmarks import reclaiming
from tests.benchmarks.compaction_cases import Bench
from tests.benchmarks.measuring import Measurement, measure
from tests.benchmarks.planning import make_big_table
from tests.benchmarks.twins import SIDES
from tests.support.handmade import make_catalog
from tests.support.java import Lake
from tests.support.oracle import plain

SNAPSHOTS = 8
DAYS_AGO_S = 10 * 86_400
LATER = "TIMESTAMP '2099-01-01 00:00:00'"


def planning_case(bench: Bench) -> Iterator[Measurement]:
    """A dry run of tables that exist in the metadata only; Iceberg's planner, called directly, on the same table."""
    for files in (10_000, 100_000):
        count = max(200, int(files * min(1.0, bench.scale)))
        case = f"plan {count:,} files"
        bench.say(f"{case}: making the table")
        home = bench.folder / f"big-{count}"
        make_catalog(home).close()
        make_big_table(home, count, 10 if bench.quick else 100)
        lake = _attach(bench, home, f"big{count}")
        for side, work in (("ours", _our_plan), ("iceberg", _java_plan)):
            # The second of two: the first warms up.
            work(lake)
            bench.say(f"{case}: {side}")
            cost, _ = measure(case, side, lambda work=work, lake=lake: work(lake))  # type: ignore[misc]
            yield replace(cost, note="dry run through CALL" if side == "ours" else "planner only")
        lake.catalog.close()


def _our_plan(lake: Lake) -> None:
    lake.sql("CALL compact_table('{lake}.db.big', dry_run => true)").collect()


def _java_plan(lake: Lake) -> None:
    spark: Any = lake.spark
    iceberg = spark._jvm.org.apache.iceberg
    java = lake.java_table("db.big")
    planner = iceberg.actions.BinPackRewriteFilePlanner(
        java, iceberg.expressions.Expressions.alwaysTrue(), java.currentSnapshot().snapshotId(), False
    )
    planner.init(spark._jvm.java.util.HashMap())
    planner.plan().totalGroupCount()


def upkeep_case(bench: Bench) -> Iterator[Measurement]:
    """Manifests, expiry and orphans of a table with eight small snapshots, three times; the middle one counts."""
    found: dict[tuple[str, str], list[Measurement]] = {}
    for turn in range(bench.turns):
        for side in SIDES:
            name = f"db.upkeep{turn}_{side}"
            _history(bench.lake, name)
            for case, text in _statements(bench.lake, side, name):
                bench.say(f"{case}: {side}")
                cost, rows = measure(case, side, lambda text=text: bench.lake.sql(text).collect())  # type: ignore[misc]
                if case == "orphans" and len(rows) != 1:
                    raise SystemExit(f"{side} found {len(rows)} orphans instead of 1")
                found.setdefault((case, side), []).append(cost)
    for costs in found.values():
        yield sorted(costs, key=lambda cost: cost.wall_s)[len(costs) // 2]


def _history(lake: Lake, name: str) -> None:
    table = lake.catalog.create_table(name, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    for number in range(SNAPSHOTS):
        batch = pa.table({"id": [number, number + 100], "name": [f"n{number}", None]})
        table.append(batch) if number != SNAPSHOTS // 2 else table.overwrite(batch)
    stray = Path(plain(table.location())) / "data" / "stray.parquet"
    stray.write_bytes(b"nobody knows me")
    long_ago = time.time() - DAYS_AGO_S
    os.utime(stray, (long_ago, long_ago))


def _statements(lake: Lake, side: str, name: str) -> tuple[tuple[str, str], ...]:
    if side == "ours":
        table = lake.full(name)
        return (
            ("manifests", f"CALL rewrite_manifests('{table}')"),
            ("expire", f"CALL expire_snapshots('{table}', older_than => {LATER}, retain_last => 1)"),
            ("orphans", f"CALL remove_orphans('{table}')"),
        )
    system = f"{lake.name}.system"
    return (
        ("manifests", f"CALL {system}.rewrite_manifests(table => '{name}')"),
        ("expire", f"CALL {system}.expire_snapshots(table => '{name}', older_than => {LATER}, retain_last => 1)"),
        ("orphans", f"CALL {system}.remove_orphan_files(table => '{name}')"),
    )


def history_case(bench: Bench) -> Iterator[Measurement]:
    """A thousand snapshots with ten thousand files, ours only."""
    snapshots = max(20, int(1000 * min(1.0, bench.scale)))
    case = f"expire {snapshots:,} snapshots"
    bench.say(f"{case}: making the table")
    home = bench.folder / "history"
    home.mkdir()
    reclaiming.build(home, snapshots, min(100, snapshots)).catalog.close()
    lake = _attach(bench, home, "history")
    statement = f"CALL expire_snapshots('history.db.t', older_than => {LATER}, retain_last => 1)"
    bench.say(f"{case}: ours")
    cost, rows = measure(case, "ours", lambda: lake.sql(statement).collect())
    yield replace(cost, note=f"{rows[0]['deleted_data_files_count']} files deleted")
    lake.catalog.close()


def _attach(bench: Bench, home: Path, name: str) -> Lake:
    """A catalog that already exists, in the session under a name of its own."""
    with contextlib.closing(sqlite3.connect(home / "catalog.db")) as database, database:
        for relation in ("iceberg_tables", "iceberg_namespace_properties"):
            database.execute(f"UPDATE {relation} SET catalog_name = ?", (name,))
    pattern = f"spark.sql.catalog.{bench.lake.name}"
    conf = {key.replace(pattern, f"spark.sql.catalog.{name}"): value for key, value in bench.lake.conf.items()}
    conf[f"spark.sql.catalog.{name}.uri"] = f"jdbc:sqlite:{home / 'catalog.db'}"
    conf[f"spark.sql.catalog.{name}.warehouse"] = (home / "warehouse").as_uri()
    for key, value in conf.items():
        bench.lake.spark.conf.set(key, value)
    return Lake(name, bench.lake.spark, make_catalog(home, name), home, conf)
