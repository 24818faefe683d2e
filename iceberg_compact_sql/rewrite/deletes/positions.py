"""Position deletes of a task's files: each delete file read once, pruned by path, kept as a bit a row."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from iceberg_compact_sql.parquet.chunk_facts import ChunkStatistics
from iceberg_compact_sql.rewrite.deletes.files import (
    POSITION_FIELD_ID,
    RowGroupTest,
    read_delete_columns,
)
from iceberg_compact_sql.rewrite.deletes.row_bitmap import Positions, RowBitmap
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError
from iceberg_compact_sql.storage.paths import same_file_key
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID
from iceberg_compact_sql.table.model import LiveDelete

_HEAD = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.\-]*:)?/{1,3}[^/]+/")


def add_position_deletes(io: FileIO, delete: LiveDelete, targets: Mapping[str, RowBitmap]) -> None:
    """Add the rows that a delete file removes from the target files, whose keys are `same_file_key` of their paths."""
    bitmaps = list(targets.values())
    numbers = {key: i for i, key in enumerate(targets)}
    known: dict[str, int] = {}
    batches = read_delete_columns(
        io, delete, (PATH_FIELD_ID, POSITION_FIELD_ID), dictionaries=True, skip=_names_none_of(targets)
    )
    for paths, positions in batches:
        if paths.null_count or positions.null_count:
            raise InputFileError(delete.path, "a position delete without path or position")
        encoded = paths if pa.types.is_dictionary(paths.type) else pc.dictionary_encode(paths)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        # The dictionary may be longer than what this batch uses of it, never by more than the file has paths.
        lookup = np.array([_number(path, known, numbers) for path in encoded.dictionary.to_pylist()], np.int64)
        wanted = lookup[codes]
        kept = wanted >= 0
        _add_by_target(wanted[kept], positions.cast(pa.int64()).to_numpy(zero_copy_only=False)[kept], bitmaps)


def _number(path: str, known: dict[str, int], numbers: Mapping[str, int]) -> int:
    found = known.get(path)
    if found is None:
        found = known[path] = numbers.get(same_file_key(path), -1)
    return found


def _add_by_target(targets: Positions, positions: Positions, bitmaps: list[RowBitmap]) -> None:
    """Split by target in one sort: a loop with a comparison a path would be quadratic."""
    if len(targets) == 0:
        return
    order = np.argsort(targets, kind="stable")
    targets, positions = targets[order], positions[order]
    starts = np.flatnonzero(np.diff(targets, prepend=-1))
    for first, last in zip(starts, [*starts[1:], len(targets)], strict=True):
        bitmaps[int(targets[first])].add(positions[first:last])


def _names_none_of(targets: Mapping[str, RowBitmap]) -> RowGroupTest:
    """Whether a row group's range of paths holds none of the targets.

    All paths between two that begin alike begin so too: if that beginning has scheme and first folder, it says how the
    row group spells its paths, and the targets can be looked up in that spelling. Otherwise nothing is left out.
    """
    spelled: dict[str, list[bytes]] = {}

    def skip(statistics: ChunkStatistics) -> bool:
        low, high = statistics.low, statistics.high
        if not isinstance(low, bytes) or not isinstance(high, bytes):
            return False
        head = _HEAD.match(low.decode("utf-8", "ignore"))
        if head is None or not high.startswith(head[0].encode()):
            return False
        if head[0] not in spelled:
            key = same_file_key(head[0])
            spelled[head[0]] = sorted((head[0] + t[len(key) :]).encode() for t in targets if t.startswith(key))
        candidates = spelled[head[0]]
        at = bisect.bisect_left(candidates, low)
        return at == len(candidates) or candidates[at] > high

    return skip
