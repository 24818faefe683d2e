"""Which delete files apply to a data file, by the rules of the specification, in linear time and memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID, PathRange, in_range, path_range
from iceberg_compact_sql.table.delete_rules import first_sequence
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile
from iceberg_compact_sql.table.partition_keys import exact_partition_key

# Above this number, comparing a file with each delete costs more than reading deletes that match nothing.
_MAX_COMPARED = 1000
# Below this number, copying the deletes for each file is cheaper than sharing them.
_MAX_COPIED = 32


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Bounds of one key column in one file, from its statistics; None where they are unknown."""

    lower: int | None
    upper: int | None
    may_hold_null: bool


KeyRanges = Mapping[int, KeyRange]


def key_range(
    column_type: IcebergType | None, lower: bytes | None, upper: bytes | None, null_count: int | None
) -> KeyRange:
    """Return the range of a key column with exact integer bounds; no other type is used to skip a delete.

    Text bounds may be truncated, and some writers leave values above 4 KB out of them; floats have NaN and -0.0;
    Java orders uuids as signed numbers. Reading a delete that matches nothing is cheap; skipping one that matches
    brings deleted rows back.
    """
    return KeyRange(_as_integer(column_type, lower), _as_integer(column_type, upper), null_count != 0)


class _BySequence:
    """Deletes of one scope in order of sequence number: those that apply to a data file are the end of the list."""

    __slots__ = ("_ends", "deletes", "sequences")

    def __init__(self, deletes: Iterable[LiveDelete]) -> None:
        self.deletes = sorted(deletes, key=lambda delete: delete.sequence_number)
        self.sequences = [delete.sequence_number for delete in self.deletes]
        self._ends: dict[int, tuple[LiveDelete, ...]] = {}

    def since(self, sequence_number: int) -> tuple[LiveDelete, ...]:
        """Return the deletes at or above a sequence number; files with the same result share one tuple."""
        start = bisect_left(self.sequences, sequence_number)
        end = self._ends.get(start)
        if end is None:
            end = self._ends[start] = tuple(self.deletes[start:])
        return end


