"""Position deletes of a task's files: each delete file read once, pruned by path, kept as a bit a row."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from iceberg_compact_sql.rewrite.delete_files import (
    PATH_FIELD_ID,
    POSITION_FIELD_ID,
    RowGroupTest,
    read_delete_columns,
)
from iceberg_compact_sql.rewrite.inputs import InputFileError
from iceberg_compact_sql.rewrite.row_bitmap import Positions, RowBitmap
from iceberg_compact_sql.table.model import LiveDelete
from iceberg_compact_sql.table.paths import same_file_key


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
    """Whether a row group's range of paths holds none of the targets, in any spelling of theirs."""
    spellings = sorted({text.encode() for key in targets for text in _spellings(key)})

    def skip(chunk: Any) -> bool:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max or chunk.physical_type != "BYTE_ARRAY":
            return False
        low, high = statistics.min_raw, statistics.max_raw
        at = bisect.bisect_left(spellings, low)
        return at == len(spellings) or spellings[at] > high

    return skip


def _spellings(key: str) -> list[str]:
    scheme, _, rest = key.partition(":")
    if scheme == "file":
        return [f"file:{rest}", f"file://{rest}", f"file://localhost{rest}", rest]
    others = {"s3": ("s3a", "s3n"), "abfs": ("abfss",), "wasb": ("wasbs",)}.get(scheme, ())
    return [key, *(f"{other}:{rest}" for other in others)]
