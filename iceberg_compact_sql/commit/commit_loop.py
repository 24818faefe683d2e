"""The loop that brings one snapshot into a branch: build on the head, send, and know what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from iceberg_compact_sql import events
from iceberg_compact_sql.commit.conflicts import is_ancestor
from iceberg_compact_sql.commit.landed import holds_any, list_in_log
from iceberg_compact_sql.commit.metadata_writer import Workshop
from iceberg_compact_sql.commit.model import Outcome
from iceberg_compact_sql.commit.outcome import (
    Rejection,
    Whereabouts,
    describe,
    judge,
    look_patiently,
    whereabouts,
)
from iceberg_compact_sql.commit.snapshot_draft import Head, SnapshotDraft, read_head
from iceberg_compact_sql.commit.summary import replace_summary
from iceberg_compact_sql.errors import CommitConflictError, IcebergCompactError, UnsupportedError
from iceberg_compact_sql.pyiceberg_internals.requests import (
    forget_old_metadata,
    replace_request,
    send_commit,
)
from iceberg_compact_sql.storage.remove_created import remove_files
from iceberg_compact_sql.table.retries import Patience

_logger = logging.getLogger("iceberg_compact_sql")

Build = Callable[[Head, int], SnapshotDraft | None]


@dataclass(frozen=True, slots=True)
class Attempted:
    """How the loop ended; `interrupted` is a Ctrl-C that the caller must raise again."""

    outcome: Outcome
    snapshot_id: int | None = None
    detail: str = ""
    draft: SnapshotDraft | None = None
    interrupted: BaseException | None = None


def commit_snapshot(table: Table, *, branch: str, table_uuid: str, build: Build) -> Attempted:
    """Commit what `build(head, snapshot_id)` drafts as the new head of a branch; None from it ends the loop.

    `build` runs again on the head of every try, so it validates again each time. All tries carry one snapshot id
    and each asserts the head that it was built on: at most one of them can land, whatever the network does, and a
    try whose head is no longer the branch's can never land. Files are deleted only when that is certain.
    """
    return _Commit(table, branch, table_uuid, build).run()


class _Commit:
    def __init__(self, table: Table, branch: str, table_uuid: str, build: Build) -> None:
        self._table = table
        self._branch = branch
        self._uuid = table_uuid
        self._build = build
        self._snapshot_id = table.metadata.new_snapshot_id()
        self._workshop = Workshop(self._snapshot_id)
        self._status_checks = Patience.of_status_checks(table.metadata.properties)
        # Drafts by manifest list: the landed snapshot names the list, and so which try it was.
        self._sent: dict[str, SnapshotDraft] = {}
        self._sent_on: set[int] = set()
        # Heads that tries of unknown fate were built on.
        self._doubts: set[int] = set()
        # The manifest list of the try that the catalog called a success.
        self._acknowledged: str | None = None
        self._base_location: str | None = None
        self._seen: Table | None = None
        self._gone = ""

    def run(self) -> Attempted:
        try:
            return self._finish(self._loop())
        except Exception as error:
            _logger.warning("commit of snapshot %s stopped: %s", self._snapshot_id, describe(error))
            # Also a try that was refused may have landed, the refusal being that of its repetition: look first.
            settled = self._finish(self._settle(describe(error)))
            if isinstance(error, IcebergCompactError) and (
                settled.outcome is Outcome.FAILED or (self._gone and not self._doubts and not self._acknowledged)
            ):
                raise
            return settled
        except BaseException as interrupt:
            # Ctrl-C: the request may be under way, so the table is asked before anything is said or deleted.
            return replace(self._finish(self._settle("interrupted")), interrupted=interrupt)

    def _loop(self) -> Attempted:
        tries = Patience.of_retries(self._table.metadata.properties).waits()
        while True:
            fresh = self._load()
            if whereabouts(fresh.metadata, self._branch, self._snapshot_id) is not Whereabouts.ABSENT:
                return self._settle("")
            head = read_head(fresh, self._branch)
            if head is None:
                raise CommitConflictError(f"branch '{self._branch}' was removed meanwhile")
            events.reach("commit.validate", snapshot_id=head.snapshot.snapshot_id)
            draft = self._build(head, self._snapshot_id)
            if draft is None:
                settled = self._settle("")
                refused = settled.outcome is Outcome.FAILED
                return replace(settled, outcome=Outcome.NOTHING_TO_COMMIT) if refused else settled
            error = self._try(head, draft)
            if error is None:
                return self._settle("")
            verdict = judge(error)
            if verdict is Rejection.DOUBT:
                self._doubts.add(head.snapshot.snapshot_id)
            _logger.info("try of snapshot %s: %s (%s)", self._snapshot_id, describe(error), verdict.value)
            if verdict is Rejection.FINAL or not next(tries, False):
                return self._settle(describe(error))

    def _try(self, head: Head, draft: SnapshotDraft) -> Exception | None:
        metadata = head.metadata
        sequence_number = metadata.next_sequence_number()
        list_path = self._workshop.write(head, draft.manifests, sequence_number)
        requirements, updates = replace_request(
            metadata,
            branch=self._branch,
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=head.snapshot.snapshot_id,
            manifest_list=list_path,
            sequence_number=sequence_number,
            summary=replace_summary(metadata, head.snapshot, draft.added, draft.removed, draft.properties),
        )
        events.reach("commit.send", snapshot_id=self._snapshot_id)
        self._sent[list_path] = draft
        self._base_location = self._base_location or head.table.metadata_location
        self._sent_on.add(head.snapshot.snapshot_id)
        try:
            # From here until the answer is read, an interrupt leaves the fate of this try open.
            self._doubts.add(head.snapshot.snapshot_id)
            after = send_commit(head.table, requirements, updates)
        except Exception as error:
            self._doubts.discard(head.snapshot.snapshot_id)
            return error
        self._acknowledged = list_path
        events.reach("commit.sent", snapshot_id=self._snapshot_id)
        forget_old_metadata(head.table, after)
        return None

    def _load(self) -> Table:
        """The table as the catalog has it now, if it can still be written to."""
        fresh = self._look()
        if fresh.metadata.format_version > 2:
            raise UnsupportedError(f"format version {fresh.metadata.format_version} is not supported")
        return fresh

    def _look(self) -> Table:
        self._gone = ""
        name = ".".join(self._table.name())
        try:
            fresh = self._table.catalog.load_table(self._table.name())
        except NoSuchTableError as error:
            self._gone = f"table {name} was dropped meanwhile"
            raise CommitConflictError(self._gone) from error
        if str(fresh.metadata.table_uuid) != self._uuid:
            self._gone = f"table {name} was dropped and created again meanwhile"
            raise CommitConflictError(self._gone, hint="Run the call again: it plans on the new table.")
        return fresh

    def _settle(self, detail: str) -> Attempted:
        """Say what is in the table, from a look at the table."""
        if not self._sent:
            return Attempted(Outcome.FAILED, None, detail)
        place, seen = look_patiently(self._look, self._branch, self._snapshot_id, self._status_checks)
        self._seen = seen
        events.reach("commit.confirm", snapshot_id=self._snapshot_id)
        name = f"snapshot {self._snapshot_id}"
        if self._gone and self._acknowledged is not None:
            # The catalog said that it landed, and the drop says why it cannot be seen any more.
            return Attempted(Outcome.COMMITTED, self._snapshot_id, self._gone, self._sent[self._acknowledged])
        if place is None or seen is None:
            return self._unknown(f"the table could not be read to look for {name}. {detail}")
        if place is Whereabouts.IN_BRANCH:
            landed = seen.metadata.snapshot_by_id(self._snapshot_id)
            draft = self._sent.get(landed.manifest_list) if landed else None
            if draft is None:
                return self._unknown(f"{name} is in the table, but with a manifest list that this run did not write")
            return Attempted(Outcome.COMMITTED, self._snapshot_id, detail, draft)
        if place is Whereabouts.IN_TABLE:
            return self._unknown(
                f"{name} is in the table but not in the history of branch '{self._branch}': it was rolled back, or the "
                f"catalog did not move the branch. {detail}"
            )
        if (draft := self._traced(seen)) is not None:
            return Attempted(Outcome.COMMITTED, self._snapshot_id, f"{name} was expired meanwhile", draft)
        if self._acknowledged is not None:
            return self._unknown(f"the catalog answered that the commit succeeded, but {name} is not in the table")
        head = seen.metadata.snapshot_by_name(self._branch)
        if self._doubts and (head is None or head.snapshot_id in self._doubts or seen.metadata.format_version < 2):
            return self._unknown(f"{name} is not in the table yet. {detail}")
        if not self._certainly_absent(seen):
            return self._unknown(f"{name} is not in the table, but its history is cut and files of it may be. {detail}")
        # The catalog refused every try, or the branch has left the head that a try asserted and with it the sequence
        # number that it carries: none of them can land any more.
        return Attempted(Outcome.FAILED, None, detail)

    def _traced(self, seen: Table) -> SnapshotDraft | None:
        """The draft that landed although its snapshot is gone again, where the table's own records prove it."""
        landed = list_in_log(seen, self._branch, self._snapshot_id, since=self._base_location)
        if landed is not None:
            return self._sent.get(landed)
        only = self._acknowledged or (next(iter(self._sent)) if len(self._sent) == 1 else None)
        return self._sent[only] if only is not None and self._left_traces(seen) else None

    def _left_traces(self, seen: Table) -> bool | None:
        """Whether the branch holds a manifest or file of ours or was built on our snapshot; None if nobody can say."""
        head = seen.metadata.snapshot_by_name(self._branch)
        if any(s.parent_snapshot_id == self._snapshot_id for s in ancestors_of(head, seen.metadata)):
            return True
        mine = frozenset(self._workshop.created)
        added = frozenset(file.path for draft in self._sent.values() for file in draft.added)
        return holds_any(seen, self._branch, manifests=mine, files=added)

    def _certainly_absent(self, seen: Table) -> bool:
        """Whether no try of ours landed: it might have, and the snapshot been expired before we looked.

        The history from the head down to what the tries were built on shows it; where that is cut, by expiry or a
        rollback, no manifest that we wrote and no file that we added may be live.
        """
        if all(is_ancestor(seen.metadata, self._branch, snapshot_id) for snapshot_id in self._sent_on):
            return True
        return self._left_traces(seen) is False

    def _unknown(self, detail: str) -> Attempted:
        text = f"{detail.strip().rstrip('.')}. No file was deleted; look for snapshot {self._snapshot_id}."
        return Attempted(Outcome.UNKNOWN, self._snapshot_id, text)

    def _finish(self, attempted: Attempted) -> Attempted:
        """Clean what is certainly in no snapshot, and bring the caller's table up to date."""
        created = self._workshop.created
        try:
            if attempted.outcome not in (Outcome.COMMITTED, Outcome.UNKNOWN):
                # Certain failure: no snapshot names these paths, and their names hold this commit's own uuid.
                remove_files(self._table.io, created)
            fresh = self._seen or self._look()
            # The usual commit, one try that landed, has nothing to clean and reads nothing.
            landed = fresh.metadata.snapshot_by_id(self._snapshot_id)
            if attempted.outcome is Outcome.COMMITTED and landed is not None and len(self._sent) > 1:
                manifests = read_manifest_list(fresh.io.new_input(landed.manifest_list))
                live = {landed.manifest_list, *(manifest.manifest_path for manifest in manifests)}
                # All tries share one snapshot id and it landed once: lists of the other tries are in no metadata.
                remove_files(fresh.io, [path for path in created if path not in live])
            self._table.metadata, self._table.metadata_location = fresh.metadata, fresh.metadata_location
            self._table.io, self._table.config = fresh.io, fresh.config
        except Exception as error:
            _logger.warning("after snapshot %s: %s", self._snapshot_id, describe(error))
        return attempted
