"""The request and the result of a compaction: frozen, with units in the names."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_compact_sql.commit.model import CommitReport
from iceberg_compact_sql.plan.cost import Prices, Throughput, compute_dollars
from iceberg_compact_sql.plan.layouts.order import DEFAULT_MAX_DEPTH, LAYOUTS, ClusterOrder
from iceberg_compact_sql.plan.layouts.resolve_order import OrderRequest
from iceberg_compact_sql.plan.model import CompactionOptions, CompactionPlan, FileGroup
from iceberg_compact_sql.plan.options import resolve_options
from iceberg_compact_sql.rewrite.task import GroupRewritten


@dataclass(frozen=True, kw_only=True)
class CompactRequest:
    """One compaction of one table. None means the default: of the table's properties, or of the planner."""

    table: str
    branch: str = "main"
    where: str | None = None
    strategy: str = "binpack"
    sort_order: str | None = None
    # None: files are selected by size only, as Iceberg does.
    max_depth: int | None = DEFAULT_MAX_DEPTH
    compression_factor: float | None = None
    max_output_bytes: int | None = None
    var_length_bytes: int | None = None
    target_bytes: int | None = None
    min_file_bytes: int | None = None
    max_file_bytes: int | None = None
    min_input_files: int | None = None
    delete_file_threshold: int | None = None
    delete_ratio_threshold: float | None = None
    max_group_bytes: int | None = None
    max_group_files: int | None = None
    max_files: int | None = None
    rewrite_all: bool = False
    job_order: str = "none"
    output_spec_id: int | None = None
    idle_ms: int | None = None
    min_score: float | None = None
    min_fragment_ratio: float | None = None
    max_bytes: int | None = None
    max_cost_dollars: float | None = None
    time_budget_ms: int | None = None
    partial_progress: bool = False
    max_commits: int = 10
    max_failed_commits: int | None = None
    max_concurrent_groups: int | None = None
    use_starting_sequence_number: bool = True
    remove_dangling_deletes: bool = True
    copy: str = "auto"
    copy_min_row_group_bytes: int | None = None
    verify: str = "checksum"
    write_options: Mapping[str, str] = field(default_factory=dict)
    claim: bool = False

    @property
    def commits_in_parts(self) -> bool:
        """Whether groups are committed as they finish, so that one failed group does not fail the others."""
        return self.partial_progress or self.time_budget_ms is not None

    @property
    def allowed_failed_commits(self) -> int:
        return self.max_commits if self.max_failed_commits is None else self.max_failed_commits

    @property
    def order_request(self) -> OrderRequest | None:
        """The wanted order of rows; None for a strategy that keeps their order."""
        if self.strategy == "binpack":
            return None
        layout = next(layout for layout in LAYOUTS if layout == self.strategy)
        return OrderRequest(layout, self.sort_order, self.max_output_bytes, self.var_length_bytes)

    def planning_options(
        self, properties: Mapping[str, str], spec_ids: Collection[int] | None, order: ClusterOrder | None = None
    ) -> CompactionOptions:
        """Return the planner's options with every default filled in; refuse values that contradict each other."""
        return resolve_options(
            order=order,
            max_depth=self.max_depth if order is not None else None,
            compression_factor=self.compression_factor,
            properties=properties,
            spec_ids=spec_ids,
            target=self.target_bytes,
            min_file_size=self.min_file_bytes,
            max_file_size=self.max_file_bytes,
            output_spec_id=self.output_spec_id,
            min_input_files=self.min_input_files,
            delete_file_threshold=self.delete_file_threshold,
            delete_ratio_threshold=self.delete_ratio_threshold,
            max_group_bytes=self.max_group_bytes,
            max_group_files=self.max_group_files,
            max_files=self.max_files,
            rewrite_all=self.rewrite_all,
            strategy=self.strategy if order is None else order.layout,
            job_order=self.job_order,
            idle_ms=self.idle_ms,
            min_score=self.min_score,
            min_fragment_ratio=self.min_fragment_ratio,
            max_bytes=self.max_bytes,
            max_cost=self.max_cost_dollars,
            time_budget_ms=self.time_budget_ms,
            copy=self.copy,
            copy_min_row_group_bytes=self.copy_min_row_group_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class CompactResult:
    """The result of a compaction. `failures` has the reason for each failed group."""

    rewritten_data_files: int
    added_data_files: int
    rewritten_bytes: int
    failed_data_files: int
    removed_delete_files: int
    added_bytes: int
    rows: int
    copied_row_groups: int
    groups: int
    snapshot_ids: tuple[int, ...]
    elapsed_ms: int
    failures: tuple[str, ...] = ()
    # How many files of a partition overlap in the order of the run; None for a strategy that does not order rows.
    depth_before: float | None = None
    depth_after: float | None = None
    # Column chunks of outputs that were made of input pages without decoding them.
    spliced_columns: int = 0

    @property
    def commits(self) -> int:
        return len(self.snapshot_ids)

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot that was committed; None if nothing was."""
        return self.snapshot_ids[-1] if self.snapshot_ids else None


@dataclass
class Tally:
    """Counts of a running compaction. Every accepted group ends as committed or failed, or the run raises."""

    started: float = field(default_factory=time.monotonic)
    rewritten_files: int = 0
    added_files: int = 0
    rewritten_bytes: int = 0
    failed_files: int = 0
    removed_deletes: int = 0
    added_bytes: int = 0
    rows: int = 0
    copied_row_groups: int = 0
    spliced_columns: int = 0
    groups: int = 0
    failed_commits: int = 0
    # The estimate of the plan, and the parts of it that are committed.
    estimated_seconds: float = 0.0
    estimated_cost: float = 0.0
    prices: Prices = field(default_factory=Prices)
    committed_base_seconds: dict[str, float] = field(default_factory=dict)
    committed_request_cost: float = 0.0
    snapshot_ids: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    depth_before: float | None = None
    depth_after: float | None = None

    def add_commit(self, groups: Sequence[tuple[FileGroup, GroupRewritten]], report: CommitReport) -> None:
        if report.snapshot_id is not None:
            self.snapshot_ids.append(report.snapshot_id)
        self.removed_deletes += report.removed_delete_files
        for group, rewritten in groups:
            self.groups += 1
            self.rewritten_files += len(group.files)
            self.rewritten_bytes += group.input_bytes
            self.added_files += len(rewritten.outputs)
            self.added_bytes += sum(output.size_bytes for output in rewritten.outputs)
            self.rows += rewritten.live_rows
            self.copied_row_groups += rewritten.copied_row_groups
            self.spliced_columns += rewritten.spliced_columns
            base_seconds = self.committed_base_seconds.get(group.way, 0.0) + group.base_seconds
            self.committed_base_seconds[group.way] = base_seconds
            self.committed_request_cost += group.request_cost

    def expect(self, plan: CompactionPlan, prices: Prices) -> None:
        """Keep the estimate of the first plan, to compare it with the outcome."""
        self.estimated_seconds = sum((group.estimated_seconds for group in plan.rewrites), 0.0)
        self.estimated_cost = sum((group.estimated_cost for group in plan.rewrites), 0.0)
        self.prices = prices

    def add_failure(self, files: int, reason: str) -> None:
        self.failed_files += files
        self.failures.append(reason)

    def result(self) -> CompactResult:
        return CompactResult(
            rewritten_data_files=self.rewritten_files,
            added_data_files=self.added_files,
            rewritten_bytes=self.rewritten_bytes,
            failed_data_files=self.failed_files,
            removed_delete_files=self.removed_deletes,
            added_bytes=self.added_bytes,
            rows=self.rows,
            copied_row_groups=self.copied_row_groups,
            groups=self.groups,
            snapshot_ids=tuple(self.snapshot_ids),
            elapsed_ms=int((time.monotonic() - self.started) * 1000),
            failures=tuple(self.failures),
            depth_before=self.depth_before,
            depth_after=self.depth_after,
            spliced_columns=self.spliced_columns,
        )

    def facts(self, strategy: str) -> dict[str, Any]:
        """Return what is committed, as fields of an ActionOutcome."""
        elapsed_seconds = time.monotonic() - self.started
        by_way = self.committed_base_seconds
        way = max(by_way, key=lambda name: by_way[name], default=None)
        return {
            "strategy": strategy,
            "snapshot_ids": tuple(self.snapshot_ids),
            "removed_data_files": self.rewritten_files,
            "added_data_files": self.added_files,
            "removed_delete_files": self.removed_deletes,
            "removed_bytes": self.rewritten_bytes,
            "added_bytes": self.added_bytes,
            "rows": self.rows,
            "cost": self.committed_request_cost + compute_dollars(elapsed_seconds, self.prices, Throughput()),
            "estimated_seconds": self.estimated_seconds,
            "estimated_cost": self.estimated_cost,
            # Runs with failed groups took time for files that are not counted: nothing is learned from them.
            "base_seconds": None if self.failures else sum(by_way.values()) or None,
            "way": "spliced" if way == "encoded" and self.spliced_columns else way,
        }

    def text(self) -> str:
        """Return what was committed, for an error message."""
        if not self.snapshot_ids:
            return "Nothing was committed; the table is as it was."
        return (
            f"{self.groups} group(s) in {len(self.snapshot_ids)} commit(s) are in the table, "
            f"the last one is snapshot {self.snapshot_ids[-1]}."
        )
