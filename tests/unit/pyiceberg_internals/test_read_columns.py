"""Reading a few columns of an Avro file gives what pyiceberg's full reader gives, and never less."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import (
    RemoveSnapshotsUpdate,
    SetPartitionStatisticsUpdate,
    update_table_metadata,
)

from iceberg_compact_sql.pyiceberg_internals.avro.generated_reader import rows_reader
from iceberg_compact_sql.pyiceberg_internals.avro.read_columns import read_columns
from tests.support.reclaim import append_ids, id_rows, new_catalog, new_table


@pytest.fixture(params=["gzip", "zstd", "null"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    table = new_table(new_catalog(tmp_path), **{"write.avro.compression-codec": request.param})
    with table.update_spec() as update:
        update.add_identity("name")
    append_ids(table, 1, 2, 3)
    append_ids(table, 4)
    table.delete("id == 2")
    table.overwrite(id_rows(9), "id == 3")
    return table


def content(path: str) -> bytes:
    return Path(path.removeprefix("file://")).read_bytes()


def test_the_same_values_as_pyicebergs_reader(table: Table) -> None:
    for snapshot in table.metadata.snapshots:
        manifests = snapshot.manifests(table.io)
        slim = list(read_columns(content(snapshot.manifest_list), (500, 501, 502, 517, 9999)))
        assert slim == [[m.manifest_path, m.manifest_length, m.partition_spec_id, m.content, None] for m in manifests]
        for manifest in manifests:
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            read = list(read_columns(content(manifest.manifest_path), (0, 134, 100, 104)))
            assert read == [
                [e.status, e.data_file.content, e.data_file.file_path, e.data_file.file_size_in_bytes] for e in entries
            ]


def test_a_file_cut_anywhere_is_an_error_or_ends_right_after_its_header(table: Table) -> None:
    whole = content(table.metadata.snapshots[-1].manifest_list)
    expected = list(read_columns(whole, (500,)))
    assert expected
    accepted = []
    for length in range(len(whole)):
        try:
            read = list(read_columns(whole[:length], (500,)))
        except Exception:
            continue
        accepted.append((length, read))
    # Cut between header and first block it is a whole file without rows; the snapshot's own counts tell on it.
    assert [read for _, read in accepted] == [[]]


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "record", "name": "a", "fields": [{"name": "b", "type": "a"}]},
        {"type": "record", "name": "a", "fields": [{"name": "b", "type": ["null", "a"]}]},
        {"type": "record", "name": "a", "fields": [{"name": "b", "type": {"type": "array", "items": "a"}}]},
        functools.reduce(lambda inner, _: {"type": "array", "items": inner}, range(60), "int"),
        "nothing",
        ["null", "odd"],
        {"type": "record", "fields": [{}]},
    ],
)
def test_a_schema_that_makes_no_sense_is_an_error(kind: Any) -> None:
    schema = json.dumps({"type": "record", "name": "x", "fields": [{"name": "y", "type": kind}]}).encode()
    with pytest.raises((ValueError, KeyError)):
        rows_reader(schema, (1,))


def test_types_are_known_by_their_names() -> None:
    pair = {"type": "record", "name": "pair", "fields": [{"name": "k", "type": "int"}, {"name": "v", "type": "bytes"}]}
    kinds: list[Any] = [{"type": "array", "items": pair}, ["null", "pair"], "pair", {"type": "map", "values": "pair"}]
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    schema = {"type": "record", "name": "x", "fields": [*fields, {"name": "last", "type": "long", "field-id": 1}]}
    one = b"\x02\x04ab"
    record = b"\x04" + one + one + b"\0" + b"\x02" + one + one + b"\x02\x02k" + one + b"\0" + b"\x54"
    read = rows_reader(json.dumps(schema).encode(), (1, 2))
    assert read(new_decoder(record + record), [(1, len(record)), (1, 2 * len(record))]) == [[42, None]] * 2
    with pytest.raises(ValueError, match="record count of a block does not match"):
        read(new_decoder(record + record), [(1, len(record) + 1)])
    with pytest.raises(ValueError, match="no branch 2"):
        read(new_decoder(record.replace(b"\0\x02", b"\0\x04", 1)), [(1, len(record))])


def test_a_changed_byte_in_the_frame_is_an_error(table: Table) -> None:
    whole = content(table.metadata.snapshots[-1].manifest_list)
    with pytest.raises(ValueError, match="not an Avro file"):
        list(read_columns(b"x" + whole[1:], (500,)))
    with pytest.raises(ValueError, match="sync marker"):
        list(read_columns(whole[:-1] + bytes([whole[-1] ^ 1]), (500,)))


def test_canary_pyicebergs_own_removal_of_snapshots(tmp_path: Path) -> None:
    """If this fails, pyiceberg has learned what our own update is for."""
    table = new_table(new_catalog(tmp_path))
    first, second, _ = (append_ids(table, i) for i in range(3))
    parts = PartitionStatisticsFile.model_validate(
        {"snapshot-id": second, "statistics-path": "file:///p", "file-size-in-bytes": 1}
    )
    change = SetPartitionStatisticsUpdate.model_validate({"partition-statistics": parts})
    removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [second]})
    after = update_table_metadata(table.metadata, (change, removal))
    assert after.partition_statistics == [parts]
    assert next(entry.snapshot_id for entry in after.snapshot_log) == first
    assert after.snapshots[1].parent_snapshot_id is None


def test_canary_pyiceberg_cuts_names_at_a_hash() -> None:
    """If this fails, its FileIO can be trusted with raw paths."""
    assert PyArrowFileIO.parse_location("s3://b/a#x/f") == ("s3", "b", "b/a")
