"""A compaction from plan to result: rewriting, committing in batches, redoing what others got in the way of."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.writable import writable_table
from iceberg_compact_sql.call.declaration import Arguments, Row
from iceberg_compact_sql.catalogs.open_table import OpenTable
from iceberg_compact_sql.commit.lease import claim, release
from iceberg_compact_sql.commit.model import CommitInterrupted, CommitReport, Outcome, Replacement
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.commit.run_stamps import group_fingerprint, stamp_summary
from iceberg_compact_sql.engine.run_groups import RenewedJob, RewriteProgress, rewrite_groups
from iceberg_compact_sql.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergCompactError,
    RewriteFailedError,
    UnsupportedError,
)
from iceberg_compact_sql.plan.compaction import plan_compaction
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.model import CompactionOptions, CompactionPlan, FileGroup
from iceberg_compact_sql.plan.options import resolve_options
from iceberg_compact_sql.report.progress import Progress, progress_for
from iceberg_compact_sql.rewrite.job import build_job
from iceberg_compact_sql.rewrite.task import GroupFailed, GroupOutcome, GroupRewritten, RewriteJob
from iceberg_compact_sql.storage.io_properties import io_properties
from iceberg_compact_sql.storage.remove_created import remove_files
from iceberg_compact_sql.table.inventory import read_inventory
from iceberg_compact_sql.table.summary_keys import SIZES

LOGGER = logging.getLogger("iceberg_compact_sql")
# A run that dies keeps others away for so long at most; a long run renews it with each commit.
_LEASE_MS = 3_600_000
# How often a group that a concurrent change got in the way of is planned and rewritten again on the new head.
_REDO_LIMIT = 4
Conflict = tuple[FileGroup, str]


@dataclass
class Totals:
    """What a run has done so far: every group ends in exactly one of committed, failed or left."""

    started: float = field(default_factory=time.monotonic)
    rewritten_files: int = 0
    added_files: int = 0
    rewritten_bytes: int = 0
    failed_files: int = 0
    removed_deletes: int = 0
    added_bytes: int = 0
    rows: int = 0
    copied_row_groups: int = 0
    groups: int = 0
    commits: int = 0
    failed_commits: int = 0
    snapshot_id: int | None = None

    def committed(self, groups: Sequence[tuple[FileGroup, GroupRewritten]], report: CommitReport) -> None:
        self.commits += 1
        self.snapshot_id = report.snapshot_id
        self.removed_deletes += report.removed_delete_files
        for group, rewritten in groups:
            self.groups += 1
            self.rewritten_files += len(group.files)
            self.rewritten_bytes += group.input_bytes
            self.added_files += len(rewritten.outputs)
            self.added_bytes += sum(output.size_bytes for output in rewritten.outputs)
            self.rows += rewritten.live_rows
            self.copied_row_groups += rewritten.copied_row_groups

    def row(self) -> Row:
        return (
            self.rewritten_files,
            self.added_files,
            self.rewritten_bytes,
            self.failed_files,
            self.removed_deletes,
            self.added_bytes,
            self.rows,
            self.copied_row_groups,
            self.groups,
            self.commits,
            self.snapshot_id,
            int((time.monotonic() - self.started) * 1000),
        )

    def told(self) -> str:
        """What is in the table, for an error message."""
        if not self.commits:
            return "Nothing was committed; the table is as it was."
        return (
            f"{self.groups} group(s) in {self.commits} commit(s) are in the table, "
            f"the last one is snapshot {self.snapshot_id}."
        )


@dataclass
class Compaction:
    """One `compact_table` call on one table."""

    context: Context
    arguments: Arguments
    opened: OpenTable
    options: CompactionOptions
    where: Any
    prices: Prices
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    totals: Totals = field(default_factory=Totals)

    @classmethod
    def prepare(cls, context: Context, arguments: Arguments) -> Compaction:
        """Open the table and check everything that can be checked before files are looked at."""
        if arguments["strategy"] != "binpack" or arguments["sort_order"] is not None:
            raise UnsupportedError(
                f"strategy '{arguments['strategy']}' is not there yet",
                argument="strategy",
                value=arguments["strategy"],
                hint="Use strategy => 'binpack' without sort_order; clustering comes in a later version.",
            )
        opened = writable_table(context, arguments["table"])
        metadata = opened.table.metadata
        options = planning_options(arguments, metadata.properties, metadata.specs())
        where = context.read_where(arguments["where"], opened.table)
        return cls(context, arguments, opened, options, where, Prices.from_settings(context.view.conf))

    def plan(self) -> CompactionPlan:
        """Which files of the branch's head are rewritten, and why; reads manifests only."""
        inventory = read_inventory(self.opened.table, self.arguments["branch"], self.where)
        plan = plan_compaction(
            inventory, self.options, now_ms=self.context.now_ms, prices=self.prices, where_given=self.where is not None
        )
        events.reach("plan.done", table=self.opened.name, groups=len(plan.rewrites))
        return plan

    def execute(self, plan: CompactionPlan) -> Totals:
        """Rewrite and commit the plan's groups; groups in conflict are planned again on the new head."""
        if not plan.rewrites:
            return self.totals
        title = f"compact_table {self.opened.name}"
        try:
            with (
                progress_for(title, self.context.view.setting("progress")) as progress,
                self._claimed(),
            ):
                conflicts = self._rewrite_and_commit(plan, progress)
                for attempt in range(_REDO_LIMIT):
                    if not conflicts:
                        break
                    LOGGER.info(
                        "%s: %d group(s) in conflict, planned again (try %d)", title, len(conflicts), attempt + 1
                    )
                    conflicts = self._rewrite_and_commit(self._replanned(conflicts), progress)
                if conflicts:
                    self._give_up(conflicts)
        finally:
            # Also after a failure: what was committed before it is in the table.
            if self.totals.commits:
                self.context.refresh(self.opened)
        return self.totals

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[None]:
        """Hold the table's lease while the block runs, if the user asked for it."""
        if not self.arguments["claim"]:
            yield
            return
        claim(self.opened.table, self.run_id, _LEASE_MS)
        try:
            yield
        finally:
            release(self.opened.table, self.run_id)

    def _replanned(self, conflicts: Sequence[Conflict]) -> CompactionPlan:
        """The part of a new plan, on the head as it is now, that concerns the files of these groups."""
        paths = {file.path for group, _ in conflicts for file in group.files}
        try:
            self.opened = self.opened.reload()
            # By name, as the user gave it: a column may have been renamed, or be another one by now.
            self.where = self.context.read_where(self.arguments["where"], self.opened.table)
            plan = self.plan()
        except IcebergCompactError as error:
            raise CommitConflictError(
                f"{len(conflicts)} group(s) met a concurrent change and cannot be planned again: {error.detail}",
                hint=f"{conflicts[0][1]}. {self.totals.told()}",
            ) from error
        groups = tuple(g for g in plan.rewrites if any(file.path in paths for file in g.files))
        return replace(plan, groups=groups)

    def _rewrite_and_commit(self, plan: CompactionPlan, progress: Progress) -> list[Conflict]:
        """Commit what finishes, in batches; what lost against a concurrent change comes back with the reason."""
        if not plan.rewrites:
            return []
        by_id = {group.group_id: group for group in plan.rewrites}
        progress.step("rewriting", sum(group.input_bytes for group in plan.rewrites))
        batch_size = self._batch_size(len(by_id))
        conflicts: list[Conflict] = []
        pending: list[tuple[FileGroup, GroupRewritten]] = []
        failures: list[tuple[FileGroup, GroupFailed]] = []
        try:
            for outcome in self._outcomes(plan, progress):
                group = by_id[outcome.group_id]
                if isinstance(outcome, GroupRewritten):
                    pending.append((group, outcome))
                if isinstance(outcome, GroupFailed):
                    failures.append((group, outcome))
                    self.totals.failed_files += len(group.files)
                    LOGGER.warning(
                        "compact_table %s: group %d failed: %s", self.opened.name, group.group_id, outcome.reason
                    )
                    if not self._partial:
                        break
                    continue
                for note in outcome.notes:
                    LOGGER.info("compact_table %s: group %d: %s", self.opened.name, group.group_id, note)
                if len(pending) >= batch_size:
                    batch, pending = pending, []
                    conflicts.extend(self._commit(plan, batch, progress))
            if failures and not self._partial:
                raise self._rewrite_failed(failures)
            batch, pending = pending, []
            conflicts.extend(self._commit(plan, batch, progress))
        except BaseException:
            # Safe: `pending` holds outputs of this run that were never handed to a commit.
            self._discard(pending)
            raise
        if failures and not self.totals.commits and not conflicts:
            raise self._rewrite_failed(failures)
        return conflicts

    @property
    def _partial(self) -> bool:
        return bool(self.arguments["partial_progress"]) or self.options.time_budget_ms is not None

    def _batch_size(self, groups: int) -> int:
        if not self._partial:
            return groups + 1
        return -(-groups // int(self.arguments["max_commits"]))

    def _outcomes(self, plan: CompactionPlan, progress: Progress) -> Iterator[GroupOutcome]:
        renewing = RenewedJob(self._job(plan), self._io_now)
        for wave in self._waves(plan.rewrites):
            wave_bytes = sum(group.input_bytes for group in wave)
            yield from rewrite_groups(
                self.context.spark,
                renewing.current(),
                wave,
                description=f"compact_table {self.opened.name}: rewriting",
                max_concurrent_groups=self.arguments["max_concurrent_groups"],
                on_progress=_shares(wave_bytes, progress),
                renewed_io=self._io_now,
            )

    def _job(self, plan: CompactionPlan) -> RewriteJob:
        return build_job(
            self.opened.table,
            options=self.options,
            overrides=self.arguments["options"],
            verify=self.arguments["verify"],
            run_id=self.run_id,
            output_spec_id=plan.rewrites[0].output_spec_id,
            cores=self.context.cores,
        )

    def _io_now(self) -> Mapping[str, str]:
        return io_properties(self.opened.reload().table.io.properties)

    def _waves(self, groups: Sequence[FileGroup]) -> Iterator[Sequence[FileGroup]]:
        """All groups at once; under a time budget one by one, as long as the measured pace lets them finish."""
        if self.options.time_budget_ms is None:
            yield groups
            return
        done_bytes, began = 0, time.monotonic()
        for index, group in enumerate(groups):
            spent = time.monotonic() - began
            expected = spent / done_bytes * group.input_bytes if done_bytes else group.estimated_seconds
            left = self.options.time_budget_ms / 1000 - (time.monotonic() - self.totals.started)
            if expected > left:
                LOGGER.info(
                    "compact_table %s: %d group(s) left for another run, the time budget is used up",
                    self.opened.name,
                    len(groups) - index,
                )
                return
            yield (group,)
            done_bytes += group.input_bytes

    def _commit(
        self, plan: CompactionPlan, batch: Sequence[tuple[FileGroup, GroupRewritten]], progress: Progress
    ) -> list[Conflict]:
        if not batch:
            return []
        progress.step("committing")
        if self.arguments["claim"]:
            claim(self.opened.table, self.run_id, _LEASE_MS)
        keep = self.arguments["use_starting_sequence_number"]
        replacements = [
            Replacement(
                key=group.group_id,
                removed=group.files,
                added=rewritten.outputs,
                data_sequence_number=plan.state.sequence_number if keep else None,
                applied_deletes=group.distinct_deletes,
            )
            for group, rewritten in batch
        ]
        report = self._report(plan, batch, replacements)
        if report.outcome is Outcome.UNKNOWN:
            raise CommitUnknownError(
                f"the catalog did not say whether snapshot {report.snapshot_id} was committed: {report.detail}",
                hint=f"Look for snapshot {report.snapshot_id} in the table's history; no file was deleted. "
                f"{self.totals.told()}",
            )
        by_id = {group.group_id: (group, rewritten) for group, rewritten in batch}
        if report.outcome is Outcome.COMMITTED:
            self.totals.committed([by_id[key] for key in report.committed], report)
        lost = {key: report.conflicts.get(key, report.detail) for key in by_id if key not in report.committed}
        # Safe: the report says for certain that these outputs are in no snapshot.
        self._discard([by_id[key] for key in lost])
        if report.outcome is Outcome.FAILED:
            self._failed_commit(report, [by_id[key] for key in lost])
            return []
        return [(by_id[key][0], reason) for key, reason in lost.items()]

    def _report(
        self,
        plan: CompactionPlan,
        batch: Sequence[tuple[FileGroup, GroupRewritten]],
        replacements: Sequence[Replacement],
    ) -> CommitReport:
        fingerprints = [group_fingerprint(file.path for file in group.files) for group, _ in batch]
        try:
            return commit_replacements(
                self.opened.table,
                replacements,
                state=plan.state,
                remove_dangling_deletes=self.arguments["remove_dangling_deletes"],
                summary={**stamp_summary(self.run_id, fingerprints), SIZES: self.options.sizes_text},
            )
        except CommitInterrupted as interrupt:
            if interrupt.report.outcome is not Outcome.UNKNOWN:
                # Safe: the table was asked, and these outputs are in no snapshot.
                self._discard([one for one in batch if one[0].group_id not in interrupt.report.committed])
            raise
        except IcebergCompactError:
            # Safe: the commit refuses in this way only when nothing of it can be in the table.
            self._discard(batch)
            raise

    def _failed_commit(self, report: CommitReport, lost: Sequence[tuple[FileGroup, GroupRewritten]]) -> None:
        self.totals.failed_commits += 1
        self.totals.failed_files += sum(len(group.files) for group, _ in lost)
        allowed = self.arguments["max_failed_commits"]
        allowed = self.arguments["max_commits"] if allowed is None else allowed
        if not self._partial or self.totals.failed_commits > allowed:
            raise CommitConflictError(f"the commit failed: {report.detail}", hint=f"{self.totals.told()} Run it again.")
        LOGGER.warning("compact_table %s: a commit failed: %s", self.opened.name, report.detail)

    def _discard(self, groups: Sequence[tuple[FileGroup, GroupRewritten]]) -> None:
        paths = [output.path for _, rewritten in groups for output in rewritten.outputs]
        if paths:
            events.reach("clean.outputs", paths=tuple(paths))
            remove_files(self.opened.table.io, paths)

    def _give_up(self, conflicts: Sequence[Conflict]) -> None:
        files = sum(len(group.files) for group, _ in conflicts)
        self.totals.failed_files += files
        reason = conflicts[0][1]
        message = (
            f"{len(conflicts)} group(s) of {files} file(s) met concurrent changes {_REDO_LIMIT + 1} times: {reason}"
        )
        if not self._partial or not self.totals.commits:
            raise CommitConflictError(message, hint=f"{self.totals.told()} Run it again when the writer rests.")
        LOGGER.warning("compact_table %s: %s", self.opened.name, message)

    def _rewrite_failed(self, failures: Sequence[tuple[FileGroup, GroupFailed]]) -> RewriteFailedError:
        group, failure = failures[0]
        more = f" ({len(failures)} groups failed)" if len(failures) > 1 else ""
        where = f" of partition {group.partition_path}" if group.partition_path else ""
        return RewriteFailedError(
            f"group {group.group_id}{where} could not be rewritten: {failure.reason}{more}",
            hint=f"{self.totals.told()} With partial_progress => true the other groups are committed.",
        )


def _shares(wave_bytes: int, progress: Progress) -> Callable[[RewriteProgress], None]:
    """Tasks are of about even size: each one that is done is its share of the bytes."""

    def told(reached: RewriteProgress) -> None:
        progress.advance(wave_bytes / reached.tasks_total)

    return told


def planning_options(
    arguments: Arguments, properties: Mapping[str, str], spec_ids: Collection[int] | None
) -> CompactionOptions:
    """What planning needs of the bound arguments of `compact_table`."""
    same_name = (
        "target",
        "min_file_size",
        "max_file_size",
        "min_input_files",
        "delete_file_threshold",
        "delete_ratio_threshold",
        "max_group_files",
        "max_files",
        "rewrite_all",
        "job_order",
        "output_spec_id",
        "min_score",
        "max_bytes",
        "max_cost",
        "copy",
    )
    return resolve_options(
        properties=properties,
        spec_ids=spec_ids,
        max_group_bytes=arguments["max_group_size"],
        idle_ms=arguments["idle"],
        time_budget_ms=arguments["time_budget"],
        copy_min_row_group_bytes=arguments["copy_min_row_group_size"],
        **{name: arguments[name] for name in same_name},
    )
