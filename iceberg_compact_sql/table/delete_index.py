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

from iceberg_compact_sql.storage.paths import same_file_key
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID, PathRange, in_range, path_range
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile
from iceberg_compact_sql.table.partitions import partition_key

# Comparing a file with this many deletes one by one costs more than reading deletes that match nothing.
_MOST_COMPARED = 1000
# Fewer deletes than this are cheaper to copy for a file than to share.
_MOST_COPIED = 32


@dataclass(frozen=True, slots=True)
class KeyRange:
    """What statistics say of one key column in one file; None where they are silent."""

    lower: int | None
    upper: int | None
    may_hold_null: bool


KeyRanges = Mapping[int, KeyRange]


def key_range(
    column_type: IcebergType | None, lower: bytes | None, upper: bytes | None, null_count: int | None
) -> KeyRange:
    """The range of a key column, where its bounds are exact integers; other types are never used to drop a delete.

    Text bounds may be truncated, and some writers leave values above 4 KB out of them; floats have NaN and -0.0;
    Java orders uuids as signed numbers. Reading a delete that matches nothing is cheap, a row that comes back is not.
    """
    return KeyRange(_as_integer(column_type, lower), _as_integer(column_type, upper), null_count != 0)


class _BySequence:
    """Deletes of one scope, sorted so that those which apply to a data file are the end of the list."""

    __slots__ = ("_ends", "deletes", "sequences")

    def __init__(self, deletes: Iterable[LiveDelete]) -> None:
        self.deletes = sorted(deletes, key=lambda delete: delete.sequence_number)
        self.sequences = [delete.sequence_number for delete in self.deletes]
        self._ends: dict[int, tuple[LiveDelete, ...]] = {}

    def since(self, sequence_number: int) -> tuple[LiveDelete, ...]:
        """Deletes at or above a sequence number; files that ask for the same end share one tuple."""
        start = bisect_left(self.sequences, sequence_number)
        end = self._ends.get(start)
        if end is None:
            end = self._ends[start] = tuple(self.deletes[start:])
        return end

    def count_since(self, sequence_number: int) -> int:
        return len(self.sequences) - bisect_left(self.sequences, sequence_number)


class DeleteIndex:
    """The deletes of a snapshot, ready to be asked for each data file.

    Position deletes apply at a sequence number at or above the file's, equality deletes above it. A deletion
    vector replaces all position deletes of its file. Equality deletes of an unpartitioned spec apply everywhere.
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
                    equality.setdefault((delete.spec_id, partition_key(delete.partition)), []).append(delete)
            elif delete.referenced_path is not None:
                scope = vectors if delete.kind is DeleteKind.VECTOR else by_path
                scope.setdefault(same_file_key(delete.referenced_path), []).append(delete)
            else:
                by_partition.setdefault((delete.spec_id, partition_key(delete.partition)), []).append(delete)
        self._vectors = {key: _BySequence(found) for key, found in vectors.items()}
        self._by_path = {key: _BySequence(found) for key, found in by_path.items()}
        self._by_partition = {key: _BySequence(found) for key, found in by_partition.items()}
        self._equality = {key: _BySequence(found) for key, found in equality.items()}
        self._everywhere = _BySequence(everywhere)
        self._file_keys = file_keys or {}
        self._delete_keys = delete_keys or {}
        self._path_ranges: dict[str, PathRange | None] = {}
        self._joined: dict[tuple[int, ...], tuple[list[tuple[LiveDelete, ...]], tuple[LiveDelete, ...]]] = {}
        self.empty = not (vectors or by_path or by_partition or equality or everywhere)

    def deletes_for(self, file: LiveFile) -> Sequence[LiveDelete]:
        """Every delete that may remove a row of `file`; one that provably cannot is left out."""
        if self.empty:
            return ()
        scope = (file.spec_id, partition_key(file.partition))
        positions = self._positions(file, scope)
        local = self._equality.get(scope)
        equality = self._keys_overlap(file, local.since(file.sequence_number + 1)) if local is not None else ()
        everywhere = self._keys_overlap(file, self._everywhere.since(file.sequence_number + 1))
        parts = [part for part in (positions, equality, everywhere) if part]
        if len(parts) <= 1:
            return parts[0] if parts else ()
        return self._joined_once(parts)

    def known_deleted_rows(self, file: LiveFile) -> int:
        """Rows that deletes of this one file remove, as their record counts say; at most all rows."""
        if not self._vectors and not self._by_path:
            return 0
        key = same_file_key(file.path)
        scoped = self._vectors.get(key) or self._by_path.get(key)
        if scoped is None:
            return 0
        return min(file.rows, sum(delete.rows for delete in scoped.since(file.sequence_number)))

    def _joined_once(self, parts: list[tuple[LiveDelete, ...]]) -> tuple[LiveDelete, ...]:
        """The parts as one tuple; files with the same many deletes share it, else memory would grow with the square."""
        if sum(len(part) for part in parts) < _MOST_COPIED:
            return tuple(chain.from_iterable(parts))
        key = tuple(id(part) for part in parts)
        known = self._joined.get(key)
        if known is None:
            # The parts are kept with the answer: an id means something only as long as its tuple lives.
            known = self._joined[key] = (parts, tuple(chain.from_iterable(parts)))
        return known[1]

    def _positions(self, file: LiveFile, scope: tuple[Any, ...]) -> tuple[LiveDelete, ...]:
        if not (self._vectors or self._by_path or self._by_partition):
            return ()
        path = same_file_key(file.path)
        vectors = self._vectors.get(path)
        if vectors is not None and (found := vectors.since(file.sequence_number)):
            return found
        scoped = self._by_path.get(path)
        own = scoped.since(file.sequence_number) if scoped is not None else ()
        wide = self._by_partition.get(scope)
        if wide is None:
            return own
        shared = wide.since(file.sequence_number)
        if 0 < len(shared) <= _MOST_COMPARED and not all(self._path_may_be_in(path, delete) for delete in shared):
            shared = tuple(delete for delete in shared if self._path_may_be_in(path, delete))
        return own + shared if own else shared

    def _path_may_be_in(self, path: str, delete: LiveDelete) -> bool:
        if delete.path not in self._path_ranges:
            lower, upper = dict(delete.lower_bounds), dict(delete.upper_bounds)
            self._path_ranges[delete.path] = path_range(lower.get(PATH_FIELD_ID), upper.get(PATH_FIELD_ID))
        return in_range(path, self._path_ranges[delete.path])

    def _keys_overlap(self, file: LiveFile, deletes: tuple[LiveDelete, ...]) -> tuple[LiveDelete, ...]:
        if not deletes or len(deletes) > _MOST_COMPARED:
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
            ours, theirs = file_ranges.get(column), delete_ranges.get(column)
            if ours is None or theirs is None or (ours.may_hold_null and theirs.may_hold_null):
                continue
            if ours.upper is not None and theirs.lower is not None and ours.upper < theirs.lower:
                return False
            if ours.lower is not None and theirs.upper is not None and ours.lower > theirs.upper:
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
