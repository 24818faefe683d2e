"""Commits rewritten groups, counts them, removes outputs that were not committed, and returns conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.compact_request import CompactRequest, Tally
from iceberg_compact_sql.catalogs.open_table import OpenTable
from iceberg_compact_sql.commit.lease import take_lease
from iceberg_compact_sql.commit.model import CommitInterrupted, CommitReport, Outcome, Replacement
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.commit.run_stamps import group_fingerprint, stamp_summary
from iceberg_compact_sql.errors import CommitConflictError, CommitUnknownError, IcebergCompactError
from iceberg_compact_sql.plan.model import CompactionPlan, FileGroup
from iceberg_compact_sql.rewrite.task import GroupRewritten
from iceberg_compact_sql.storage.remove_created import remove_files
from iceberg_compact_sql.table.summary_keys import SIZES

# A run that dies blocks other runs only for this time; a long run renews its lease with each commit.
LEASE_MS = 3_600_000
Conflict = tuple[FileGroup, str]
Batch = Sequence[tuple[FileGroup, GroupRewritten]]


@dataclass(frozen=True)
class GroupCommits:
    """The commits of one plan's groups to one table."""

    request: CompactRequest
    opened: OpenTable
    plan: CompactionPlan
    tally: Tally
    run_id: str
    # What every snapshot says about the engine that made it.
    engine_summary: Mapping[str, str]

    def commit(self, batch: Batch) -> list[Conflict]:
        """Commit a batch in one snapshot; return groups that conflict with a concurrent change, with the reason.

        A cancelled run ends before the commit starts, never during it.
        """
        if not batch:
            return []
        try:
            events.reach("compact.committing", table=self.opened.name, groups=len(batch))
            if self.request.claim:
                take_lease(self.opened.table, self.run_id, LEASE_MS)
        except BaseException:
            # Safe: these outputs were never part of a commit.
            self.discard(batch)
            raise
        with events.uninterrupted():
            report = self._report(batch)
        if report.outcome is Outcome.UNKNOWN:
            raise CommitUnknownError(
                f"the catalog did not say whether snapshot {report.snapshot_id} was committed: {report.detail}",
                hint=f"Look for snapshot {report.snapshot_id} in the table's history; no file was deleted. "
                f"{self.tally.text()}",
            )
        by_id = {group.group_id: (group, rewritten) for group, rewritten in batch}
        committed = [by_id[key] for key in report.committed]
        if report.outcome is Outcome.COMMITTED:
            self.tally.add_commit(committed, report)
        lost = {key: report.conflicts.get(key, report.detail) for key in by_id if key not in report.committed}
        # Safe: the report says for certain that these outputs are in no snapshot.
        self.discard([by_id[key] for key in lost])
        if report.outcome is Outcome.COMMITTED:
            events.reach(
                "compact.committed",
                table=self.opened.name,
                snapshot_id=report.snapshot_id,
                groups=len(committed),
                files=sum(len(group.files) for group, _ in committed),
                outputs=sum(len(rewritten.outputs) for _, rewritten in committed),
                output_bytes=tuple(output.size_bytes for _, rewritten in committed for output in rewritten.outputs),
            )
        if report.outcome is Outcome.FAILED:
            self._count_failed(report, [by_id[key] for key in lost])
            return []
        return [(by_id[key][0], reason) for key, reason in lost.items()]

    def discard(self, batch: Batch) -> None:
        """Remove the outputs of groups that are in no snapshot."""
        paths = [output.path for _, rewritten in batch for output in rewritten.outputs]
        if paths:
            events.reach("clean.outputs", paths=tuple(paths))
            remove_files(self.opened.table.io, paths)

    def _report(self, batch: Batch) -> CommitReport:
        keep = self.request.use_starting_sequence_number
        replacements = [
            Replacement(
                key=group.group_id,
                removed=group.files,
                added=rewritten.outputs,
                data_sequence_number=self.plan.state.sequence_number if keep else None,
            )
            for group, rewritten in batch
        ]
        fingerprints = [group_fingerprint(file.path for file in group.files) for group, _ in batch]
        try:
            return commit_replacements(
                self.opened.table,
                replacements,
                state=self.plan.state,
                remove_dangling_deletes=self.request.remove_dangling_deletes,
                summary={
                    **self.engine_summary,
                    **stamp_summary(self.run_id, fingerprints),
                    SIZES: self.plan.options.sizes_text,
                },
            )
        except CommitInterrupted as interrupt:
            if interrupt.report.outcome is not Outcome.UNKNOWN:
                # Safe: the table was checked, and these outputs are in no snapshot.
                self.discard([pair for pair in batch if pair[0].group_id not in interrupt.report.committed])
            raise
        except IcebergCompactError:
            # Safe: the commit raises this only if it is certainly not in the table.
            self.discard(batch)
            raise

    def _count_failed(self, report: CommitReport, lost: Batch) -> None:
        self.tally.failed_commits += 1
        for group, _ in lost:
            self.tally.add_failure(len(group.files), f"the commit failed: {report.detail}")
        if not self.request.commits_in_parts or self.tally.failed_commits > self.request.allowed_failed_commits:
            raise CommitConflictError(f"the commit failed: {report.detail}", hint=f"{self.tally.text()} Run it again.")
        events.reach("compact.commit_failed", table=self.opened.name, groups=len(lost), reason=report.detail)
