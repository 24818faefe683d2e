"""The work of `compact_table`: plan, rewrite, commit, and plan again groups with a concurrent change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.commit_groups import LEASE_MS, Conflict, GroupCommits
from iceberg_compact_sql.actions.compact_request import CompactRequest, CompactResult, Tally
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.past_runs import PastRuns
from iceberg_compact_sql.actions.reporting import reported
from iceberg_compact_sql.actions.writable import writable_table
from iceberg_compact_sql.catalogs.open_table import OpenTable
from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX
from iceberg_compact_sql.commit.lease import release_lease, take_lease
from iceberg_compact_sql.engine.cluster import driver_bytes_setting, shuffle_bytes_setting
from iceberg_compact_sql.engine.renewed_job import RenewedJob
from iceberg_compact_sql.engine.run_groups import check_strategy, rewrite_groups
from iceberg_compact_sql.engine.runner import RewriteProgress, RewriteRun
from iceberg_compact_sql.errors import (
    CommitConflictError,
    IcebergCompactError,
    RewriteFailedError,
)
from iceberg_compact_sql.plan.compaction import plan_compaction, table_depth
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.layouts.resolve_order import OrderTable, resolve_order
from iceberg_compact_sql.plan.learned_pace import LearnedPaces
from iceberg_compact_sql.plan.model import CompactionOptions, CompactionPlan, FileGroup
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.rewrite.job import build_job
from iceberg_compact_sql.rewrite.scan.stored_columns import stored_schema
from iceberg_compact_sql.rewrite.task import GroupFailed, GroupOutcome, GroupRewritten
from iceberg_compact_sql.storage.io_properties import io_properties
from iceberg_compact_sql.table.inventory import TableInventory, read_inventory

_log = masked_logger(__name__)
# How often a group that conflicts with a concurrent change is planned and rewritten again on the new head.
_MAX_REPLANS = 4
_ALL_GONE = "other commits have removed all its files"
_OUT_OF_TIME = "the time budget was used up before it could be rewritten again"


def plan_compact(request: CompactRequest, context: Context) -> CompactionPlan:
    """Return the groups that `compact` would rewrite now, and why; reads only manifests and changes nothing."""
    with context.run(lambda: (None, "Nothing was changed.")):
        return _Compaction.prepare(request, context).plan()


def compact(request: CompactRequest, context: Context) -> CompactResult:
    """Rewrite and commit the groups that the plan selects.

    Commits only REPLACE snapshots: the rows of the table do not change. Every group that the plan accepts
    ends as committed, as failed (counted, with its reason in `failures`) or with an error. A cancelled run raises
    RunCancelledError: its `result` counts what was committed, and files that were not committed are removed.
    """
    tally = Tally()
    with (
        reported(context, "compact_table", request.table, lambda: tally.facts(request.strategy)),
        context.run(lambda: (tally.result(), tally.text())),
    ):
        compaction = _Compaction.prepare(request, context, tally)
        plan = compaction.plan()
        tally.depth_before = tally.depth_after = plan.depth
        if plan.rewrites:
            compaction.execute(plan)
            compaction.measure_depth()
        # Before the listeners of the run's end, whose time is not the run's.
        return tally.result()


@dataclass
class _Compaction:
    """One compaction of one table."""

    context: Context
    request: CompactRequest
    opened: OpenTable
    options: CompactionOptions
    where: Any
    prices: Prices
    driver_bytes: int | None
    shuffle_bytes: int | None
    paces: LearnedPaces
    tally: Tally = field(default_factory=Tally)

    @classmethod
    def prepare(cls, request: CompactRequest, context: Context, tally: Tally | None = None) -> _Compaction:
        """Open the table and check everything that can be checked without reading manifests."""
        check_strategy(request.strategy)
        driver_bytes = driver_bytes_setting(f"{SETTING_PREFIX}driver_bytes", context.view.setting("driver_bytes"))
        shuffle_bytes = shuffle_bytes_setting(f"{SETTING_PREFIX}shuffle_bytes", context.view.setting("shuffle_bytes"))
        opened = writable_table(context, request.table)
        metadata = opened.table.metadata
        stored_schema(metadata.schema())
        options = _planning_options(request, context, opened)
        where = context.read_where(request.where, opened.table)
        prices = Prices.from_settings(context.view.conf)
        paces = PastRuns(context).paces(request.table)
        sizes = (driver_bytes, shuffle_bytes)
        return cls(context, request, opened, options, where, prices, *sizes, paces, tally or Tally())

    def plan(self, accepted_paths: frozenset[str] | None = None) -> CompactionPlan:
        """Return which files of the branch's head are rewritten, and why; reads only manifests."""
        inventory = self._inventory()
        plan = plan_compaction(
            inventory,
            self.options,
            now_ms=self.context.now_ms,
            prices=self.prices,
            where_given=self.where is not None,
            accepted_paths=accepted_paths,
            paces=self.paces,
        )
        if accepted_paths is None:
            self.tally.expect(plan, self.prices)
        events.reach(
            "plan.done",
            table=self.opened.name,
            groups=len(plan.rewrites),
            partitions=len({(group.spec_id, group.partition_path) for group in plan.rewrites}),
            files=sum(len(group.files) for group in plan.rewrites),
            input_bytes=sum(group.input_bytes for group in plan.rewrites),
        )
        return plan

    def _inventory(self) -> TableInventory:
        order = self.options.order
        columns = () if order is None else tuple(dict.fromkeys(field.source_id for field in order.fields))
        return read_inventory(self.opened.table, self.request.branch, self.where, bounds_of=columns)

    def measure_depth(self) -> None:
        """Measure the clustering depth of the new head, after at least one commit."""
        if self.options.order is None or not self.tally.snapshot_ids:
            return
        self.tally.depth_after = None
        # The run is committed: if the table cannot be read again now, only its depth is unknown.
        with contextlib.suppress(IcebergCompactError, OSError):
            self.opened = self.opened.reload()
            self.tally.depth_after = table_depth(self._inventory(), self.options)

    def execute(self, plan: CompactionPlan) -> None:
        """Rewrite and commit the plan's groups; groups in conflict are planned again on the new head."""
        try:
            with self._lease():
                conflicts = self._rewrite_and_commit(plan, attempt=1)
                for attempt in range(1, _MAX_REPLANS + 1):
                    if not conflicts:
                        break
                    events.reach(
                        "compact.conflict",
                        table=self.opened.name,
                        groups=len(conflicts),
                        attempt=attempt,
                        reason=conflicts[0][1],
                    )
                    conflicts = self._rewrite_and_commit(self._planned_again(conflicts), attempt=attempt + 1)
                if conflicts:
                    self._give_up(conflicts)
        finally:
            # Also after a failure: earlier commits of this run are in the table.
            if self.tally.snapshot_ids:
                self.context.refresh(self.opened)

    @contextlib.contextmanager
    def _lease(self) -> Iterator[None]:
        """Hold the table's lease while the block runs, if the user asked for it."""
        if not self.request.claim:
            yield
            return
        run_id = self.context.observer.run_id
        take_lease(self.opened.table, run_id, LEASE_MS)
        try:
            yield
        except BaseException:
            # The error of the run matters more than that of the lease, which ends by itself.
            with contextlib.suppress(IcebergCompactError):
                release_lease(self.opened.table, run_id)
            raise
        release_lease(self.opened.table, run_id)

    def _planned_again(self, conflicts: Sequence[Conflict]) -> CompactionPlan:
        """Return a plan of only the files of these groups, on the current head and without budgets.

        Files that were removed, or for which a rewrite no longer gains anything, count as failed.
        """
        paths = frozenset(file.path for group, _ in conflicts for file in group.files)
        try:
            self.opened = self.opened.reload()
            # Bind the column names again: a column may have been renamed or replaced.
            self.where = self.context.read_where(self.request.where, self.opened.table)
            self.options = _planning_options(self.request, self.context, self.opened)
            plan = self.plan(accepted_paths=paths)
        except IcebergCompactError as error:
            raise CommitConflictError(
                f"{len(conflicts)} group(s) met a concurrent change and cannot be planned again: {error.detail}",
                hint=f"{conflicts[0][1]}. {self.tally.text()}",
            ) from error
        planned = {file.path: group for group in plan.groups for file in group.files}
        for group, _ in conflicts:
            replanned = [planned[file.path] for file in group.files if file.path in planned]
            skipped = [new_group for new_group in replanned if new_group.action == "skip"]
            if skipped:
                self._count_failed(group, len(skipped), f"left alone after a concurrent change: {skipped[0].reason}")
            elif not any(file.path in planned for file in group.files):
                self._count_failed(group, len(group.files), _ALL_GONE)
        return plan

    def _rewrite_and_commit(self, plan: CompactionPlan, *, attempt: int) -> list[Conflict]:
        """Commit finished groups in batches; return groups that conflict with a concurrent change, with the reason."""
        if not plan.rewrites:
            return []
        events.reach(
            "compact.start",
            table=self.opened.name,
            groups=len(plan.rewrites),
            files=sum(len(group.files) for group in plan.rewrites),
            input_bytes=sum(group.input_bytes for group in plan.rewrites),
            attempt=attempt,
        )
        run_id, engine_summary = self.context.observer.run_id, self.context.engine_summary
        commits = GroupCommits(self.request, self.opened, plan, self.tally, run_id, engine_summary)
        waiting = {group.group_id: group for group in plan.rewrites}
        batch_size = self._batch_size(len(waiting))
        conflicts: list[Conflict] = []
        pending: list[tuple[FileGroup, GroupRewritten]] = []
        failed: list[tuple[FileGroup, GroupFailed]] = []
        try:
            # Close before raising: this stops running tasks and removes their files.
            with contextlib.closing(self._outcomes(plan)) as outcomes:
                for outcome in outcomes:
                    group = waiting.pop(outcome.group_id)
                    if isinstance(outcome, GroupRewritten):
                        pending.append((group, outcome))
                        self._report_rewritten(group, outcome)
                    else:
                        failed.append((group, outcome))
                        self._count_failed(group, len(group.files), outcome.reason)
                        if not self.request.commits_in_parts:
                            raise self._rewrite_failed(failed)
                    if len(pending) >= batch_size:
                        batch, pending = pending, []
                        conflicts.extend(commits.commit(batch))
            batch, pending = pending, []
            conflicts.extend(commits.commit(batch))
        except BaseException:
            # Safe: `pending` holds outputs of this run that were never part of a commit.
            commits.discard(pending)
            raise
        self._count_unstarted(waiting.values(), attempt)
        if failed and not self.tally.snapshot_ids and not conflicts:
            raise self._rewrite_failed(failed)
        return conflicts

    def _batch_size(self, groups: int) -> int:
        if not self.request.commits_in_parts:
            return groups + 1
        return -(-groups // self.request.max_commits)

    def _outcomes(self, plan: CompactionPlan) -> Generator[GroupOutcome, None, None]:
        job = build_job(
            self.opened.table,
            options=self.options,
            overrides=self.request.write_options,
            verify=self.request.verify,
            run_id=self.context.observer.run_id,
            output_spec_id=plan.rewrites[0].output_spec_id,
            cores=self.context.cores,
        )
        renewing = RenewedJob(job, self._io_now)
        for wave in self._waves(plan.rewrites):
            run = RewriteRun(
                spark=self.context.spark,
                job=renewing.current(),
                description=f"compact_table {self.opened.name}: rewriting",
                driver_bytes=self.driver_bytes,
                shuffle_bytes=self.shuffle_bytes,
                max_concurrent_groups=self.request.max_concurrent_groups,
                on_progress=_shares(sum(group.input_bytes for group in wave)),
                renewed_io=self._io_now,
                start_spark=None if self.context.start_spark is None else self.context.needed_spark,
            )
            yield from rewrite_groups(run, wave, plan.options.strategy)

    def _io_now(self) -> Mapping[str, str]:
        return io_properties(self.opened.reload().table.io.properties)

    def _waves(self, groups: Sequence[FileGroup]) -> Iterator[Sequence[FileGroup]]:
        """Yield all groups at once; with a time budget one by one, while the measured speed allows it."""
        if self.options.time_budget_ms is None:
            yield groups
            return
        done_bytes, began = 0, time.monotonic()
        for group in groups:
            spent = time.monotonic() - began
            expected = spent / done_bytes * group.input_bytes if done_bytes else group.estimated_seconds
            left = self.options.time_budget_ms / 1000 - (time.monotonic() - self.tally.started)
            if expected > left:
                return
            yield (group,)
            done_bytes += group.input_bytes

    def _count_unstarted(self, groups: Collection[FileGroup], attempt: int) -> None:
        """Report groups that the time budget excluded: those of the first plan wait for another run, others fail."""
        if groups and attempt == 1:
            events.reach("compact.left", table=self.opened.name, groups=len(groups))
        elif groups:
            for group in groups:
                self._count_failed(group, len(group.files), _OUT_OF_TIME)

    def _report_rewritten(self, group: FileGroup, outcome: GroupRewritten) -> None:
        events.reach(
            "compact.group",
            table=self.opened.name,
            group_id=group.group_id,
            partition=group.partition_path,
            files=len(group.files),
            input_bytes=group.input_bytes,
            outputs=len(outcome.outputs),
            written_bytes=sum(output.size_bytes for output in outcome.outputs),
            notes=outcome.notes,
        )

    def _count_failed(self, group: FileGroup, files: int, reason: str) -> None:
        self.tally.add_failure(files, reason)
        events.reach(
            "compact.group_failed",
            table=self.opened.name,
            group_id=group.group_id,
            partition=group.partition_path,
            files=files,
            reason=reason,
        )

    def _give_up(self, conflicts: Sequence[Conflict]) -> None:
        files = sum(len(group.files) for group, _ in conflicts)
        message = (
            f"{len(conflicts)} group(s) of {files} file(s) met concurrent changes {_MAX_REPLANS + 1} times: "
            f"{conflicts[0][1]}"
        )
        for group, reason in conflicts:
            self._count_failed(group, len(group.files), f"it met concurrent changes {_MAX_REPLANS + 1} times: {reason}")
        if not self.request.commits_in_parts or not self.tally.snapshot_ids:
            raise CommitConflictError(
                message, hint=f"{self.tally.text()} Run it again when fewer writes are in progress."
            )

    def _rewrite_failed(self, failed: Sequence[tuple[FileGroup, GroupFailed]]) -> RewriteFailedError:
        group, failure = failed[0]
        more = f" ({len(failed)} groups failed)" if len(failed) > 1 else ""
        where = f" of partition {group.partition_path}" if group.partition_path else ""
        # With partial_progress the other groups were already tried.
        advice = (
            "" if self.request.commits_in_parts else " With partial_progress => true the other groups are committed."
        )
        return RewriteFailedError(
            f"group {group.group_id}{where} could not be rewritten: {failure.reason}{more}",
            hint=f"{self.tally.text()}{advice}",
        )


def _planning_options(request: CompactRequest, context: Context, opened: OpenTable) -> CompactionOptions:
    """Return the planner's options; the order of a clustering run is bound to the table's current columns."""
    metadata = opened.table.metadata
    wanted = request.order_request
    if wanted is None:
        return request.planning_options(metadata.properties, metadata.specs())
    case_sensitive = context.view.case_sensitive
    full_name = ".".join((opened.catalog_name, *opened.identifier))
    table = OrderTable.of(full_name, metadata, request.output_spec_id, case_sensitive=case_sensitive)
    resolved = resolve_order(wanted, table)
    for note in resolved.notes:
        _log.warning("%s: %s", opened.name, note)
    return request.planning_options(metadata.properties, metadata.specs(), resolved.order)


def _shares(wave_bytes: int) -> Callable[[RewriteProgress], None]:
    """Return a callback that reports an equal share of the bytes for each finished task."""

    def report(progress: RewriteProgress) -> None:
        events.reach("compact.progress", input_bytes=wave_bytes / progress.tasks_total)

    return report
