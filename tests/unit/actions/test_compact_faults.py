"""A whole compaction, stopped at every point that it passes: rows stay the same, and a new run finishes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.actions import compact as compaction
from iceberg_compact_sql.errors import CommitConflictError, IcebergCompactError
from tests.support.calls import call
from tests.support.handmade import (
    BY_NAME,
    SIMPLE_SCHEMA,
    add_equality_deletes,
    add_position_deletes,
    append,
    data_paths,
    make_table,
)
from tests.support.oracle import assert_readable, entries, rows
from tests.support.plain import PlainLake, open_plain

COMPACT = "CALL compact_table('db.t', min_input_files => 2)"


def fragmented(lake: PlainLake) -> Table:
    table = make_table(lake.catalog, "db.t", SIMPLE_SCHEMA)
    for number in range(4):
        paths = append(table, [{"id": number * 10 + i, "name": f"n{i}"} for i in range(5)])
    add_position_deletes(table, {paths[0]: [0, 3]})
    add_equality_deletes(table, [{"id": 11}], [1])
    return table


def stopping_at(number: int, error: Callable[[], BaseException], seen: list[str]) -> events.Listener:
    def listener(point: str, facts: Mapping[str, object]) -> None:
        seen.append(point)
        if len(seen) == number:
            raise error()

    return listener


def files_on_disk(lake: PlainLake) -> set[str]:
    return {str(path) for path in lake.folder.rglob("*.parquet")}


def live_on_disk(table: Table, lake: PlainLake) -> set[str]:
    metadata = lake.load("db.t").metadata
    return {
        entry["data_file"]["file_path"].removeprefix("file://")
        for snapshot in metadata.snapshots
        for entry in entries(table, snapshot_id=snapshot.snapshot_id)
    }


def points_of_a_run(tmp_path: Path) -> list[str]:
    seen: list[str] = []
    with open_plain(tmp_path / "probe") as lake:
        fragmented(lake)
        with events.listening(lambda point, facts: seen.append(point)):
            call(lake, COMPACT)
    return seen


@pytest.mark.parametrize(
    "error", [OSError("disk full"), KeyboardInterrupt(), MemoryError()], ids=lambda e: type(e).__name__
)
def test_stopped_anywhere_nothing_is_lost_and_a_new_run_finishes(
    plain_lake: PlainLake, tmp_path: Path, error: BaseException
) -> None:
    points = points_of_a_run(tmp_path)
    assert {"plan.done", "commit.validate", "commit.send"} <= set(points)
    table = fragmented(plain_lake)
    before = rows(table)
    for number in range(1, len(points) + 1):
        seen: list[str] = []
        try:
            with events.listening(stopping_at(number, lambda: error, seen)):
                call(plain_lake, COMPACT)
        except (IcebergCompactError, type(error)):
            pass
        assert rows(table) == before, points[number - 1]
        assert_readable(table)
        # What no snapshot names was cleaned, or the run was stopped while it cleaned.
        left = files_on_disk(plain_lake) - live_on_disk(table, plain_lake)
        assert not left or "clean" in " ".join(seen), (points[number - 1], left)
        if len([e for e in entries(table) if e["data_file"]["content"] == 0]) == 1:
            append(table, [{"id": 1000 + number, "name": "more"}])
            before = rows(table)
    call(plain_lake, COMPACT)
    assert rows(table) == before
    assert len(entries(table)) == 1


def test_a_corrupt_input_fails_its_group_only(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA, BY_NAME)
    for number in range(3):
        append(table, [{"id": number, "name": "good"}, {"id": number, "name": "bad"}])
    victim = next(e["data_file"]["file_path"] for e in entries(table) if e["data_file"]["partition"]["name"] == "bad")
    path = Path(victim.removeprefix("file://"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    before = files_on_disk(plain_lake)
    with pytest.raises(IcebergCompactError) as raised:
        call(plain_lake, COMPACT)
    assert path.name in str(raised.value) and "Nothing was committed" in str(raised.value)
    assert files_on_disk(plain_lake) == before
    [done] = call(plain_lake, "CALL compact_table('db.t', min_input_files => 2, partial_progress => true)")
    assert (done["rewritten_data_files_count"], done["failed_data_files_count"], done["groups_count"]) == (3, 3, 1)
    path.write_bytes(whole)
    assert Counter(row["name"] for row in rows(table)) == {"good": 3, "bad": 3}
    assert_readable(table)


def test_two_compactions_at_once_lose_and_double_nothing(plain_lake: PlainLake) -> None:
    table = fragmented(plain_lake)
    before = rows(table)
    inner: list[Any] = []

    def listener(point: str, facts: Mapping[str, object]) -> None:
        if point == "commit.validate" and not inner:
            inner.append(None)
            inner[0] = call(plain_lake, COMPACT)[0]

    with events.listening(listener):
        [outer] = call(plain_lake, COMPACT)
    assert inner[0]["snapshot_id"] is not None and outer["snapshot_id"] is None
    assert rows(table) == before and len(entries(table)) == 1
    assert files_on_disk(plain_lake) == live_on_disk(table, plain_lake)


def test_a_claim_keeps_others_out_and_is_given_back(plain_lake: PlainLake) -> None:
    table = fragmented(plain_lake)
    before = rows(table)
    refused: list[str] = []

    def listener(point: str, facts: Mapping[str, object]) -> None:
        if point == "commit.validate" and not refused:
            refused.append("")
            with pytest.raises(IcebergCompactError) as raised:
                call(plain_lake, "CALL compact_table('db.t', min_input_files => 2, claim => true)")
            refused[0] = str(raised.value)

    with events.listening(listener):
        call(plain_lake, "CALL compact_table('db.t', min_input_files => 2, claim => true)")
    assert "is claimed by" in refused[0]
    assert "iceberg-compact.claim" not in plain_lake.load("db.t").properties
    assert rows(table) == before


def test_partial_progress_keeps_to_its_commits(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA, BY_NAME)
    for number in range(2):
        append(table, [{"id": number, "name": f"n{i}"} for i in range(5)])
    before = rows(table)
    [done] = call(
        plain_lake, "CALL compact_table('db.t', min_input_files => 2, partial_progress => true, max_commits => 2)"
    )
    assert (done["groups_count"], done["commits_count"]) == (5, 2)
    assert rows(table) == before


def test_files_of_two_specs_that_meet_in_a_partition_settle_at_once(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA)
    for number in range(3):
        append(table, [{"id": number * 10 + i, "name": f"n{i}"} for i in range(4)])
    with table.update_spec() as update:
        update.add_identity("name")
    for number in range(3, 5):
        append(table, [{"id": number * 10 + i, "name": f"n{i}"} for i in range(4)])
    before = rows(table)
    [first] = call(plain_lake, COMPACT)
    assert first["rewritten_data_files_count"] == 3 + 8
    assert {e["spec_id"] for e in entries(table)} == {1}
    assert call(plain_lake, COMPACT)[0]["snapshot_id"] is None
    assert rows(table) == before
    append(table, [{"id": 99, "name": "n0"}])
    assert call(plain_lake, COMPACT)[0]["rewritten_data_files_count"] == 3
    assert call(plain_lake, COMPACT)[0]["snapshot_id"] is None


def test_a_delete_of_one_file_stays_while_its_file_lives_whatever_its_partition_says(plain_lake: PlainLake) -> None:
    """Readers match such a delete by path alone, so a writer's wrong partition must not make it look idle."""
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA, BY_NAME)
    append(table, [{"id": 9, "name": "b"}, {"id": 10, "name": "b"}])
    for number in range(3):
        append(table, [{"id": number, "name": "a"}])
    other = next(e["data_file"]["file_path"] for e in entries(table) if e["data_file"]["partition"]["name"] == "b")
    [wrong] = add_position_deletes(table, {other: [0]}, partition=["a"])
    [done] = call(plain_lake, "CALL compact_table('db.t', min_input_files => 2, where => \"name = 'a'\")")
    assert (done["rewritten_data_files_count"], done["removed_delete_files_count"]) == (3, 0)
    assert wrong in {e["data_file"]["file_path"] for e in entries(table)}


