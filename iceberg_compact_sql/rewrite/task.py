"""The data that the driver and a rewrite task exchange: small, frozen, picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from iceberg_compact_sql.plan.layouts.order import ClusterOrder
from iceberg_compact_sql.storage.request_limit import DEFAULT_REQUESTS
from iceberg_compact_sql.table.model import LiveDelete


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """What all tasks of a run share; sent once.

    `io_properties` holds only what the FileIO needs to read and write this table's files. They may be credentials, so
    repr does not show them.
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
    # Limit of rows in memory; the interpreter and its libraries need about 200 MB more.
    memory_bytes: int = 512 * 1024**2
    # The planner does not rewrite files of these sizes again: outputs are cut to be within them.
    min_file_bytes: int = 384 * 1024**2
    max_file_bytes: int = 921 * 1024**2
    # The order of the rows in the outputs; None keeps the order of the inputs.
    order: ClusterOrder | None = None
    # With an order: input bytes times this decide the number of outputs; None decides by measured outputs.
    compression_factor: float | None = None
    # Requests to stores that one process has in flight for this run.
    requests: int = DEFAULT_REQUESTS


@dataclass(frozen=True, slots=True)
class InputSlice:
    """A byte range of an input file: the row groups that start in [start, end) belong to it.

    `deletes` index into the task's `deletes`. `partition` gives the values of identity columns that the file lacks.
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
    # The row id of the file's first row (format version 3); None: its rows have no row ids yet.
    first_row_id: int | None = None
    # NaN counts of the whole file by field id, of the columns for which its manifest has one.
    nan_counts: tuple[tuple[int, int], ...] = ()

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.end is None


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """The work for one output file, or for several if the rows do not fit or belong to several partitions."""

    group_id: int
    output_index: int
    inputs: tuple[InputSlice, ...]
    deletes: tuple[LiveDelete, ...]
    # None: the rows are split by the partitions of the output spec.
    partition: tuple[Any, ...] | None
    # Output bytes per input byte, from a sample; the task continues with its own measurement.
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
    """The result of a task whose proof holds: live rows in = rows out."""

    group_id: int
    output_index: int
    outputs: tuple[OutputFile, ...]
    live_rows: int
    # Rows of the slices before deletes: in a group they must add up to the record counts of its manifests.
    input_rows: int
    copied_row_groups: int = 0
    copied_bytes: int = 0
    read_bytes: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    spliced_columns: int = 0


@dataclass(frozen=True, slots=True)
class RewriteFailure:
    """A failed task; `created` are the paths that it may have left behind."""

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
    spliced_columns: int = 0


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """At least one task of a group failed: it must not be committed, and its files are already deleted."""

    group_id: int
    reason: str
    created: tuple[str, ...] = ()


GroupOutcome = GroupRewritten | GroupFailed


def slice_bytes(input_slice: InputSlice) -> int:
    """Return the bytes of the input file that the slice covers."""
    return (input_slice.size_bytes if input_slice.end is None else input_slice.end) - input_slice.start
