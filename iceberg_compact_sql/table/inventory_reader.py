"""Read live files and deletes from manifests into plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import DoubleType, FloatType, IcebergType

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.pyiceberg_internals import manifest_columns as record
from iceberg_compact_sql.table.column_bounds import ColumnBounds, decode_column_bound
from iceberg_compact_sql.table.delete_index import KeyRange, KeyRanges, key_range
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile
from iceberg_compact_sql.table.partition_keys import exact_partition_key
from iceberg_compact_sql.table.pruning import ColumnStatistics, FilePruner

Partition = tuple[Any, ...]


class InventoryReader:
    """Collects live files and deletes from manifests.

    Read delete manifests first: their equality ids say for which columns of data files key ranges are kept.
    """

    def __init__(self, schemas: Sequence[Schema], pruner: FilePruner | None, bounds_of: Sequence[int] = ()) -> None:
        self._schemas = schemas
        self._bound_types = {column: self._type_of(column) for column in bounds_of}
        self._pruner = pruner
        # By spec and partition key; the key of a partition without floats is the partition itself.
        self._partitions: dict[int, dict[Partition, Partition]] = {}
        self._formats: dict[str, str] = {}
        # Tables without floats have no NaN counts to read. Files with equal counts share one tuple.
        self._has_floats = any(_has_floats(schema) for schema in schemas[:1])
        self._nan_counts: dict[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]] = {}
        self._key_types: dict[int, IcebergType | None] = {}
        self.files: list[LiveFile] = []
        self.deletes: list[LiveDelete] = []
        self.file_keys: dict[str, KeyRanges] = {}
        self.delete_keys: dict[str, KeyRanges] = {}
        # Of the wanted columns only, by path.
        self.bounds: dict[str, Mapping[int, ColumnBounds]] = {}

    def read_deletes(self, manifest: ManifestFile, contents: bytes) -> None:
        for values in record.read_live_records(manifest, contents, metrics=True):
            equality = values[record.CONTENT] == DataFileContent.EQUALITY_DELETES.value
            file_format = values[record.FORMAT].upper()
            kind = DeleteKind.EQUALITY if equality else DeleteKind.POSITION
            if not equality and file_format == "PUFFIN":
                kind = DeleteKind.VECTOR
            equality_ids = tuple(values[record.EQUALITY_IDS] or ())
            columns = equality_ids if equality else (PATH_FIELD_ID,)
            lower = record.int_map(values[record.LOWER_BOUNDS])
            upper = record.int_map(values[record.UPPER_BOUNDS])
            delete = LiveDelete(
                path=values[record.PATH],
                kind=kind,
                file_format=file_format,
                spec_id=manifest.partition_spec_id,
                partition=self._shared(manifest.partition_spec_id, values[record.PARTITION]),
                sequence_number=_sequence(values, manifest),
                size_bytes=values[record.SIZE],
                rows=values[record.ROWS],
                equality_ids=equality_ids,
                referenced_path=None if equality else _referenced_path(values, lower, upper),
                content_offset=values[record.CONTENT_OFFSET],
                content_size_bytes=values[record.CONTENT_SIZE],
                lower_bounds=tuple((column, lower[column]) for column in columns if column in lower),
                upper_bounds=tuple((column, upper[column]) for column in columns if column in upper),
            )
            self.deletes.append(delete)
            if equality:
                for column in equality_ids:
                    if column not in self._key_types:
                        self._key_types[column] = self._type_of(column)
                self.delete_keys[delete.path] = self._key_ranges(values, equality_ids)

    def read_files(self, manifest: ManifestFile, contents: bytes) -> None:
        pruner, append = self._pruner, self.files.append
        spec_id = manifest.partition_spec_id
        partitions, formats = self._partitions.setdefault(spec_id, {}), self._formats
        keys = tuple(self._key_types)
        metrics = pruner is not None or bool(keys) or bool(self._bound_types)
        with_nans, nan_counts = self._has_floats, self._nan_counts
        for values in record.read_live_records(manifest, contents, metrics=metrics, nan_counts=with_nans):
            # One assignment for all values: a table may have a million files.
            (
                snapshot_id,
                sequence,
                file_sequence,
                path,
                file_format,
                partition,
                rows,
                size,
                key,
                offsets,
                sort_order,
            ) = values[record.SNAPSHOT_ID : record.SORT_ORDER + 1]
            if pruner is not None and not (
                pruner.partition_may_match(spec_id, partition) and pruner.file_may_match(_metrics(values))
            ):
                continue
            shared = partitions.get(partition)
            nans = tuple(values[record.NAN_COUNTS].items()) if with_nans and values[record.NAN_COUNTS] else ()
            file = LiveFile(
                path,
                formats.get(file_format) or self._format(file_format),
                spec_id,
                shared if shared is not None else self._shared(spec_id, partition),
                size,
                rows,
                sequence if sequence is not None else _sequence(values, manifest),
                snapshot_id,
                sort_order,
                key is not None,
                tuple(offsets) if offsets else (),
                file_sequence,
                values[record.FIRST_ROW_ID],
                nan_counts.setdefault(nans, nans),
            )
            append(file)
            if keys:
                self.file_keys[path] = self._key_ranges(values, keys)
            if self._bound_types:
                self.bounds[path] = self._column_bounds(values)

    def _format(self, text: str) -> str:
        return self._formats.setdefault(text, text.upper())

    def _shared(self, spec_id: int, partition: Partition) -> Partition:
        """Return one tuple for all files of a partition; Python's own equality would mix up 0.0 and -0.0."""
        return self._partitions.setdefault(spec_id, {}).setdefault(exact_partition_key(partition), partition)

    def _type_of(self, column: int) -> IcebergType | None:
        for schema in self._schemas:
            try:
                return schema.find_type(column)
            except ValueError:
                continue
        return None

    def _column_bounds(self, values: list[Any]) -> Mapping[int, ColumnBounds]:
        lower = record.int_map(values[record.LOWER_BOUNDS])
        upper = record.int_map(values[record.UPPER_BOUNDS])
        counts = record.int_map(values[record.VALUE_COUNTS])
        nulls, nans = record.int_map(values[record.NULL_COUNTS]), record.int_map(values[record.NAN_COUNTS])
        return {
            column: ColumnBounds(
                decode_column_bound(kind, lower.get(column)),
                decode_column_bound(kind, upper.get(column)),
                counts.get(column),
                nulls.get(column),
                nans.get(column),
            )
            for column, kind in self._bound_types.items()
        }

    def _key_ranges(self, values: list[Any], columns: Sequence[int]) -> KeyRanges:
        lower = record.int_map(values[record.LOWER_BOUNDS])
        upper = record.int_map(values[record.UPPER_BOUNDS])
        nulls = record.int_map(values[record.NULL_COUNTS])
        ranges: dict[int, KeyRange] = {}
        for column in columns:
            bounds = key_range(self._key_types[column], lower.get(column), upper.get(column), nulls.get(column))
            if bounds.lower is not None or bounds.upper is not None:
                ranges[column] = bounds
        return ranges


