"""What our manifests hold: every field of every entry, in the types of the spec."""

from __future__ import annotations

import json
import math
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from iceberg_compact_sql.commit.model import NewDelete, Outcome, Replacement
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.pyiceberg_internals.manifest_entries import read_entries
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import (
    new_data_file,
    summarize_partitions,
    write_manifest_entries,
)
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete
from tests.support import oracle
from tests.support.handmade import (
    add_equality_deletes,
    add_position_deletes,
    append,
    data_paths,
    make_catalog,
    make_table,
)
from tests.support.replacing import live_files, planned, replacement


def full_entry(status: ManifestEntryStatus, content: DataFileContent, **fields: Any) -> ManifestEntry:
    file = DataFile.from_args(
        _table_format_version=3,
        **{
            "content": content,
            "file_path": "file:/x/a.parquet",
            "file_format": FileFormat.PARQUET,
            "partition": Record(),
            "record_count": 7,
            "file_size_in_bytes": 70,
            "column_sizes": {1: 10},
            "value_counts": {1: 7},
            "null_value_counts": {1: 0},
            "nan_value_counts": {1: 2},
            "lower_bounds": {1: b"\x01"},
            "upper_bounds": {1: b"\x09"},
            "key_metadata": b"key",
            "split_offsets": [4, 40],
            "equality_ids": [1, 2] if content == DataFileContent.EQUALITY_DELETES else None,
            "sort_order_id": 3,
            **fields,
        },
    )
    return ManifestEntry(status, 11, 5, 6, file)


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (DataFileContent.DATA, {}),
        (DataFileContent.EQUALITY_DELETES, {}),
        (DataFileContent.POSITION_DELETES, {"referenced_data_file": "file:/x/d.parquet"}),
        (
            DataFileContent.POSITION_DELETES,
            {"referenced_data_file": "file:/x/d.parquet", "content_offset": 4, "content_size_in_bytes": 40},
        ),
    ],
)
def test_every_field_survives(tmp_path: Path, content: DataFileContent, fields: dict[str, Any]) -> None:
    table = make_table(make_catalog(tmp_path))
    entry = full_entry(ManifestEntryStatus.EXISTING, content, **fields)
    kind = ManifestContent.DATA if content == DataFileContent.DATA else ManifestContent.DELETES
    path = f"{table.location()}/metadata/m.avro"
    written = write_manifest_entries(
        table.io.new_output(path), [entry], metadata=table.metadata, content=kind, spec_id=0, compression="gzip"
    )
    assert written.length == (tmp_path / "warehouse/db/t/metadata/m.avro").stat().st_size
    listed = written.listed(snapshot_id=99, sequence_number=8)
    (back,) = read_entries(listed, table.io)
    assert [_plain(value) for value in back.data_file._data] == [_plain(value) for value in entry.data_file._data]
    assert (back.status, back.snapshot_id, back.sequence_number, back.file_sequence_number) == (0, 11, 5, 6)
    assert (listed.min_sequence_number, listed.sequence_number, listed.existing_files_count) == (5, 8, 1)


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else value


def _avro_schema(table: Table, path: str) -> dict[str, Any]:
    with AvroFile[Any](table.io.new_input(path)) as reader:
        return {**reader.header.meta, "avro": json.loads(reader.header.meta["avro.schema"])}


def test_equality_ids_are_ints_and_the_content_is_named(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path))
    append(table, [{"id": i, "name": "a"} for i in range(4)])
    append(table, [{"id": i, "name": "b"} for i in range(4, 8)])
    first = [file for file in live_files(table) if file.sequence_number == 1]
    add_equality_deletes(table, [{"id": 2}], [1])
    add_position_deletes(table, {first[0].path: [0]})
    expected = oracle.rows(table)
    # Removing the first file leaves the position delete dangling; the equality delete still applies to the second.
    report = commit_replacements(table, [replacement(table, first)], state=planned(table))
    assert report.removed_delete_files == 1
    assert oracle.rows(table) == expected
    snapshot = table.current_snapshot()
    assert snapshot is not None
    deletes = [m for m in snapshot.manifests(table.io) if m.content == ManifestContent.DELETES]
    rewritten = [m for m in deletes if m.added_snapshot_id == snapshot.snapshot_id]
    assert rewritten
    for manifest in rewritten:
        meta = _avro_schema(table, manifest.manifest_path)
        assert meta["content"] == "deletes"
        assert meta["format-version"] == "2"
        assert meta["partition-spec-id"] == "0"
        assert json.loads(meta["schema"])["fields"][0]["id"] == 1
        fields = next(f for f in meta["avro"]["fields"] if f["name"] == "data_file")["type"]["fields"]
        by_name = {field["name"]: field for field in fields}
        assert by_name["equality_ids"]["type"][1]["items"] == "int"
        assert by_name["equality_ids"]["type"][1]["element-id"] == 136
        assert by_name["referenced_data_file"]["field-id"] == 143


