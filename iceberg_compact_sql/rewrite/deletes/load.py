"""Loads all deletes of a task once: which rows of which input are deleted."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.io import FileIO

from iceberg_compact_sql.events import reach
from iceberg_compact_sql.rewrite.deletes.equality import add_equality_deletes, key_sets
from iceberg_compact_sql.rewrite.deletes.positions import add_position_deletes
from iceberg_compact_sql.rewrite.deletes.row_bitmap import RowBitmap
from iceberg_compact_sql.rewrite.deletes.vectors import read_vector
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError
from iceberg_compact_sql.rewrite.scan.open_slice import TableSchema
from iceberg_compact_sql.rewrite.task import RewriteJob, RewriteTask
from iceberg_compact_sql.table.model import DeleteKind

# Keys that are loaded at once; sorting them briefly needs about three times as much memory.
_KEY_SHARE = 4


def load_deletes(job: RewriteJob, task: RewriteTask, io: FileIO, table: TableSchema) -> Mapping[str, RowBitmap]:
    """Return the deleted rows of each input that has deletes, by the exact text of its path."""
    deleted = {input_slice.path: RowBitmap() for input_slice in task.inputs if input_slice.deletes}
    if not deleted:
        return {}
    reach("rewrite.deletes", group=task.group_id, output=task.output_index)
    _add_vectors(task, io, deleted)
    for number, delete in enumerate(task.deletes):
        if delete.kind is DeleteKind.POSITION:
            paths = {input_slice.path for input_slice in task.inputs if number in input_slice.deletes}
            if paths:
                add_position_deletes(io, delete, {path: deleted[path] for path in paths})
    equality = {n: delete for n, delete in enumerate(task.deletes) if delete.kind is DeleteKind.EQUALITY}
    for keys_of_set in key_sets(task.inputs, equality):
        add_equality_deletes(
            io, table, keys_of_set, deleted, memory_bytes=job.memory_bytes // _KEY_SHARE, threads=job.threads
        )
    return deleted


def _add_vectors(task: RewriteTask, io: FileIO, deleted: Mapping[str, RowBitmap]) -> None:
    seen: dict[str, set[int]] = {}
    for input_slice in task.inputs:
        vectors = {n for n in input_slice.deletes if task.deletes[n].kind is DeleteKind.VECTOR}
        seen.setdefault(input_slice.path, set()).update(vectors)
    for path, numbers in seen.items():
        distinct = {(task.deletes[n].path, task.deletes[n].content_offset) for n in numbers}
        if len(distinct) > 1:
            raise InputFileError(path, f"{len(distinct)} deletion vectors apply to it, where only one is allowed")
        for number in sorted(numbers)[:1]:
            deleted[path].add(read_vector(io, task.deletes[number]))
