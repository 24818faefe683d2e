"""maintain_tables: the choice of tables within budgets, and what becomes of each table, as users call it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_compact_sql.errors import IcebergCompactError, RunCancelledError
from iceberg_compact_sql.events import Observer
from tests.support.calls import call
from tests.support.plain import PlainLake
from tests.support.planning import HOUR_MS, MB, fake_append

COMPACT = "steps => array('compact'), target => '1MB'"
CHOICE = ("table", "action", "reason", "score", "estimated_cost", "estimated_seconds")


def make(lake: PlainLake, name: str, files: int, properties: dict[str, str] | None = None) -> None:
    """A table of real files with one row each."""
    batches = [pa.table({"id": pa.array([number], pa.int64())}) for number in range(files)]
    lake.create(name, *batches, properties=properties)


def maintained(lake: PlainLake, arguments: str, **options: Any) -> dict[str, dict[str, Any]]:
    rows = call(lake, f"CALL maintain_tables('db.*', {arguments})", **options)
    return {row["table"].removeprefix("plain.db."): row for row in rows}


def ids(lake: PlainLake, name: str) -> list[int]:
    return sorted(lake.load(name).scan().to_arrow()["id"].to_pylist())


def test_the_worst_table_is_maintained_first_and_rows_stay(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.few", 6)
    make(plain_lake, "db.many", 12)
    make(plain_lake, "db.one", 1)
    now_ms = plain_lake.load("db.one").metadata.last_updated_ms + HOUR_MS
    planned = call(plain_lake, f"CALL maintain_tables('db.*', {COMPACT}, dry_run => true)", now_ms=now_ms)
    assert [row["table"] for row in planned] == ["plain.db.many", "plain.db.few", "plain.db.one"]
    assert {row["action"] for row in planned} == {"maintain"}
    assert all(row[name] is None for row in planned for name in ("outcome", "detail", "score_after", "elapsed_ms"))
    assert len(plain_lake.load("db.many").snapshots()) == 12
    done = call(plain_lake, f"CALL maintain_tables('db.*', {COMPACT})", now_ms=now_ms)
    assert [[row[name] for name in CHOICE] for row in done] == [[row[name] for name in CHOICE] for row in planned]
    assert [row["outcome"] for row in done] == ["done", "done", "nothing to do"]
    assert "compact: rewritten_data_files_count 12, added_data_files_count 1" in done[0]["detail"]
    assert all(row["score_after"] == 0 and row["elapsed_ms"] >= 0 for row in done)
    assert ids(plain_lake, "db.many") == list(range(12))
    again = call(plain_lake, f"CALL maintain_tables('db.*', {COMPACT})")
    assert {row["outcome"] for row in again} == {"nothing to do"}


@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_a_cheaper_table_is_taken_after_one_that_is_too_dear(plain_lake: PlainLake, dry_run: str) -> None:
    make(plain_lake, "db.dear", 12)
    make(plain_lake, "db.cheap", 6)
    cost = {name: row["estimated_cost"] for name, row in maintained(plain_lake, f"{COMPACT}, dry_run => true").items()}
    assert cost["dear"] > cost["cheap"] > 0
    limit = (cost["dear"] + cost["cheap"]) / 2
    rows = maintained(plain_lake, f"{COMPACT}, max_cost => {limit:.12f}, dry_run => {dry_run}")
    assert list(rows) == ["cheap", "dear"]
    assert (rows["cheap"]["action"], rows["dear"]["action"]) == ("maintain", "skip")
    assert "would exceed max_cost" in rows["dear"]["reason"] and rows["dear"]["outcome"] is None
    assert len(plain_lake.load("db.dear").snapshots()) == 12
    assert len(plain_lake.load("db.cheap").snapshots()) == (6 if dry_run == "true" else 7)


@pytest.mark.parametrize(
    ("arguments", "kept", "reason"),
    [
        ("max_bytes => 6000", ["few"], "would exceed max_bytes"),
        ("time_budget => '300ms'", ["many"], "would exceed time_budget"),
        ("max_tables => 1", ["many"], "max_tables 1 is reached"),
        ("min_score => 0.227", ["many"], "below min_score 0.227"),
        ("created_before => '2h'", [], ", created_before "),
        ("created_before => '10m'", ["many", "few"], ""),
    ],
)
def test_every_limit_holds_in_the_choice(plain_lake: PlainLake, arguments: str, kept: list[str], reason: str) -> None:
    make(plain_lake, "db.few", 6)
    make(plain_lake, "db.many", 12)
    now_ms = plain_lake.load("db.many").metadata.last_updated_ms + HOUR_MS
    rows = maintained(plain_lake, f"{COMPACT}, {arguments}, dry_run => true", now_ms=now_ms)
    assert [name for name, row in rows.items() if row["action"] == "maintain"] == kept
    assert all(reason in row["reason"] for row in rows.values() if row["action"] == "skip")


def test_the_order_gain_takes_the_most_files_for_a_dollar(plain_lake: PlainLake) -> None:
    for name, files in (("db.large", [(10 * MB)] * 40), ("db.small", [1000] * 20)):
        table = plain_lake.catalog.create_table(name, pa.schema([("id", pa.int64())]))
        fake_append(table, [((), size, 10) for size in files])
    steps = "steps => array('compact'), dry_run => true"
    assert list(maintained(plain_lake, steps)) == ["large", "small"]
    assert list(maintained(plain_lake, f"{steps}, order => 'gain'")) == ["small", "large"]


def test_other_entries_get_a_row_that_says_so(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.good", 6)
    make(plain_lake, "db.broken", 2)
    make(plain_lake, "db.wrong", 2, {"iceberg-compact.steps": "compact, polish"})
    plain_lake.add_view("seen")
    Path(plain_lake.load("db.broken").metadata_location.removeprefix("file://")).unlink()
    rows = maintained(plain_lake, "target => '1MB'")
    assert (rows["good"]["action"], rows["good"]["outcome"]) == ("maintain", "done")
    assert (rows["seen"]["action"], rows["seen"]["reason"]) == ("skip", "a view, not a table")
    assert rows["broken"]["action"] == "skip" and "cannot be loaded" in rows["broken"]["reason"]
    assert "names 'polish', which is not one of compact" in rows["wrong"]["reason"]


def test_a_table_that_vanishes_meanwhile_gets_a_row_that_says_so(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.a", 12)
    make(plain_lake, "db.b", 6)

    def drop(event: str, facts: Mapping[str, object]) -> None:
        if event == "maintain.table" and facts["table"] == "plain.db.a":
            plain_lake.catalog.drop_table("db.a")

    rows = maintained(plain_lake, COMPACT, observer=Observer(drop))
    assert rows["a"]["action"] == "skip" and "dropped or renamed meanwhile" in rows["a"]["reason"]
    assert rows["a"]["outcome"] is None and rows["b"]["outcome"] == "done"


def test_the_failure_of_one_table_is_its_row_and_max_failures_ends_the_run(plain_lake: PlainLake) -> None:
    for name, files in (("db.a", 12), ("db.b", 10), ("db.c", 8), ("db.d", 6)):
        make(plain_lake, name, files)
    for name in ("db.a", "db.b"):
        for task in plain_lake.load(name).scan().plan_files():
            Path(task.file.file_path.removeprefix("file://")).unlink()
    rows = maintained(plain_lake, COMPACT)
    assert [rows[name]["outcome"] for name in "abcd"] == ["failed", "failed", "done", "done"]
    assert "compact: " in rows["a"]["detail"] and "could not be rewritten" in rows["a"]["detail"]
    rows = maintained(plain_lake, f"{COMPACT}, max_failures => 1")
    assert [rows[name]["action"] for name in "abcd"] == ["maintain", "skip", "skip", "skip"]
    assert rows["c"]["reason"] == "1 tables failed before it: max_failures 1"


def test_a_table_that_has_grown_stays_within_its_share_of_the_budget(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 6)

    def grow(event: str, facts: Mapping[str, object]) -> None:
        if event == "maintain.table":
            batch = pa.table({"id": pa.array([7], pa.int64())})
            for _ in range(6):
                plain_lake.load("db.t").append(batch)

    rows = maintained(plain_lake, f"{COMPACT}, max_bytes => 6000", observer=Observer(grow))
    assert rows["t"]["outcome"] == "nothing to do"
    assert len(ids(plain_lake, "db.t")) == 12


def test_steps_come_from_the_properties_of_each_table(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.expires", 6, {"iceberg-compact.steps": "expire"})
    make(plain_lake, "db.compacts", 6, {"iceberg-compact.steps": "compact", "iceberg-compact.target": "1MB"})
    rows = maintained(plain_lake, "max_cost => 100")
    assert rows["compacts"]["outcome"] == "done" and rows["compacts"]["detail"].startswith("compact: ")
    assert (rows["expires"]["outcome"], rows["expires"]["estimated_cost"]) == ("nothing to do", 0)


def test_a_cancelled_run_says_which_tables_are_done(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.a", 12)
    make(plain_lake, "db.b", 6)
    observer: Observer

    def stop(event: str, facts: Mapping[str, object]) -> None:
        if event == "maintain.table" and facts["table"] == "plain.db.b":
            observer.cancel()

    observer = Observer(stop)
    with pytest.raises(RunCancelledError, match=r"Tables that are done: plain\.db\.a\.") as raised:
        maintained(plain_lake, COMPACT, observer=observer)
    assert [table.result is not None for table in raised.value.result.tables] == [True, False]  # type: ignore[attr-defined]
    assert len(plain_lake.load("db.b").snapshots()) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("''", "argument 'pattern': '' is empty"),
        ("'nothing_*'", "no table matches the pattern"),
        ("'*', max_cost => -1", "argument 'max_cost': -1 must be above 0"),
        ("'*', max_bytes => -1", "argument 'max_bytes'"),
        ("'*', time_budget => '-2h'", "argument 'time_budget'"),
        ("'*', min_score => 2", "must be at most 1"),
        ("'*', steps => array('compakt')", "steps names 'compakt', which is not one of .* Did you mean 'compact'"),
        ("'*', steps => array()", "steps is empty"),
        ("'*', order => 'luck'", "'luck' is not one of score, gain"),
    ],
)
def test_bad_input_changes_nothing(plain_lake: PlainLake, arguments: str, message: str) -> None:
    make(plain_lake, "db.t", 6)
    before = plain_lake.load("db.t").metadata_location
    with pytest.raises(IcebergCompactError, match=message):
        call(plain_lake, f"CALL maintain_tables({arguments})")
    assert plain_lake.load("db.t").metadata_location == before
