"""Writes manifests with all fields that were read, in the types of the spec and of Java."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic_core import to_json
from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.conversions import to_bytes
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StructType,
    UUIDType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.format_versions import require_writable, rules_of
from iceberg_compact_sql.parquet.uuid_order import uuid_orders_agree
from iceberg_compact_sql.pyiceberg_internals.avro.map_writer import with_fast_maps
from iceberg_compact_sql.units import EXACT_DECIMALS

# pyiceberg's schemas have list<long>. The spec and Java have list<int>, and Java fails on list<long>.
_EQUALITY_IDS = NestedField(
    135, "equality_ids", ListType(element_id=136, element_type=IntegerType(), element_required=True), required=False
)
_REFERENCED_DATA_FILE = 143
# Fields of the v3 layout that are in a v2 manifest only if an entry has a value for them.
_OPTIONAL_POSITIONS = {
    field.field_id: position
    for position, field in enumerate(DATA_FILE_TYPE[3].fields)
    if field.field_id in (142, _REFERENCED_DATA_FILE, 144, 145)
}
_BLOCK_ENTRIES = 500


@dataclass(frozen=True, slots=True)
class WrittenManifest:
    """A manifest on storage that no manifest list names yet."""

    path: str
    length: int
    content: ManifestContent
    spec_id: int
    files: tuple[int, int, int]  # existing, added, deleted: in the order of the status codes
    rows: tuple[int, int, int]
    min_sequence_number: int | None
    inherits_sequence_number: bool
    partitions: tuple[PartitionFieldSummary, ...] | None

    def listed(self, snapshot_id: int, sequence_number: int) -> ManifestFile:
        """Return the entry for the manifest list of the snapshot that adds this manifest."""
        lowest = self.min_sequence_number
        if lowest is None or (self.inherits_sequence_number and sequence_number < lowest):
            lowest = sequence_number
        return ManifestFile.from_args(
            manifest_path=self.path,
            manifest_length=self.length,
            partition_spec_id=self.spec_id,
            content=self.content,
            sequence_number=sequence_number,
            min_sequence_number=lowest,
            added_snapshot_id=snapshot_id,
            existing_files_count=self.files[0],
            added_files_count=self.files[1],
            deleted_files_count=self.files[2],
            existing_rows_count=self.rows[0],
            added_rows_count=self.rows[1],
            deleted_rows_count=self.rows[2],
            partitions=None if self.partitions is None else list(self.partitions),
            key_metadata=None,
        )


def spec_schema(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """Return the newest schema with the most source columns of a spec: the current schema may have dropped them."""
    needed = {field.source_id for field in spec.fields}
    newest_first = [metadata.schema(), *sorted(metadata.schemas, key=lambda schema: -schema.schema_id)]
    return max(newest_first, key=lambda schema: len(needed & set(schema.field_ids)))


def partition_struct(metadata: TableMetadata, spec: PartitionSpec) -> StructType:
    """Return the partition type of a spec; all fields are optional, as in Java and for void transforms."""
    newest_first = [metadata.schema(), *sorted(metadata.schemas, key=lambda schema: -schema.schema_id)]
    fields = []
    for field in spec.fields:
        source = next((s.find_field(field.source_id) for s in newest_first if field.source_id in s.field_ids), None)
        if source is None:
            raise UnsupportedError(
                f"partition field '{field.name}' of spec {spec.spec_id} has a source column that is in no schema of "
                "the table",
                hint="Rewrite the files of that spec with the engine that wrote them first.",
            )
        fields.append(
            NestedField(field.field_id, field.name, field.transform.result_type(source.field_type), required=False)
        )
    return StructType(*fields)


def partition_value(field_type: PrimitiveType, value: Any) -> Any:
    """Convert a partition value for the Avro writer: days, microseconds, decimals with the scale of the type."""
    if isinstance(value, Decimal) and isinstance(field_type, DecimalType):
        return value.quantize(Decimal((0, (1,), -field_type.scale)), context=EXACT_DECIMALS)
    return stored_time(value)


def stored_time(value: Any) -> Any:
    """Return a date, time or timestamp as the number that Iceberg stores; any other value unchanged."""
    if isinstance(value, dt.datetime):
        return datetime_to_micros(value)
    if isinstance(value, dt.date):
        return date_to_days(value)
    if isinstance(value, dt.time):
        return time_to_micros(value)
    return value


def write_manifest_entries(
    output: OutputFile,
    entries: Sequence[ManifestEntry],
    *,
    metadata: TableMetadata,
    content: ManifestContent,
    spec_id: int,
    compression: str,
) -> WrittenManifest:
    """Write one manifest of a spec and content; entries keep their statuses and sequence numbers.

    Entries are records in the v3 layout (`read_entries`, `new_data_file`). A v1 table gets v1 manifests.
    """
    version = metadata.format_version
    require_writable(version)
    spec = metadata.specs()[spec_id]
    partition = partition_struct(metadata, spec)
    with AvroOutputFile[ManifestEntry](
        output_file=output,
        file_schema=_file_schema(version, content, partition, entries),
        record_schema=_record_schema(partition),
        schema_name="manifest_entry",
        metadata=_file_metadata(metadata, spec, content, compression),
    ) as writer:
        writer.writer = with_fast_maps(writer.writer)
        for start in range(0, len(entries), _BLOCK_ENTRIES):
            writer.write_block(list(entries[start : start + _BLOCK_ENTRIES]))
        length = writer.tell()
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    numbers = [entry.sequence_number for entry in live if entry.sequence_number is not None]
    files, rows = [0, 0, 0], [0, 0, 0]
    for entry in entries:
        files[entry.status.value] += 1
        rows[entry.status.value] += entry.data_file.record_count
    return WrittenManifest(
        path=output.location,
        length=length,
        content=content,
        spec_id=spec_id,
        files=(files[0], files[1], files[2]),
        rows=(rows[0], rows[1], rows[2]),
        min_sequence_number=min(numbers, default=None),
        inherits_sequence_number=any(entry.sequence_number is None for entry in live),
        partitions=_usable_summaries(partition, (entry.data_file.partition for entry in entries)),
    )


def new_data_file(metadata: TableMetadata, *, spec_id: int, partition: Sequence[Any], **fields: Any) -> DataFile:
    """Return a data or delete file in the v3 layout, with partition values for the Avro writer."""
    types = [field.field_type for field in partition_struct(metadata, metadata.specs()[spec_id]).fields]
    if len(types) != len(partition):
        raise ValueError(f"spec {spec_id} has {len(types)} fields but the file has {len(partition)} partition values")
    values = [partition_value(kind, value) for kind, value in zip(types, partition, strict=True)]  # type: ignore[arg-type]
    file = DataFile.from_args(_table_format_version=3, partition=Record(*values), **fields)
    file.spec_id = spec_id
    return file


def summarize_partitions(partition: StructType, values: Iterable[Record]) -> list[PartitionFieldSummary]:
    """Return bounds, nulls and NaNs of each partition field, for the manifest list.

    -0.0 sorts below 0.0 and NaN is not a bound, as the spec says; uuid and binary compare as unsigned bytes.
    """
    columns: list[set[Any]] = [set() for _ in partition.fields]
    nulls, nans = [False] * len(columns), [False] * len(columns)
    for record in values:
        for position, distinct in enumerate(columns):
            value = record[position]
            if value is None:
                nulls[position] = True
            elif isinstance(value, float) and math.isnan(value):
                nans[position] = True
            else:
                distinct.add((_order(value), value) if isinstance(value, float) else value)
    summaries = []
    for position, (field, distinct) in enumerate(zip(partition.fields, columns, strict=True)):
        plain = [item[1] if isinstance(item, tuple) else item for item in distinct]
        lower = min(plain, key=_order, default=None)
        upper = max(plain, key=_order, default=None)
        kind: Any = field.field_type
        summaries.append(
            PartitionFieldSummary(
                nulls[position],
                nans[position],
                None if lower is None else to_bytes(kind, lower),
                None if upper is None else to_bytes(kind, upper),
            )
        )
    return summaries


def _usable_summaries(partition: StructType, values: Iterable[Record]) -> tuple[PartitionFieldSummary, ...] | None:
    """Return the summaries of a manifest, or None if Iceberg would skip the manifest because of them.

    Iceberg's ManifestEvaluator treats a field without bounds as all null. Then no summaries are written: a manifest
    without summaries is always read.
    """
    summaries = tuple(summarize_partitions(partition, values))
    for field, summary in zip(partition.fields, summaries, strict=True):
        lower, upper = summary.lower_bound, summary.upper_bound
        if not isinstance(field.field_type, UUIDType) or lower is None or upper is None:
            continue
        if not uuid_orders_agree(lower, upper):
            return None
    return summaries


def _order(value: Any) -> Any:
    if isinstance(value, float):
        return (value, math.copysign(1.0, value))
    return value.bytes if isinstance(value, uuid.UUID) else value


def _data_file_fields(version: int, partition: StructType) -> list[NestedField]:
    return [
        NestedField(102, "partition", partition, required=True)
        if field.field_id == 102
        else _EQUALITY_IDS
        if field.field_id == 135
        else field
        for field in DATA_FILE_TYPE[version].fields
    ]


def _file_schema(
    version: int, content: ManifestContent, partition: StructType, entries: Sequence[ManifestEntry]
) -> Schema:
    fields = _data_file_fields(version, partition)
    if not rules_of(version).delete_files:
        return Schema(
            NestedField(0, "status", IntegerType(), required=True),
            NestedField(1, "snapshot_id", LongType(), required=True),
            NestedField(2, "data_file", StructType(*fields), required=True),
        )
    if rules_of(version).row_lineage:
        # The layout of version 3 has all of them.
        return _entry_schema(fields)
    for field_id, position in _OPTIONAL_POSITIONS.items():
        always = field_id == _REFERENCED_DATA_FILE and content == ManifestContent.DELETES
        if always or any(entry.data_file[position] is not None for entry in entries):
            fields.append(DATA_FILE_TYPE[3].fields[position])
    return _entry_schema(fields)


def _record_schema(partition: StructType) -> Schema:
    return _entry_schema(_data_file_fields(3, partition))


def _entry_schema(data_file_fields: list[NestedField]) -> Schema:
    return Schema(
        NestedField(0, "status", IntegerType(), required=True),
        NestedField(1, "snapshot_id", LongType(), required=False),
        NestedField(3, "sequence_number", LongType(), required=False),
        NestedField(4, "file_sequence_number", LongType(), required=False),
        NestedField(2, "data_file", StructType(*data_file_fields), required=True),
    )


def _file_metadata(
    metadata: TableMetadata, spec: PartitionSpec, content: ManifestContent, compression: str
) -> dict[str, str]:
    facts = {
        "schema": spec_schema(metadata, spec).model_dump_json(),
        "partition-spec": to_json(spec.fields).decode(),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(metadata.format_version),
        AVRO_CODEC_KEY: compression,
    }
    if rules_of(metadata.format_version).sequence_numbers:
        facts["content"] = "deletes" if content == ManifestContent.DELETES else "data"
    return facts