@pytest.mark.parametrize("order", [("file:///", "file:/"), ("file:/", "file:///")])
def test_of_two_spellings_in_a_delete_file_only_the_exact_one_applies(
    plain_lake: PlainLake, order: tuple[str, str]
) -> None:
    """The bounds of its paths are in the order of the texts, which is not the order of the files."""
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA)
    paths = sorted(append(table, [{"id": n, "name": "a"}, {"id": n + 10, "name": "b"}])[0] for n in range(4))
    plain = [path.removeprefix("file://") for path in paths]
    spelled = [order[0] + plain[-1].lstrip("/"), order[1] + plain[0].lstrip("/")]
    add_position_deletes(table, {path: [0] for path in spelled}, scoped=False)
    before = rows(table)
    assert len(before) == 8 - len(set(spelled) & set(paths)) == 7
    [done] = call(plain_lake, "CALL compact_table('db.t', min_input_files => 2)")
    assert (done["rows_count"], done["removed_delete_files_count"]) == (7, 1)
    assert rows(table) == before


def test_a_group_that_never_gets_through_is_told_and_leaves_nothing_behind(plain_lake: PlainLake) -> None:
    """A writer that deletes rows of the inputs while they are rewritten wins each time."""
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA)
    paths = [append(table, [{"id": n * 10 + i, "name": "a"} for i in range(9)])[0] for n in range(3)]
    positions = iter(range(9))

    def interfere(point: str, facts: Mapping[str, object]) -> None:
        if point == "rewrite.start":
            add_position_deletes(plain_lake.load("db.t"), {paths[0]: [next(positions)]})

    with events.listening(interfere), pytest.raises(IcebergCompactError) as raised:
        call(plain_lake, COMPACT)
    assert "met concurrent changes 5 times" in str(raised.value)
    assert "Nothing was committed" in str(raised.value)
    before = rows(table)
    assert len(before) == 27 - 5
    assert files_on_disk(plain_lake) == live_on_disk(table, plain_lake)
    assert call(plain_lake, COMPACT)[0]["rows_count"] == len(before)
    assert rows(table) == before


