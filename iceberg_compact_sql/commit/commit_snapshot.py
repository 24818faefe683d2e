"""Commit one snapshot as the new head of a branch, and prove whether it landed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import ancestors_of

from iceberg_compact_sql import events
from iceberg_compact_sql.commit.commit_loop import Rejection, Request, commit_change
from iceberg_compact_sql.commit.conflicts import is_ancestor
from iceberg_compact_sql.commit.landed import branch_holds_any, manifest_list_in_log
from iceberg_compact_sql.commit.metadata_writer import MetadataWriter
from iceberg_compact_sql.commit.model import Outcome
from iceberg_compact_sql.commit.outcome import (
    SnapshotPresence,
    classify_error,
    describe,
    snapshot_presence,
    wait_for_snapshot,
)
from iceberg_compact_sql.commit.snapshot_draft import Head, SnapshotDraft, read_head
from iceberg_compact_sql.commit.summary import replace_summary
from iceberg_compact_sql.errors import CommitConflictError, IcebergCompactError
from iceberg_compact_sql.format_versions import require_writable, rules_of
from iceberg_compact_sql.pyiceberg_internals.manifest_lists import read_manifests
from iceberg_compact_sql.pyiceberg_internals.requests import (
    delete_old_metadata,
    replace_request,
)
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.storage.remove_created import remove_files
from iceberg_compact_sql.table.retries import RetryPolicy

_log = masked_logger(__name__)

Build = Callable[[Head, int], SnapshotDraft | None]


@dataclass(frozen=True, slots=True)
class SnapshotCommitResult:
    """How a commit ended; `interrupted` is a Ctrl-C that the caller must raise again."""

    outcome: Outcome
    snapshot_id: int | None = None
    detail: str = ""
    draft: SnapshotDraft | None = None
    interrupted: BaseException | None = None


def commit_snapshot(table: Table, *, branch: str, table_uuid: str, build: Build) -> SnapshotCommitResult:
    """Commit the draft of `build(head, snapshot_id)` as the new head of a branch; stop when it returns None.

    `build` runs again on the head of every attempt, so it validates again each time. All attempts carry one snapshot id
    and each asserts the head that it was built on. So at most one attempt can land, whatever the network does, and an
    attempt can never land once the branch has another head. Files are deleted only when that is certain.
    """
    return _SnapshotCommit(table, branch, table_uuid, build).run()


class AttemptState(Enum):
    """What is known about one request to the catalog."""

    # From just before the request is sent until its response is read; for ever if no clear response arrives.
    IN_DOUBT = "may have landed, or may land later"
    REFUSED = "the catalog refused it"
    ACKNOWLEDGED = "the catalog answered that it landed"


@dataclass(slots=True)
class Attempt:
    """One request to the catalog: its manifest list, its draft, and the head that it asserts."""

    manifest_list: str
    draft: SnapshotDraft
    head_snapshot_id: int
    state: AttemptState = AttemptState.IN_DOUBT


class _SnapshotCommit:
    # All attempts carry one snapshot id and assert their head, so at most one of them can land.
    retries_in_doubt = True

    def __init__(self, table: Table, branch: str, table_uuid: str, build: Build) -> None:
        self._table = table
        self._branch = branch
        self._uuid = table_uuid
        self._build = build
        self._snapshot_id = table.metadata.new_snapshot_id()
        self._writer = MetadataWriter(self._snapshot_id)
        self._status_checks = RetryPolicy.of_status_checks(table.metadata.properties)
        self._attempts: list[Attempt] = []
        self._base_location: str | None = None
        self._loaded: Table | None = None
        # Set when the table was dropped, or dropped and created again: it cannot be written to any more.
        self._gone_reason = ""

    def run(self) -> SnapshotCommitResult:
        try:
            return self._finish(commit_change(self, RetryPolicy.of_retries(self._table.metadata.properties)))
        except Exception as error:
            _log.warning("commit of snapshot %s stopped: %s", self._snapshot_id, describe(error))
            # A refused attempt may still have landed: a repeated HTTP request conflicts with its own first copy.
            result = self._finish(self._find_outcome(describe(error)))
            if isinstance(error, IcebergCompactError) and (
                result.outcome is Outcome.FAILED
                or (self._gone_reason and not self._heads_in_doubt and self._acknowledged is None)
            ):
                raise
            return result
        except BaseException as interrupt:
            # Ctrl-C: the request may be in progress. Read the table before anything is reported or deleted.
            return replace(self._finish(self._find_outcome("interrupted")), interrupted=interrupt)

    # -- the protocol of the commit loop ------------------------------------------------------------------------------

    def load(self) -> Table:
        fresh = self._load_table()
        require_writable(fresh.metadata.format_version)
        return fresh

    def has_landed(self, fresh: Table) -> bool:
        return snapshot_presence(fresh.metadata, self._branch, self._snapshot_id) is not SnapshotPresence.ABSENT

    def prepare(self, fresh: Table) -> Request | None:
        head = read_head(fresh, self._branch)
        if head is None:
            raise CommitConflictError(f"branch '{self._branch}' was removed meanwhile")
        events.reach("commit.validate", snapshot_id=head.snapshot.snapshot_id)
        draft = self._build(head, self._snapshot_id)
        if draft is None:
            return None
        metadata = head.metadata
        sequence_number = metadata.next_sequence_number()
        written = self._writer.write(head, draft.manifests, sequence_number)
        request = replace_request(
            head.table,
            branch=self._branch,
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=head.snapshot.snapshot_id,
            manifest_list=written.path,
            assigned_row_ids=written.assigned_row_ids,
            sequence_number=sequence_number,
            summary=replace_summary(metadata, head.snapshot, draft.added, draft.removed, draft.properties),
        )
        events.reach("commit.send", snapshot_id=self._snapshot_id)
        self._base_location = self._base_location or head.table.metadata_location
        # From here until the response is read, an interrupt leaves the outcome of this attempt unknown.
        self._attempts.append(Attempt(written.path, draft, head.snapshot.snapshot_id))
        return request

    def answered(self, base: Table, answer: CommitTableResponse) -> None:
        self._attempts[-1].state = AttemptState.ACKNOWLEDGED
        events.reach("commit.sent", snapshot_id=self._snapshot_id)
        delete_old_metadata(base, answer.metadata)

    def classify_error(self, error: Exception) -> Rejection:
        rejection = classify_error(error)
        if rejection is not Rejection.DOUBT:
            self._attempts[-1].state = AttemptState.REFUSED
        _log.info("attempt of snapshot %s: %s (%s)", self._snapshot_id, describe(error), rejection.value)
        return rejection

    def find_outcome(self, error: Exception | None) -> SnapshotCommitResult:
        return self._find_outcome("" if error is None else describe(error))

    def nothing_to_commit(self, fresh: Table) -> SnapshotCommitResult:
        result = self._find_outcome("")
        refused = result.outcome is Outcome.FAILED
        return replace(result, outcome=Outcome.NOTHING_TO_COMMIT) if refused else result

    # -- which attempt landed -----------------------------------------------------------------------------------------

    @property
    def _heads_in_doubt(self) -> set[int]:
        """Heads that attempts of unknown outcome were built on."""
        return {attempt.head_snapshot_id for attempt in self._attempts if attempt.state is AttemptState.IN_DOUBT}

    @property
    def _acknowledged(self) -> Attempt | None:
        return next((attempt for attempt in self._attempts if attempt.state is AttemptState.ACKNOWLEDGED), None)

    def _draft_of(self, manifest_list: str) -> SnapshotDraft | None:
        """Return the draft of the attempt that wrote this manifest list."""
        return next((attempt.draft for attempt in self._attempts if attempt.manifest_list == manifest_list), None)

    def _load_table(self) -> Table:
        self._gone_reason = ""
        name = ".".join(self._table.name())
        try:
            fresh = self._table.catalog.load_table(self._table.name())
        except NoSuchTableError as error:
            self._gone_reason = f"table {name} was dropped meanwhile"
            raise CommitConflictError(self._gone_reason) from error
        if str(fresh.metadata.table_uuid) != self._uuid:
            self._gone_reason = f"table {name} was dropped and created again meanwhile"
            raise CommitConflictError(self._gone_reason, hint="Run the call again: it plans on the new table.")
        return fresh

    def _find_outcome(self, detail: str) -> SnapshotCommitResult:
        """Read the table and return which attempt, if any, is in it."""
        if not self._attempts:
            return SnapshotCommitResult(Outcome.FAILED, None, detail)
        presence, table = wait_for_snapshot(self._load_table, self._branch, self._snapshot_id, self._status_checks)
        self._loaded = table
        events.reach("commit.confirm", snapshot_id=self._snapshot_id)
        name = f"snapshot {self._snapshot_id}"
        if self._gone_reason and self._acknowledged is not None:
            # The catalog acknowledged the commit, and the table was dropped afterwards.
            return SnapshotCommitResult(
                Outcome.COMMITTED, self._snapshot_id, self._gone_reason, self._acknowledged.draft
            )
        if presence is None or table is None:
            return self._unknown(f"the table could not be read to look for {name}. {detail}")
        if presence is SnapshotPresence.IN_BRANCH:
            landed = table.metadata.snapshot_by_id(self._snapshot_id)
            draft = self._draft_of(landed.manifest_list) if landed else None
            if draft is None:
                return self._unknown(f"{name} is in the table, but with a manifest list that this run did not write")
            return SnapshotCommitResult(Outcome.COMMITTED, self._snapshot_id, detail, draft)
        if presence is SnapshotPresence.IN_TABLE:
            return self._unknown(
                f"{name} is in the table but not in the history of branch '{self._branch}': it was rolled back, or the "
                f"catalog did not move the branch. {detail}"
            )
        if (draft := self._landed_draft(table)) is not None:
            return SnapshotCommitResult(Outcome.COMMITTED, self._snapshot_id, f"{name} was expired meanwhile", draft)
        if self._acknowledged is not None:
            return self._unknown(f"the catalog answered that the commit succeeded, but {name} is not in the table")
        head = table.metadata.snapshot_by_name(self._branch)
        has_sequence_numbers = rules_of(table.metadata.format_version).sequence_numbers
        if self._heads_in_doubt and (
            head is None or head.snapshot_id in self._heads_in_doubt or not has_sequence_numbers
        ):
            return self._unknown(f"{name} is not in the table yet. {detail}")
        if not self._certainly_absent(table):
            return self._unknown(f"{name} is not in the table, but its history is cut and files of it may be. {detail}")
        # The catalog refused every attempt, or the branch has moved past the head and the sequence number that an
        # attempt asserts: none of them can land any more.
        return SnapshotCommitResult(Outcome.FAILED, None, detail)

    def _landed_draft(self, table: Table) -> SnapshotDraft | None:
        """Return the draft that landed and was expired since, if the table's metadata proves it."""
        landed = manifest_list_in_log(table, self._branch, self._snapshot_id, since=self._base_location)
        if landed is not None:
            return self._draft_of(landed)
        candidate = self._acknowledged or (self._attempts[0] if len(self._attempts) == 1 else None)
        return candidate.draft if candidate is not None and self._is_live_in_branch(table) else None

    def _is_live_in_branch(self, table: Table) -> bool | None:
        """Whether the branch has a manifest or file of this commit, or a child of its snapshot; None if unknown."""
        head = table.metadata.snapshot_by_name(self._branch)
        if any(s.parent_snapshot_id == self._snapshot_id for s in ancestors_of(head, table.metadata)):
            return True
        created = frozenset(self._writer.created)
        added = frozenset(file.path for attempt in self._attempts for file in attempt.draft.added)
        return branch_holds_any(table, self._branch, manifests=created, files=added)

    def _certainly_absent(self, table: Table) -> bool:
        """Whether it is proved that no attempt landed, not even one whose snapshot was expired since.

        The history of the branch, down to the heads that the attempts were built on, proves it. Where expiry or a
        rollback cut the history, no manifest and no file of this commit may be live.
        """
        if all(is_ancestor(table.metadata, self._branch, attempt.head_snapshot_id) for attempt in self._attempts):
            return True
        return self._is_live_in_branch(table) is False

    def _unknown(self, detail: str) -> SnapshotCommitResult:
        text = f"{detail.strip().rstrip('.')}. No file was deleted; look for snapshot {self._snapshot_id}."
        return SnapshotCommitResult(Outcome.UNKNOWN, self._snapshot_id, text)

    def _finish(self, result: SnapshotCommitResult) -> SnapshotCommitResult:
        """Delete metadata files that are certainly in no snapshot, and refresh the caller's table."""
        created = self._writer.created
        try:
            if result.outcome not in (Outcome.COMMITTED, Outcome.UNKNOWN):
                # Certain failure: no snapshot names these paths, and their names hold this commit's own uuid.
                remove_files(self._table.io, created)
            fresh = self._loaded or self._load_table()
            # The usual commit, one attempt that landed, has nothing to delete and reads nothing.
            landed = fresh.metadata.snapshot_by_id(self._snapshot_id)
            if result.outcome is Outcome.COMMITTED and landed is not None and len(self._attempts) > 1:
                manifests = read_manifests(fresh.io, landed.manifest_list)
                live = {landed.manifest_list, *(manifest.manifest_path for manifest in manifests)}
                # All attempts share one snapshot id and it landed once: no metadata names the other manifest lists.
                remove_files(fresh.io, [path for path in created if path not in live])
            self._table.metadata, self._table.metadata_location = fresh.metadata, fresh.metadata_location
            self._table.io, self._table.config = fresh.io, fresh.config
        except Exception as error:
            _log.warning("after snapshot %s: %s", self._snapshot_id, describe(error))
        return result