def _has_floats(schema: Schema) -> bool:
    return any(isinstance(field.field_type, FloatType | DoubleType) for field in index_by_id(schema).values())


def _metrics(values: list[Any]) -> ColumnStatistics:
    return ColumnStatistics(
        values[record.ROWS],
        record.int_map(values[record.VALUE_COUNTS]),
        record.int_map(values[record.NULL_COUNTS]),
        record.int_map(values[record.NAN_COUNTS]),
        record.int_map(values[record.LOWER_BOUNDS]),
        record.int_map(values[record.UPPER_BOUNDS]),
    )


def _referenced_path(values: list[Any], lower: Mapping[int, bytes], upper: Mapping[int, bytes]) -> str | None:
    """Return the data file that all rows of a position delete file name; None if there are several."""
    path: str | None = values[record.REFERENCED_PATH]
    if path is not None:
        return path
    low, high = lower.get(PATH_FIELD_ID), upper.get(PATH_FIELD_ID)
    return low.decode("utf-8") if low is not None and low == high else None


def _sequence(values: list[Any], manifest: ManifestFile) -> int:
    sequence: int | None = values[record.SEQUENCE]
    if sequence is None:
        raise UnsupportedError(
            f"manifest {manifest.manifest_path} holds {values[record.PATH]} without a sequence number",
            hint="Without it the deletes that apply are unknown. Rewrite the manifest with the engine that wrote it.",
        )
    return sequence
