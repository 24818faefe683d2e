"""The sequence number of outputs: deletes that arrive while files are rewritten still find their rows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import TruncateTransform

from iceberg_compact_sql import events
from tests.support.calls import call
from tests.support.handmade import BY_NAME, SIMPLE_SCHEMA, add_equality_deletes, append, make_table
from tests.support.oracle import entries, rows
from tests.support.plain import PlainLake


def last_number(table: Table) -> int:
    return table.refresh().metadata.next_sequence_number() - 1


@pytest.mark.parametrize("keep", [True, False])
def test_a_key_deleted_meanwhile_stays_deleted(plain_lake: PlainLake, keep: bool) -> None:
    """With the starting number the work is used as it is; without it the group is done again on the new head."""
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA)
    for number in range(4):
        append(table, [{"id": number, "name": "old"}])
    planned = last_number(table)
    written: list[int] = []

    def listener(point: str, facts: Mapping[str, object]) -> None:
        if point == "rewrite.start":
            written.append(1)
        if point == "commit.validate" and len(written) == 1 and last_number(table) == planned:
            add_equality_deletes(table, [{"id": 2}], [1])
            append(table, [{"id": 2, "name": "new"}])

    with events.listening(listener):
        [done] = call(
            plain_lake,
            f"CALL compact_table('db.t', min_input_files => 2, use_starting_sequence_number => {str(keep).lower()})",
        )
    assert done["commits_count"] == 1
    assert [(row["id"], row["name"]) for row in rows(table)] == [(0, "old"), (1, "old"), (2, "new"), (3, "old")]
    data = sorted(entry["seq"] for entry in entries(table) if entry["data_file"]["content"] == 0)
    if keep:
        # The output is as old as its inputs were, so that the delete of sequence number planned + 1 applies to it.
        assert (data, len(written)) == ([planned, planned + 2], 1)
    else:
        assert min(data) > planned + 1 and len(written) == 2


def test_outputs_take_the_number_of_the_snapshot_that_was_planned_on(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA)
    for number in range(4):
        append(table, [{"id": number, "name": "n"}])
    planned = last_number(table)
    call(plain_lake, "CALL compact_table('db.t', min_input_files => 2)")
    assert [entry["seq"] for entry in entries(table)] == [planned]
    append(table, [{"id": 9, "name": "n"}])
    call(plain_lake, "CALL compact_table('db.t', min_input_files => 2, use_starting_sequence_number => false)")
    assert [entry["seq"] for entry in entries(table)] == [last_number(table)]


@pytest.mark.parametrize(("key", "spec_id", "partition"), [(11, 0, ("k",)), (1, 1, (0,))])
def test_rows_on_their_way_to_another_spec_keep_the_deletes_of_their_own(
    plain_lake: PlainLake, key: int, spec_id: int, partition: tuple[object, ...]
) -> None:
    """A key deleted meanwhile where the rows were must reach them, one deleted where they go to must not."""
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA, BY_NAME)
    for number in range(3):
        append(table, [{"id": 10 * number + 1, "name": "k"}])
    with table.update_spec() as update:
        update.remove_field("name")
        update.add_field("id", TruncateTransform(10), "ten")
    append(table, [{"id": 1, "name": "new"}])
    expected: list[object] = []

    def listener(point: str, facts: Mapping[str, object]) -> None:
        if point == "commit.send" and not expected:
            add_equality_deletes(table, [{"id": key}], [1], partition=partition, spec_id=spec_id)
            expected.extend(rows(table))

    with events.listening(listener):
        [done] = call(plain_lake, "CALL compact_table('db.t', rewrite_all => true)")
    assert len(expected) == 3 and rows(table) == expected
    assert done["commits_count"] > 0
