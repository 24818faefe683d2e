"""What travels between the driver and a rewrite task: small, frozen, picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_compact_sql.table.model import LiveDelete


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """What all tasks of a run share; shipped once.

    `io_properties` holds only what the FileIO needs to read and write this table's files. Its repr must not
    show them: they may be credentials.
    """

    run_id: str
    table_location: str
    schema_json: str
    specs_json: tuple[str, ...]
    output_spec_id: int
    name_mapping_json: str | None
    properties: Mapping[str, str]
    io_properties: Mapping[str, str] = field(repr=False)
    format_version: int = 2
    target_bytes: int = 512 * 1024**2
    roll_bytes: int = 716 * 1024**2
    copy: str = "auto"
    copy_min_row_group_bytes: int = 8 * 1024**2
    verify: str = "checksum"
    threads: int = 1
    # What rows may take in memory at once; the interpreter and its libraries come on top, with about 200 MB.
    memory_bytes: int = 512 * 1024**2
    # What the planner calls a healthy file: outputs are cut so that they land inside.
    min_file_bytes: int = 384 * 1024**2
    max_file_bytes: int = 921 * 1024**2


@dataclass(frozen=True, slots=True)
class InputSlice:
    """A byte range of an input file: the row groups that start in [start, end) belong to it.

    `deletes` index into the task's `deletes`. `partition` gives identity columns that the file does not hold.
    """

    path: str
    size_bytes: int
    rows: int
    spec_id: int
    partition: tuple[Any, ...]
    sequence_number: int
    start: int = 0
    end: int | None = None
    deletes: tuple[int, ...] = ()

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.end is None


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One output file's work (more than one only if the rows do not fit, or fall into several partitions)."""

    group_id: int
    output_index: int
    inputs: tuple[InputSlice, ...]
    deletes: tuple[LiveDelete, ...]
    # None: the rows are spread over the partitions of the output spec.
    partition: tuple[Any, ...] | None
    # Bytes out for a byte in, as far as a sample told; the task goes on with its own measure.
    expected_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A finished data file with the metrics for its manifest entry."""

    path: str
    size_bytes: int
    rows: int
    spec_id: int
    partition: tuple[Any, ...]
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...]
    sort_order_id: int | None = None


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """A task that did its work and proved it: live rows in = rows out."""

    group_id: int
    output_index: int
    outputs: tuple[OutputFile, ...]
    live_rows: int
    # Rows of the slices before deletes: those of a group must add up to what its manifests say.
    input_rows: int
    copied_row_groups: int = 0
    copied_bytes: int = 0
    read_bytes: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RewriteFailure:
    """A task that did not; `created` are the paths it may have left behind."""

    group_id: int
    output_index: int
    reason: str
    created: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRewritten:
    """All tasks of a group succeeded: ready to commit."""

    group_id: int
    outputs: tuple[OutputFile, ...]
    live_rows: int
    copied_row_groups: int
    copied_bytes: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """At least one task of a group failed: nothing of it may be committed; its files are already cleaned."""

    group_id: int
    reason: str
    created: tuple[str, ...] = ()


GroupOutcome = GroupRewritten | GroupFailed


def slice_bytes(piece: InputSlice) -> int:
    """Bytes of the input file that the slice covers."""
    return (piece.size_bytes if piece.end is None else piece.end) - piece.start
