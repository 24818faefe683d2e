"""Commit an expiry: remove snapshots from the metadata, plan again after a conflict, and find out if it landed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql import events
from iceberg_compact_sql.catalogs.complete_metadata import require_complete_metadata
from iceberg_compact_sql.commit.commit_loop import Rejection, Request, commit_change
from iceberg_compact_sql.commit.outcome import classify_error, describe
from iceberg_compact_sql.errors import CommitConflictError, CommitUnknownError, IcebergCompactError, UnsupportedError
from iceberg_compact_sql.format_versions import NEWEST_WRITABLE, is_writable
from iceberg_compact_sql.pyiceberg_internals.remove_snapshots import (
    refusal_is_certain,
    removal_request,
)
from iceberg_compact_sql.pyiceberg_internals.requests import delete_old_metadata, validates_in_process
from iceberg_compact_sql.reclaim.retention import ExpiryRequest, decide, refuse_without_gc
from iceberg_compact_sql.storage.metadata_json import unzipped
from iceberg_compact_sql.table.retries import RetryPolicy

if TYPE_CHECKING:
    from iceberg_compact_sql.reclaim.expiry import ExpiryPlan


@dataclass(frozen=True, slots=True)
class CommittedExpiry:
    """The metadata before the commit, the plan, the reloaded table, and how many snapshots the commit removed."""

    base: TableMetadata
    plan: ExpiryPlan
    fresh: Table
    expired: int


def commit_expiry(
    table: Table,
    request: ExpiryRequest,
    plan_on: Callable[[Table], ExpiryPlan],
    done_by_others: Callable[[ExpiryPlan, bool], bool],
) -> CommittedExpiry:
    """Commit the plan that `plan_on` makes on the newest metadata.

    An answer of the catalog may not show which run removed the snapshots. `done_by_others(plan, refused)` then says
    whether another run has begun to delete the plan's files.

    Raises CommitConflictError if other commits won every time, and CommitUnknownError if the outcome is unknown. In
    both cases no file was deleted.
    """
    _refuse_unwritable(table)
    change = _Expiry(table, request, plan_on, done_by_others)
    return commit_change(change, RetryPolicy.of_retries(table.metadata.properties))


class _Expiry:
    """An expiry as a change for the commit loop: each attempt plans again on the loaded table."""

    # A repeated request would carry a plan that was made on older metadata.
    retries_in_doubt = False

    def __init__(
        self,
        table: Table,
        request: ExpiryRequest,
        plan_on: Callable[[Table], ExpiryPlan],
        done_by_others: Callable[[ExpiryPlan, bool], bool],
    ) -> None:
        self._table = table
        self._uuid = table.metadata.table_uuid
        self._request = request
        self._plan_on = plan_on
        self._done_by_others = done_by_others
        self._attempts = 0
        self._base = table
        self._plan: ExpiryPlan | None = None
        self._answer: CommitTableResponse | None = None
        # Whether it is certain that the last request did not land.
        self._refused = False

    def load(self) -> Table:
        fresh = reload(self._table)
        refuse_other_table(self._uuid, fresh)
        return fresh

    def has_landed(self, fresh: Table) -> bool:
        # A proxy may send a request twice: the first copy lands, and the answer is the conflict of the second copy.
        if self._plan is None or self._refused:
            return False
        return _landed(self._plan, fresh.metadata) and not self._done_by_others(self._plan, True)

    def prepare(self, fresh: Table) -> Request | None:
        refuse_without_gc(fresh.metadata)
        self._base, self._plan = fresh, self._plan_on(fresh)
        if self._plan.is_empty:
            return None
        self._attempts += 1
        events.reach("expire.validate", attempt=self._attempts)
        self._refused = False
        return removal_request(
            fresh,
            snapshot_ids=self._plan.retention.expired,
            refs=self._plan.retention.removed_refs,
            spec_ids=self._plan.spec_ids,
            schema_ids=self._plan.schema_ids,
            holds=_same_removals(fresh.metadata, self._plan, self._request),
        )

    def answered(self, base: Table, answer: CommitTableResponse) -> None:
        self._answer = answer
        events.reach("expire.commit", metadata=answer.metadata_location)
        delete_old_metadata(base, answer.metadata)

    def classify_error(self, error: Exception) -> Rejection:
        if isinstance(error, IcebergCompactError):
            raise error
        if isinstance(error, CommitFailedException):
            self._refused = refusal_is_certain(self._base, error)
            return Rejection.RETRY
        if isinstance(error, ValueError) and validates_in_process(self._base):
            # The update did not fit the current metadata: it was refused before anything was written.
            self._refused = True
            return Rejection.RETRY
        if classify_error(error) is Rejection.FINAL:
            return self._classify_refusal()
        return Rejection.DOUBT

    def _classify_refusal(self) -> Rejection:
        """Return what the table says about a request that the catalog refused for good.

        A server refuses to remove snapshots that are gone. Another run may have removed them, or the first copy of a
        request that a proxy sent twice.
        """
        fresh = _reload_or_none(self._table)
        if fresh is None:
            return Rejection.DOUBT
        if not _landed(self._planned, fresh.metadata):
            self._refused = True
            return Rejection.FINAL
        return Rejection.RETRY if self._done_by_others(self._planned, True) else Rejection.DOUBT

    def find_outcome(self, error: Exception | None) -> CommittedExpiry:
        plan = self._planned
        expired = len(plan.retention.expired)
        if self._answer is not None:
            fresh = reload(self._table)
            expired = _removed_by(self._base, plan, self._answer, self._done_by_others)
        elif error is None:
            fresh = self.load()
        else:
            fresh = self._table_after_error(plan, error)
        refuse_other_table(self._uuid, fresh)
        _refuse_lost_refs(self._base, plan, fresh)
        return CommittedExpiry(self._base.metadata, plan, fresh, expired)

    def nothing_to_commit(self, fresh: Table) -> CommittedExpiry:
        return CommittedExpiry(fresh.metadata, self._planned, fresh, 0)

    @property
    def _planned(self) -> ExpiryPlan:
        assert self._plan is not None, "a request is sent only after it was planned"
        return self._plan

    def _table_after_error(self, plan: ExpiryPlan, error: Exception) -> Table:
        """Return the table if the last request landed despite the error; otherwise raise the conflict or the doubt."""
        conflict = isinstance(error, CommitFailedException)
        fresh = reload(self._table) if conflict else _reload_or_none(self._table)
        landed = fresh is not None and not self._refused and _landed(plan, fresh.metadata)
        if fresh is not None and landed and not (conflict and self._done_by_others(plan, True)):
            return fresh
        if conflict:
            raise CommitConflictError(
                f"the table changed during each of {self._attempts} tries; no snapshot was expired and no file deleted",
                hint="Run it again at a quieter time, or raise the table's commit.retry.num-retries.",
            ) from error
        if self._refused:
            raise IcebergCompactError(
                f"the catalog refused to expire {len(plan.retention.expired)} snapshots ({describe(error)}); no "
                "snapshot was expired and no file deleted",
                hint="Run it again when the catalog accepts the change.",
            ) from error
        raise _unknown(plan, error) from error


def _removed_by(
    base: Table,
    plan: ExpiryPlan,
    committed: CommitTableResponse,
    done_by_others: Callable[[ExpiryPlan, bool], bool],
) -> int:
    """Return how many planned snapshots this commit removed; another expiry may have removed some of them before."""
    planned = len(plan.retention.expired)
    if validates_in_process(base):
        return planned
    # Not every server keeps a metadata log: entries older than the base are ignored.
    log = [e for e in committed.metadata.metadata_log if e.timestamp_ms >= base.metadata.last_updated_ms]
    replaced = log[-1].metadata_file if log else base.metadata_location
    if replaced == base.metadata_location:
        # A server with nothing left to remove writes no new version. Its answer is the version of the other run.
        return 0 if done_by_others(plan, False) else planned
    try:
        before = FromInputFile.table_metadata(base.io.new_input(replaced))
    except Exception:
        # The replaced version was deleted, so its snapshots are unknown.
        return planned
    return len({snapshot.snapshot_id for snapshot in before.snapshots}.intersection(plan.retention.expired))


def _refuse_unwritable(table: Table) -> None:
    """Refuse a format version that pyiceberg cannot write; a REST server writes the metadata itself."""
    version = table.metadata.format_version
    if not is_writable(version) and validates_in_process(table):
        raise UnsupportedError(
            f"the table has format version {version}, whose metadata this catalog cannot be given",
            hint=f"Versions 1 to {NEWEST_WRITABLE} are supported; with a REST catalog newer ones too.",
        )


def reload(table: Table) -> Table:
    """Load the table again, with all of its snapshots."""
    try:
        fresh = table.catalog.load_table(table.name())
    except NoSuchTableError as error:
        raise CommitConflictError(
            "the table was dropped meanwhile; no file was deleted", hint="If it was renamed, run it on the new name."
        ) from error
    require_complete_metadata(fresh)
    return fresh


def refuse_other_table(uuid: object, fresh: Table) -> None:
    """Refuse if the name now belongs to a table with another uuid."""
    if fresh.metadata.table_uuid != uuid:
        raise CommitConflictError(
            "the table was dropped and created again meanwhile; no file was deleted", hint="Run it again."
        )


def _same_removals(base: TableMetadata, plan: ExpiryPlan, request: ExpiryRequest) -> Callable[[TableMetadata], bool]:
    """Return a check that the metadata that the commit replaces leads to the same removals."""
    snapshots = {snapshot.snapshot_id for snapshot in base.snapshots}

    def holds(metadata: TableMetadata) -> bool:
        if (plan.spec_ids or plan.schema_ids) and {s.snapshot_id for s in metadata.snapshots} != snapshots:
            # A new snapshot may use a spec or schema that was unused when the plan was made.
            return False
        try:
            refuse_without_gc(metadata)
            now = decide(metadata, request)
        except IcebergCompactError:
            return False
        return now.expired == plan.retention.expired and now.removed_refs == plan.retention.removed_refs

    return holds


def _refuse_lost_refs(base: Table, plan: ExpiryPlan, fresh: Table) -> None:
    """Refuse to delete files if the commit removed a ref that was created after the plan.

    A REST request cannot require that no new ref exists. The metadata log holds the versions between the planned and
    the fresh one: a ref on an expired snapshot in one of them was created after the plan. A log that no longer goes
    back to the planned version hides versions, unless the server keeps no log.
    """
    if validates_in_process(base):
        return
    log = [entry.metadata_file for entry in fresh.metadata.metadata_log]
    if base.metadata_location not in log:
        newest_ms = max((entry.timestamp_ms for entry in fresh.metadata.metadata_log), default=0)
        if fresh.metadata_location == base.metadata_location or newest_ms < base.metadata.last_updated_ms:
            return
        raise CommitConflictError(
            "snapshots were expired, but the table changed meanwhile, and its metadata log no longer has the version "
            f"{base.metadata_location}: whether a tag or branch was created on an expired snapshot is unknown; no file "
            "was deleted",
            hint="Raise the table's write.metadata.previous-versions-max. Check the table's tags and branches, then "
            "run remove_orphans.",
        )
    expired = frozenset(plan.retention.expired)
    for location in log[log.index(base.metadata_location) + 1 :]:
        try:
            with fresh.io.new_input(location).open() as stream:
                refs = json.loads(unzipped(stream.read())).get("refs", {})
        except Exception as error:
            raise CommitConflictError(
                f"snapshots were expired, but {location}, which came between, cannot be read; no file was deleted",
                hint="Check the table's tags and branches, then run remove_orphans.",
            ) from error
        lost = sorted(
            name
            for name, ref in refs.items()
            if ref["snapshot-id"] in expired and name not in plan.retention.removed_refs
        )
        if lost:
            raise CommitConflictError(
                f"{', '.join(lost)} was made on a snapshot while it was being expired; no file was deleted",
                hint=f"The refs are in {location}: register the table from it to have them back.",
            )


def _landed(plan: ExpiryPlan, metadata: TableMetadata) -> bool:
    planned_and_left = (
        (plan.retention.expired, (snapshot.snapshot_id for snapshot in metadata.snapshots)),
        (plan.retention.removed_refs, metadata.refs),
        (plan.spec_ids, (spec.spec_id for spec in metadata.partition_specs)),
        (plan.schema_ids, (schema.schema_id for schema in metadata.schemas)),
    )
    return all(not set(planned).intersection(left) for planned, left in planned_and_left)


def _unknown(plan: ExpiryPlan, error: Exception) -> CommitUnknownError:
    return CommitUnknownError(
        f"the catalog did not say whether {len(plan.retention.expired)} snapshots were expired "
        f"({type(error).__name__}); no file was deleted",
        hint="Run it again: it looks at the table as it is then, and finishes the work.",
    )


def _reload_or_none(table: Table) -> Table | None:
    try:
        return reload(table)
    except IcebergCompactError:
        raise
    except Exception:
        return None