def test_a_filter_that_lost_its_column_meanwhile_ends_the_run_in_words(plain_lake: PlainLake) -> None:
    """The group in conflict would have to be planned again by a column that is no longer there."""
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA, BY_NAME)
    for number in range(2):
        append(table, [{"id": number * 10 + i, "name": f"n{i}"} for i in range(4)])
    expected: list[object] = []

    def interfere(point: str, facts: Mapping[str, object]) -> None:
        if point == "commit.validate" and not expected:
            with table.refresh().update_schema() as update:
                update.rename_column("id", "number")
            add_position_deletes(table, {data_paths(table)[0]: [0]})
            expected.extend(rows(table))

    with events.listening(interfere), pytest.raises(CommitConflictError) as raised:
        call(plain_lake, f"{COMPACT[:-1]}, where => 'id >= 0', partial_progress => true, max_commits => 2)")
    assert "cannot be planned again: " in str(raised.value) and "'id'" in str(raised.value)
    assert "in 2 commit(s) are in the table" in str(raised.value)
    assert rows(table) == expected
    assert files_on_disk(plain_lake) == live_on_disk(table, plain_lake)


@pytest.mark.parametrize(("spent_s", "groups"), [(0.0, 3), (3500.0, 1)])
def test_a_time_budget_starts_no_group_that_would_not_finish(
    plain_lake: PlainLake, monkeypatch: pytest.MonkeyPatch, spent_s: float, groups: int
) -> None:
    """The clock is moved on by the first group's work: the measured pace decides about the next one."""
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA, BY_NAME)
    for number in range(3):
        append(table, [{"id": number * 10 + i, "name": f"n{i}"} for i in range(3)])
    before = rows(table)
    now = [time.monotonic()]
    monkeypatch.setattr(compaction, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def work(point: str, facts: Mapping[str, object]) -> None:
        if point == "rewrite.result":
            now[0] += spent_s

    with events.listening(work):
        [done] = call(plain_lake, f"{COMPACT[:-1]}, time_budget => '1h')")
    assert (done["groups_count"], done["failed_data_files_count"]) == (groups, 0)
    assert rows(table) == before
    assert_readable(table)
    assert files_on_disk(plain_lake) == live_on_disk(table, plain_lake)
    assert call(plain_lake, COMPACT)[0]["groups_count"] == 3 - groups
    assert rows(table) == before
