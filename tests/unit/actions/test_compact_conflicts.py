"""A conflict under a budget: each group that the plan accepted ends as committed, failed with a reason, or an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import RewriteFailedError
from tests.support.calls import call
from tests.support.handmade import BY_NAME, SIMPLE_SCHEMA, add_position_deletes, append, data_paths, make_table
from tests.support.oracle import assert_readable, entries, rows
from tests.support.plain import PlainLake

BUDGETS = {
    "max_bytes": "max_bytes => {bytes}",
    "max_files": "max_files => 4",
    "max_cost": "max_cost => 0.01",
    "min_score": "min_score => 0.05",
    "idle": "idle => '1h'",
    "time_budget": "time_budget => '1h'",
}


def two_partitions(lake: PlainLake) -> Table:
    table = make_table(lake.catalog, "db.t", SIMPLE_SCHEMA, BY_NAME)
    for number in range(4):
        append(table, [{"id": number * 10 + i, "name": name} for name in ("a", "b") for i in range(5)])
    return table


def paths_of(table: Table, name: str) -> list[str]:
    found = [e["data_file"] for e in entries(table) if e["data_file"]["partition"]["name"] == name]
    return sorted(file["file_path"] for file in found if file["content"] == 0)


def once_at(point: str, act: Callable[[], None]) -> events.Listener:
    done: list[str] = []

    def listener(event: str, facts: Mapping[str, object]) -> None:
        if event == point and not done:
            done.append(event)
            act()

    return listener


def compact_call(table: Table, budget: str, more: str = "") -> str:
    size = sum(e["data_file"]["file_size_in_bytes"] for e in entries(table))
    argument = BUDGETS[budget].format(bytes=size * 6 // 10)
    return f"CALL compact_table('db.t', min_input_files => 2, {argument}{more})"


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_group_in_conflict_is_rewritten_again_whatever_the_budget_says_by_then(
    plain_lake: PlainLake, budget: str
) -> None:
    """The other writer appends, so that the partition is fresh and large, and deletes a row of every input."""
    table = two_partitions(plain_lake)
    # Two hours later, so that `idle` accepts the partitions; the change in between makes them fresh again.
    later_ms = max(s.timestamp_ms for s in table.metadata.snapshots) + 7_200_000

    def interfere() -> None:
        current = plain_lake.load("db.t")
        for path in data_paths(current):
            add_position_deletes(current, {path: [0]})
        append(current, [{"id": 900 + i, "name": name} for name in ("a", "b") for i in range(50)])

    with events.listening(once_at("commit.validate", interfere)):
        [done] = call(plain_lake, compact_call(table, budget), now_ms=later_ms)
    accepted = 4 if budget in ("max_bytes", "max_files") else 8
    assert (done["rewritten_data_files_count"], done["failed_data_files_count"]) == (accepted, 0)
    assert len(rows(table)) == 40 - 8 + 100
    assert_readable(table)


@pytest.mark.parametrize("budget", ["max_bytes", "max_files"])
def test_files_that_another_compaction_took_count_as_failed(
    plain_lake: PlainLake, budget: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = two_partitions(plain_lake)
    before = rows(table)
    sql = compact_call(table, budget)
    with (
        caplog.at_level(logging.WARNING, "iceberg_compact_sql"),
        events.listening(once_at("commit.validate", lambda: call_other(plain_lake))),
    ):
        [done] = call(plain_lake, sql)
    assert (done["rewritten_data_files_count"], done["failed_data_files_count"]) == (0, 4)
    assert done["snapshot_id"] is None
    assert "other commits have removed all its files" in caplog.text
    assert rows(table) == before
    assert_readable(table)


def call_other(lake: PlainLake) -> None:
    call(lake, "CALL compact_table('db.t', min_input_files => 2)")


def test_a_group_of_which_too_little_is_left_counts_as_failed(
    plain_lake: PlainLake, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two files of a group another writer removes one: there is nothing left to merge."""
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA, BY_NAME)
    append(table, [{"id": 1, "name": "a"}])
    append(table, [{"id": 2, "name": "a"}])

    def interfere() -> None:
        plain_lake.load("db.t").delete("id = 1")

    with (
        caplog.at_level(logging.WARNING, "iceberg_compact_sql"),
        events.listening(once_at("commit.validate", interfere)),
    ):
        [done] = call(plain_lake, "CALL compact_table('db.t', min_input_files => 2, max_bytes => '1GB')")
    assert (done["rewritten_data_files_count"], done["failed_data_files_count"]) == (0, 1)
    assert "left alone after a concurrent change: 1 file" in caplog.text
    assert [row["id"] for row in rows(table)] == [2]


def test_only_the_group_in_conflict_is_done_again_with_partial_progress(plain_lake: PlainLake) -> None:
    table = two_partitions(plain_lake)

    def interfere() -> None:
        current = plain_lake.load("db.t")
        add_position_deletes(current, {paths_of(current, "a")[0]: [0], paths_of(current, "b")[0]: [0]})

    sql = compact_call(table, "max_bytes", ", partial_progress => true, max_commits => 2")
    with events.listening(once_at("commit.validate", interfere)):
        [done] = call(plain_lake, sql)
    assert (done["rewritten_data_files_count"], done["failed_data_files_count"]) == (4, 0)
    assert len(rows(table)) == 38


@pytest.mark.parametrize("partial", [False, True])
def test_a_failed_run_recommends_partial_progress_only_when_it_was_off(plain_lake: PlainLake, partial: bool) -> None:
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA)
    for number in range(3):
        append(table, [{"id": number, "name": "n"}])
    Path(data_paths(table)[0].removeprefix("file://")).write_bytes(b"not a Parquet file")
    with pytest.raises(RewriteFailedError, match="could not be rewritten") as raised:
        call(
            plain_lake, f"CALL compact_table('db.t', min_input_files => 2, partial_progress => {str(partial).lower()})"
        )
    assert ("With partial_progress" in str(raised.value)) is not partial
    assert "Nothing was committed" in str(raised.value)
