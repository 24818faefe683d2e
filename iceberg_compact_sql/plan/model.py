"""A compaction plan as plain data: the same object serves the dry run and the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.table.model import LiveDelete, LiveFile, PlannedState


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """`compact_table`'s arguments that planning needs, in bytes, milliseconds and plain numbers."""

    target_bytes: int
    min_file_bytes: int
    max_file_bytes: int
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
    max_bytes: int | None = None
    max_cost: float | None = None
    time_budget_ms: int | None = None
    copy: str = "auto"
    copy_min_row_group_bytes: int = 8 * 1024**2

    @property
    def sizes_text(self) -> str:
        """Everything that decides how large the outputs of a partition come out, for the stamp of a run."""
        limits = (
            self.target_bytes,
            self.min_file_bytes,
            self.max_file_bytes,
            self.max_group_bytes,
            self.max_group_files,
        )
        return "/".join(str(limit or 0) for limit in limits)

    @property
    def roll_bytes(self) -> int:
        """The writer's limit: halfway between target and maximum, as Iceberg rolls."""
        return self.target_bytes + (self.max_file_bytes - self.target_bytes) // 2


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are rewritten and committed together, or were considered and left alone.

    `partition` is None for the group of files of other specs: their rows are spread over the partitions of
    `output_spec_id` while they are rewritten. `deletes[i]` are the deletes that apply to `files[i]`.
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

    @property
    def distinct_deletes(self) -> tuple[LiveDelete, ...]:
        return tuple({(d.path, d.content_offset): d for per_file in self.deletes for d in per_file}.values())


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Groups in the order in which they run; those with action 'rewrite' are exactly what a run rewrites."""

    state: PlannedState
    options: CompactionOptions
    groups: tuple[FileGroup, ...]

    @property
    def rewrites(self) -> tuple[FileGroup, ...]:
        return tuple(group for group in self.groups if group.action == "rewrite")
