"""A compaction plan as plain data, for the dry run and the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.plan.layouts.order import ClusterOrder
from iceberg_compact_sql.table.model import LiveDelete, LiveFile, PlannedState


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """`compact_table`'s arguments that planning needs, in bytes, milliseconds and plain numbers."""

    target_bytes: int
    min_file_bytes: int
    max_file_bytes: int
    # How the groups are rewritten: the name of a runner in `engine/strategies`.
    strategy: str = "binpack"
    # The order of rows that a clustering strategy writes; None for `binpack`.
    order: ClusterOrder | None = None
    # Clustering only: rewrite where more files than this overlap; None selects by size only.
    max_depth: int | None = None
    # Clustering only: scales the input size before the number of outputs is worked out; None measures it.
    compression_factor: float | None = None
    min_input_files: int = 5
    delete_file_threshold: int | None = None
    delete_ratio_threshold: float = 0.3
    max_group_bytes: int = 100 * 1024**3
    max_group_files: int | None = None
    max_files: int | None = None
    rewrite_all: bool = False
    job_order: str = "none"
    output_spec_id: int | None = None
    idle_ms: int | None = None
    min_score: float | None = None
    min_fragment_ratio: float | None = None
    max_bytes: int | None = None
    max_cost: float | None = None
    time_budget_ms: int | None = None
    copy: str = "auto"
    copy_min_row_group_bytes: int = 8 * 1024**2

    @property
    def sizes_text(self) -> str:
        """All options that decide sizes and order of output files; recorded in the snapshot summary."""
        limits = (
            self.target_bytes,
            self.min_file_bytes,
            self.max_file_bytes,
            self.max_group_bytes,
            self.max_group_files,
        )
        sizes = "/".join(str(limit or 0) for limit in limits)
        return sizes if self.order is None else f"{sizes}/{self.order.text}"

    @property
    def roll_bytes(self) -> int:
        """The size at which a writer starts a new file: halfway between target and maximum, as in Iceberg."""
        return self.target_bytes + (self.max_file_bytes - self.target_bytes) // 2


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are rewritten and committed together, or skipped.

    `partition` is None for a group with files of other specs: each of their rows is written to its partition of
    `output_spec_id`. `deletes[i]` are the deletes that apply to `files[i]`.
    """

    group_id: int
    spec_id: int
    output_spec_id: int
    partition: tuple[Any, ...] | None
    partition_path: str
    action: str  # 'rewrite' | 'skip'
    reason: str
    files: tuple[LiveFile, ...]
    deletes: tuple[tuple[LiveDelete, ...], ...]
    input_bytes: int
    expected_files: int
    copied_row_groups: int = 0
    estimated_seconds: float = 0.0
    estimated_cost: float = 0.0
    score: float = 0.0
    # How most of it will be done, and where the estimate comes from; empty for a skipped group.
    way: str = ""
    estimate_source: str = ""
    # The estimate by the constants alone, and the dollars for requests in `estimated_cost`.
    base_seconds: float = 0.0
    request_cost: float = 0.0
    # How many files overlap in the order of the run, on average over these files; None without an order.
    depth: float | None = None

    @property
    def distinct_deletes(self) -> tuple[LiveDelete, ...]:
        return tuple({(d.path, d.content_offset): d for per_file in self.deletes for d in per_file}.values())


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Groups in the order in which they run. A run rewrites exactly those with the action 'rewrite'."""

    state: PlannedState
    options: CompactionOptions
    groups: tuple[FileGroup, ...]
    # The clustering depth of all files that were planned, averaged by rows; None without an order.
    depth: float | None = None

    @property
    def rewrites(self) -> tuple[FileGroup, ...]:
        return tuple(group for group in self.groups if group.action == "rewrite")