def test_v1_manifests_have_no_sequence_numbers(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path), format_version=1)
    for turn in range(3):
        append(table, [{"id": turn, "name": "a"}])
    expected = oracle.rows(table)
    report = commit_replacements(table, [replacement(table, live_files(table)[:2])], state=planned(table))
    assert report.outcome is Outcome.COMMITTED
    assert oracle.rows(table) == expected
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [0, 1, 2]
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        names = [field["name"] for field in _avro_schema(table, manifest.manifest_path)["avro"]["fields"]]
        assert names == ["status", "snapshot_id", "data_file"]


def test_partition_bounds_of_hard_values() -> None:
    low, high = uuid.UUID(int=1), uuid.UUID(int=2**127 + 5)
    partition = StructType(
        NestedField(1000, "d", DoubleType()),
        NestedField(1001, "n", DecimalType(9, 2)),
        NestedField(1002, "u", UUIDType()),
        NestedField(1003, "b", BooleanType()),
        NestedField(1004, "s", StringType()),
    )
    values = [
        Record(0.0, Decimal("-1.50"), high, True, None),
        Record(-0.0, Decimal("2.00"), low, False, None),
        Record(math.nan, None, None, None, None),
    ]
    for order in (values, values[::-1]):
        double, number, identity, flag, nothing = summarize_partitions(partition, order)
        assert (double.contains_null, double.contains_nan) == (False, True)
        assert struct.unpack("<d", double.lower_bound or b"")[0].hex() == (-0.0).hex()
        assert struct.unpack("<d", double.upper_bound or b"")[0].hex() == (0.0).hex()
        assert (number.lower_bound, number.upper_bound) == ((-150).to_bytes(2, "big", signed=True), b"\x00\xc8")
        assert (identity.lower_bound, identity.upper_bound) == (low.bytes, high.bytes)
        assert (flag.lower_bound, flag.upper_bound, flag.contains_null) == (b"\x00", b"\x01", True)
        assert (nothing.lower_bound, nothing.upper_bound, nothing.contains_null) == (None, None, True)


def test_decimal_partition_values_get_the_scale_of_their_type(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", DecimalType(9, 2)))
    table = make_table(
        make_catalog(tmp_path), schema=schema, spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "n"))
    )
    file = new_data_file(table.metadata, spec_id=0, partition=(Decimal("1.5"),), file_path="file:/x")
    assert str(file.partition[0]) == "1.50"
    with pytest.raises(ValueError, match="partition values"):
        new_data_file(table.metadata, spec_id=0, partition=(), file_path="file:/x")


def replacements_by_partition(table: Table) -> list[Replacement]:
    """The files of each partition replaced by one."""
    groups: dict[Any, list[Any]] = {}
    for file in live_files(table):
        groups.setdefault(file.partition, []).append(file)
    return [replacement(table, files, key=key) for key, files in enumerate(groups.values())]


def test_decimal_partitions_of_all_38_digits_are_replaced(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "n", DecimalType(38, 10)))
    table = make_table(
        make_catalog(tmp_path), schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
    )
    numbers = [Decimal(f"{sign}{'9' * 28}.{'9' * 9}{last}") for sign in ("", "-") for last in (8, 9)]
    for turn in range(2):
        append(table, [{"id": turn * 10 + i, "n": number} for i, number in enumerate(numbers)])
    expected = oracle.rows(table)
    work = replacements_by_partition(table)
    report = commit_replacements(table, work, state=planned(table))
    assert (len(report.committed), report.conflicts) == (4, {})
    assert oracle.rows(table) == expected
    assert {file.partition for file in live_files(table)} == {(number,) for number in numbers}


