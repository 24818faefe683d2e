"""Position deletes of a task: each delete file is read once, pruned by path, and kept as one bit for each row."""

from __future__ import annotations

import bisect
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
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID
from iceberg_compact_sql.table.model import LiveDelete


def add_position_deletes(io: FileIO, delete: LiveDelete, targets: Mapping[str, RowBitmap]) -> None:
    """Add the rows that a delete file removes from the target files, named by their exact paths."""
    bitmaps = list(targets.values())
    numbers = {path: i for i, path in enumerate(targets)}
    batches = read_delete_columns(
        io, delete, (PATH_FIELD_ID, POSITION_FIELD_ID), dictionaries=True, skip=_names_none_of(targets)
    )
    for paths, positions in batches:
        if paths.null_count or positions.null_count:
            raise InputFileError(delete.path, "a position delete without path or position")
        encoded = paths if pa.types.is_dictionary(paths.type) else pc.dictionary_encode(paths)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        # The dictionary may have more entries than this batch uses, but never more than the file has paths.
        lookup = np.array([numbers.get(path, -1) for path in encoded.dictionary.to_pylist()], np.int64)
        wanted = lookup[codes]
        kept = wanted >= 0
        _add_by_target(wanted[kept], positions.cast(pa.int64()).to_numpy(zero_copy_only=False)[kept], bitmaps)


def _add_by_target(targets: Positions, positions: Positions, bitmaps: list[RowBitmap]) -> None:
    """Split by target with one sort: a loop with one comparison for each path would be quadratic."""
    if len(targets) == 0:
        return
    order = np.argsort(targets, kind="stable")
    targets, positions = targets[order], positions[order]
    starts = np.flatnonzero(np.diff(targets, prepend=-1))
    for first, last in zip(starts, [*starts[1:], len(targets)], strict=True):
        bitmaps[int(targets[first])].add(positions[first:last])


def _names_none_of(targets: Mapping[str, RowBitmap]) -> RowGroupTest:
    """Whether none of the targets is in a row group's range of paths."""
    candidates = sorted(path.encode() for path in targets)

    def skip(statistics: ChunkStatistics) -> bool:
        low, high = statistics.low, statistics.high
        if not isinstance(low, bytes) or not isinstance(high, bytes):
            return False
        at = bisect.bisect_left(candidates, low)
        return at == len(candidates) or candidates[at] > high

    return skip