class DeleteIndex:
    """The deletes of a snapshot, indexed to find those of each data file.

    Position deletes apply at a sequence number at or above the file's, equality deletes above it. A deletion
    vector replaces all position deletes of its file. Equality deletes of an unpartitioned spec apply everywhere.
    Position deletes and vectors apply by the exact text of the data file's path, as in all readers: a delete that
    spells the path in another way applies to nothing.
    """

    def __init__(
        self,
        deletes: Iterable[LiveDelete],
        *,
        unpartitioned_specs: frozenset[int],
        file_keys: Mapping[str, KeyRanges] | None = None,
        delete_keys: Mapping[str, KeyRanges] | None = None,
    ) -> None:
        vectors: dict[str, list[LiveDelete]] = {}
        by_path: dict[str, list[LiveDelete]] = {}
        by_partition: dict[tuple[Any, ...], list[LiveDelete]] = {}
        equality: dict[tuple[Any, ...], list[LiveDelete]] = {}
        everywhere: list[LiveDelete] = []
        for delete in deletes:
            if delete.kind is DeleteKind.EQUALITY:
                if delete.spec_id in unpartitioned_specs:
                    everywhere.append(delete)
                else:
                    equality.setdefault((delete.spec_id, exact_partition_key(delete.partition)), []).append(delete)
            elif delete.referenced_path is not None:
                scope = vectors if delete.kind is DeleteKind.VECTOR else by_path
                scope.setdefault(delete.referenced_path, []).append(delete)
            else:
                by_partition.setdefault((delete.spec_id, exact_partition_key(delete.partition)), []).append(delete)
        self._vectors = {key: _BySequence(group) for key, group in vectors.items()}
        self._by_path = {key: _BySequence(group) for key, group in by_path.items()}
        self._by_partition = {key: _BySequence(group) for key, group in by_partition.items()}
        self._equality = {key: _BySequence(group) for key, group in equality.items()}
        self._everywhere = _BySequence(everywhere)
        self._file_keys = file_keys or {}
        self._delete_keys = delete_keys or {}
        self._path_ranges: dict[str, PathRange | None] = {}
        self._joined: dict[tuple[int, ...], tuple[list[tuple[LiveDelete, ...]], tuple[LiveDelete, ...]]] = {}
        self.is_empty = not (vectors or by_path or by_partition or equality or everywhere)

    def deletes_for(self, file: LiveFile) -> Sequence[LiveDelete]:
        """Return every delete that may remove a row of `file`."""
        if self.is_empty:
            return ()
        scope = (file.spec_id, exact_partition_key(file.partition))
        positions = self._positions(file, scope)
        newer = first_sequence(equality=True, data_sequence=file.sequence_number)
        local = self._equality.get(scope)
        equality = self._keys_overlap(file, local.since(newer)) if local is not None else ()
        everywhere = self._keys_overlap(file, self._everywhere.since(newer))
        parts = [part for part in (positions, equality, everywhere) if part]
        if len(parts) <= 1:
            return parts[0] if parts else ()
        return self._join(parts)

    def known_deleted_rows(self, file: LiveFile) -> int:
        """Return how many rows the file-scoped deletes of a file remove, by their record counts; at most all rows."""
        if not self._vectors and not self._by_path:
            return 0
        scoped = self._vectors.get(file.path) or self._by_path.get(file.path)
        if scoped is None:
            return 0
        return min(file.rows, sum(delete.rows for delete in scoped.since(file.sequence_number)))

    def _join(self, parts: list[tuple[LiveDelete, ...]]) -> tuple[LiveDelete, ...]:
        """Return the parts as one tuple. Files with the same deletes share it; else memory would grow quadratically."""
        if sum(len(part) for part in parts) < _MAX_COPIED:
            return tuple(chain.from_iterable(parts))
        key = tuple(id(part) for part in parts)
        known = self._joined.get(key)
        if known is None:
            # Keep the parts with the result: an id is unique only while its tuple is alive.
            known = self._joined[key] = (parts, tuple(chain.from_iterable(parts)))
        return known[1]

    def _positions(self, file: LiveFile, scope: tuple[Any, ...]) -> tuple[LiveDelete, ...]:
        if not (self._vectors or self._by_path or self._by_partition):
            return ()
        path = file.path
        vectors = self._vectors.get(path)
        if vectors is not None and (newer := vectors.since(file.sequence_number)):
            return newer
        scoped = self._by_path.get(path)
        own = scoped.since(file.sequence_number) if scoped is not None else ()
        wide = self._by_partition.get(scope)
        if wide is None:
            return own
        shared = wide.since(file.sequence_number)
        if 0 < len(shared) <= _MAX_COMPARED and not all(self._path_may_be_in(path, delete) for delete in shared):
            shared = tuple(delete for delete in shared if self._path_may_be_in(path, delete))
        return own + shared if own else shared

    def _path_may_be_in(self, path: str, delete: LiveDelete) -> bool:
        if delete.path not in self._path_ranges:
            lower, upper = dict(delete.lower_bounds), dict(delete.upper_bounds)
            self._path_ranges[delete.path] = path_range(lower.get(PATH_FIELD_ID), upper.get(PATH_FIELD_ID))
        return in_range(path, self._path_ranges[delete.path])

    def _keys_overlap(self, file: LiveFile, deletes: tuple[LiveDelete, ...]) -> tuple[LiveDelete, ...]:
        if not deletes or len(deletes) > _MAX_COMPARED:
            return deletes
        ranges = self._file_keys.get(file.path)
        if not ranges:
            return deletes
        kept = [delete for delete in deletes if self._may_match(ranges, delete)]
        return deletes if len(kept) == len(deletes) else tuple(kept)

    def _may_match(self, file_ranges: KeyRanges, delete: LiveDelete) -> bool:
        delete_ranges = self._delete_keys.get(delete.path)
        if not delete_ranges:
            return True
        for column in delete.equality_ids:
            in_file, in_delete = file_ranges.get(column), delete_ranges.get(column)
            if in_file is None or in_delete is None or (in_file.may_hold_null and in_delete.may_hold_null):
                continue
            if in_file.upper is not None and in_delete.lower is not None and in_file.upper < in_delete.lower:
                return False
            if in_file.lower is not None and in_delete.upper is not None and in_file.lower > in_delete.upper:
                return False
        return True


def _as_integer(column_type: IcebergType | None, bound: bytes | None) -> int | None:
    if bound is None or not bound:
        return None
    if isinstance(column_type, (IntegerType, LongType)) and len(bound) in (4, 8):
        return int.from_bytes(bound, "little", signed=True)
    if isinstance(column_type, DateType) and len(bound) == 4:
        return int.from_bytes(bound, "little", signed=True)
    if isinstance(column_type, (TimeType, TimestampType, TimestamptzType)) and len(bound) == 8:
        return int.from_bytes(bound, "little", signed=True)
    if isinstance(column_type, DecimalType):
        return int.from_bytes(bound, "big", signed=True)
    return None