def test_partition_fields_of_one_decimal_type(tmp_path: Path) -> None:
    """The type has a name in Avro: Java defines it once and refers to it, and it must not be defined again."""
    schema = Schema(NestedField(1, "n", DecimalType(9, 2)), NestedField(2, "m", DecimalType(9, 2)))
    fields = [PartitionField(i, 999 + i, IdentityTransform(), name) for i, name in ((1, "n"), (2, "m"))]
    table = make_table(make_catalog(tmp_path), schema=schema, spec=PartitionSpec(*fields))
    for _ in range(2):
        append(table, [{"n": Decimal("1.50"), "m": Decimal("2.25")}])
    work = replacements_by_partition(table)
    assert len(commit_replacements(table, work, state=planned(table)).committed) == 1
    head = table.metadata.current_snapshot()
    assert head is not None
    [manifest] = [m for m in head.manifests(table.io) if m.has_added_files()]
    as_written = _avro_schema(table, manifest.manifest_path)["avro"]
    partition = next(f for f in as_written["fields"][-1]["type"]["fields"] if f["name"] == "partition")["type"]
    kinds = [field["type"][1] for field in partition["fields"]]
    assert [kind["name"] for kind in kinds] == ["decimal_9_2", "decimal_9_2_2"]
    partition["fields"][1]["type"][1] = "decimal_9_2"
    as_java_writes = AvroSchemaConversion().avro_to_iceberg(as_written)
    assert as_java_writes.find_type("data_file.partition.m") == DecimalType(9, 2)


def test_double_partitions_keep_their_bits(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", DoubleType()))
    table = make_table(
        make_catalog(tmp_path),
        schema=schema,
        spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x")),
        properties={"write.avro.compression-codec": "null"},
    )
    for turn in range(2):
        append(table, [{"id": turn * 10 + i, "x": value} for i, value in enumerate((0.1, 1e300))])
    assert {file.partition for file in live_files(table)} == {(0.1,), (1e300,)}
    work = replacements_by_partition(table)
    assert len(commit_replacements(table, work, state=planned(table)).committed) == 2
    head = table.metadata.current_snapshot()
    assert head is not None
    written = b"".join(Path(oracle.plain(m.manifest_path)).read_bytes() for m in head.manifests(table.io))
    assert all(struct.pack("<d", value) in written for value in (0.1, 1e300))
    assert {file.partition for file in live_files(table)} == {(0.1,), (1e300,)}


def test_null_and_special_partitions_are_replaced(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    table = make_table(
        make_catalog(tmp_path), schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    )
    names = [None, "a/b", "%= ü", ""]
    for turn in range(2):
        append(table, [{"id": turn * 10 + i, "name": name} for i, name in enumerate(names)])
    expected = oracle.rows(table)
    work = replacements_by_partition(table)
    report = commit_replacements(table, work, state=planned(table))
    assert len(report.committed) == 4
    assert oracle.rows(table) == expected
    assert len(data_paths(table)) == 4
    for name in names[1:]:
        assert len(table.scan(f"name == '{name}'").to_arrow()) == 2
    assert len(table.scan("name is null").to_arrow()) == 2


def test_spec_whose_source_column_was_dropped(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()), NestedField(3, "day", DateType())
    )
    table = make_table(
        make_catalog(tmp_path),
        schema=schema,
        spec=PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day")),
        format_version=2,
    )
    stamp = pa.array([1_700_000_000_000_000], pa.timestamp("us"))
    for turn in range(3):
        append(table, pa.table({"id": pa.array([turn]), "at": stamp, "day": pa.array([3], pa.date32())}))
    with table.update_spec() as spec:
        spec.remove_field("at_day")
    with table.update_schema() as update:
        update.delete_column("at")
    expected = oracle.rows(table)
    files = live_files(table)
    report = commit_replacements(table, [replacement(table, files[:2])], state=planned(table))
    assert report.outcome is Outcome.COMMITTED
    assert oracle.rows(table) == expected
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        names = [field["name"] for field in json.loads(_avro_schema(table, manifest.manifest_path)["schema"])["fields"]]
        assert "at" in names


def test_files_of_several_specs_go_into_manifests_of_their_own(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path))
    append(table, [{"id": 1, "name": "a"}])
    append(table, [{"id": 2, "name": "a"}])
    with table.update_spec() as spec:
        spec.add_identity("name")
    append(table, [{"id": 3, "name": "a"}])
    append(table, [{"id": 4, "name": "a"}])
    expected = oracle.rows(table)
    old = [file for file in live_files(table) if file.spec_id == 0]
    new = [file for file in live_files(table) if file.spec_id != 0]
    work = [replacement(table, old, key=0), replacement(table, new, key=1)]
    report = commit_replacements(table, work, state=planned(table))
    assert report.committed == (0, 1)
    assert oracle.rows(table) == expected
    assert sorted((f.spec_id, f.partition) for f in live_files(table)) == [(0, ()), (1, ("a",))]
    assert len(table.scan("name == 'a'").to_arrow()) == 4


def test_untouched_manifests_are_reused_and_tombstones_dropped(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path))
    for turn in range(4):
        append(table, [{"id": turn, "name": "a"}])
    before = {m.manifest_path for m in table.current_snapshot().manifests(table.io)}  # type: ignore[union-attr]
    files = sorted(live_files(table), key=lambda f: f.sequence_number)
    commit_replacements(table, [replacement(table, files[:2])], state=planned(table))
    middle = table.current_snapshot()
    assert middle is not None
    manifests = middle.manifests(table.io)
    assert len(before & {m.manifest_path for m in manifests}) == 2
    # Two manifests of tombstones, as Java keeps them for the snapshot that removed the files; gone in the next.
    assert sum(m.deleted_files_count or 0 for m in manifests) == 2
    files = sorted(live_files(table), key=lambda f: f.path)
    commit_replacements(table, [replacement(table, files)], state=planned(table))
    last = table.current_snapshot()
    assert last is not None
    assert sum(m.deleted_files_count or 0 for m in last.manifests(table.io)) == 3
    assert [row["id"] for row in oracle.rows(table)] == [0, 1, 2, 3]


def test_many_small_manifests_are_merged_by_the_tables_rules(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path), properties={"commit.manifest.min-count-to-merge": "5"})
    for turn in range(9):
        append(table, [{"id": turn, "name": "a"}])
    files = sorted(live_files(table), key=lambda f: f.sequence_number)
    sequence_numbers = {file.path: (file.sequence_number, file.snapshot_id) for file in files}
    add_position_deletes(table, {files[8].path: [0]})
    expected = oracle.rows(table)
    report = commit_replacements(table, [replacement(table, files[:2])], state=planned(table))
    assert report.outcome is Outcome.COMMITTED
    assert oracle.rows(table) == expected
    snapshot = table.current_snapshot()
    assert snapshot is not None
    live = [m for m in snapshot.manifests(table.io) if m.has_added_files() or m.has_existing_files()]
    assert len(live) == 3  # the new file, the seven others joined, the delete
    for file in live_files(table):
        if file.path in sequence_numbers:
            assert (file.sequence_number, file.snapshot_id) == sequence_numbers[file.path]


def test_a_delete_file_can_be_added_with_an_explicit_sequence_number(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path))
    path = append(table, [{"id": i, "name": "a"} for i in range(6)])[0]
    old = [add_position_deletes(table, {path: [turn]})[0] for turn in (1, 2)]
    expected = oracle.rows(table)
    merged = add_position_deletes(table, {path: [1, 2]})[0]
    table.manage_snapshots().set_current_snapshot(snapshot_id=table.metadata.snapshots[-2].snapshot_id).commit()
    entries = {e["data_file"]["file_path"]: e for e in oracle.entries(table)}
    removed = tuple(
        LiveDelete(p, DeleteKind.POSITION, "PARQUET", 0, (), entries[p]["seq"], 1, 1, referenced_path=path) for p in old
    )
    size = (tmp_path / "warehouse/db/t/data" / merged.rsplit("/", 1)[1]).stat().st_size
    new = NewDelete(merged, size, 2, 0, (), max(d.sequence_number for d in removed), referenced_path=path)
    work = Replacement(0, (), (), None, removed_deletes=removed, added_deletes=(new,))
    report = commit_replacements(table, [work], state=planned(table), remove_dangling_deletes=False)
    assert (report.outcome, report.removed_delete_files) == (Outcome.COMMITTED, 2)
    assert oracle.rows(table) == expected
    (delete,) = [e for e in oracle.entries(table) if e["data_file"]["content"] == 1]
    assert delete["seq"] == new.sequence_number
    assert delete["data_file"]["referenced_data_file"] == path
    summary = table.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert (summary["added-delete-files"], summary["removed-delete-files"]) == ("1", "2")
    # Asked again, the deletes are gone: a conflict, and no second copy.
    assert commit_replacements(table, [work], state=planned(table)).conflicts[0].endswith("was removed meanwhile")
