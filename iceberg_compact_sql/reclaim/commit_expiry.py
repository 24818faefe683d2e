"""The metadata half of an expiry: commit, plan again when something moved, and find out how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.exceptions import BadRequestError, CommitFailedException, NoSuchTableError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import CommitConflictError, CommitUnknownError, IcebergCompactError, UnsupportedError
from iceberg_compact_sql.pyiceberg_internals.remove_snapshots import (
    commit_removal,
    delete_old_metadata,
    refusal_is_certain,
    validates_in_process,
)
from iceberg_compact_sql.reclaim.retention import ExpiryRequest, decide, refuse_without_gc
from iceberg_compact_sql.table.retries import Patience

if TYPE_CHECKING:
    from iceberg_compact_sql.reclaim.expiry import ExpiryPlan

NEWEST_WRITABLE_VERSION = 2


@dataclass(frozen=True, slots=True)
class CommittedExpiry:
    """The metadata that was planned on, the plan, the table reloaded, and how many snapshots this commit removed."""

    base: TableMetadata
    plan: ExpiryPlan
    fresh: Table
    expired: int


def commit_expiry(
    table: Table,
    request: ExpiryRequest,
    plan_on: Callable[[TableMetadata], ExpiryPlan],
    done_by_others: Callable[[ExpiryPlan, bool], bool],
) -> CommittedExpiry:
    """Commit what `plan_on` finds on the freshest metadata.

    `done_by_others(plan, refused)` tells, where an answer leaves open who removed what is gone, whether others have
    begun to delete its files.

    Raises CommitConflictError when others kept winning and CommitUnknownError when nobody can say whether it landed;
    in both cases the caller has deleted nothing.
    """
    uuid = table.metadata.table_uuid
    _refuse_unwritable(table)
    tries = Patience.of_retries(table.metadata.properties).waits()
    attempt = 0
    while True:
        attempt += 1
        current = reload(table)
        refuse_other_table(uuid, current)
        refuse_without_gc(current.metadata)
        plan = plan_on(current.metadata)
        expired = len(plan.retention.expired)
        if plan.empty:
            return CommittedExpiry(current.metadata, plan, current, 0)
        events.reach("expire.validate", attempt=attempt)
        try:
            committed = commit_removal(
                current,
                snapshot_ids=plan.retention.expired,
                refs=plan.retention.removed_refs,
                spec_ids=plan.spec_ids,
                schema_ids=plan.schema_ids,
                holds=_still_right(current.metadata, plan, request),
            )
            events.reach("expire.commit", metadata=committed.metadata_location)
        except CommitFailedException as error:
            fresh = reload(table)
            # A proxy that sends a request twice answers with the conflict of the second one, the first having landed.
            if refusal_is_certain(current, error) or not _landed(plan, fresh.metadata) or done_by_others(plan, True):
                if next(tries, False):
                    continue
                raise CommitConflictError(
                    f"the table changed during each of {attempt} tries; no snapshot was expired and no file deleted",
                    hint="Run it again at a quieter time, or raise the table's commit.retry.num-retries.",
                ) from error
        except IcebergCompactError:
            raise
        except Exception as error:
            if isinstance(error, ValueError) and validates_in_process(current) and next(tries, False):
                # The update did not fit the metadata that it met: refused before anything was written.
                continue
            found = _reload_or_none(table)
            if found is None or not _landed(plan, found.metadata):
                raise _unknown(plan, error) from error
            if isinstance(error, BadRequestError) and done_by_others(plan, True) and next(tries, False):
                # A server that cannot remove what others have removed meanwhile.
                continue
            fresh = found
        else:
            _drop_old_metadata(current, committed.metadata)
            fresh = reload(table)
            expired = _removed_by(current, plan, committed, done_by_others)
        refuse_other_table(uuid, fresh)
        _refuse_lost_refs(current, plan, fresh)
        return CommittedExpiry(current.metadata, plan, fresh, expired)


def _removed_by(
    base: Table,
    plan: ExpiryPlan,
    committed: CommitTableResponse,
    done_by_others: Callable[[ExpiryPlan, bool], bool],
) -> int:
    """How many planned snapshots a commit removed: a server may have applied it after that of another expiry."""
    planned = len(plan.retention.expired)
    if validates_in_process(base):
        return planned
    # Not every server keeps a log: an entry older than the base says nothing.
    log = [e for e in committed.metadata.metadata_log if e.timestamp_ms >= base.metadata.last_updated_ms]
    replaced = log[-1].metadata_file if log else base.metadata_location
    if replaced == base.metadata_location:
        # A server that has nothing left to remove writes no version of its own and answers with that of the others.
        return 0 if done_by_others(plan, False) else planned
    try:
        before = FromInputFile.table_metadata(base.io.new_input(replaced))
    except Exception:
        # The version in between is gone: what it still had cannot be told any more.
        return planned
    return len({snapshot.snapshot_id for snapshot in before.snapshots}.intersection(plan.retention.expired))


def _refuse_unwritable(table: Table) -> None:
    """pyiceberg cannot write metadata of version 3; a REST server writes it itself."""
    version = table.metadata.format_version
    if version > NEWEST_WRITABLE_VERSION and validates_in_process(table):
        raise UnsupportedError(
            f"the table has format version {version}, whose metadata this catalog cannot be given",
            hint=f"Versions 1 to {NEWEST_WRITABLE_VERSION} are supported; with a REST catalog newer ones too.",
        )


def reload(table: Table) -> Table:
    """The table as the catalog has it now."""
    try:
        return table.catalog.load_table(table.name())
    except NoSuchTableError as error:
        raise CommitConflictError(
            "the table was dropped meanwhile; no file was deleted", hint="If it was renamed, run it on the new name."
        ) from error


def refuse_other_table(uuid: object, fresh: Table) -> None:
    """Stop when the name leads to another table by now."""
    if fresh.metadata.table_uuid != uuid:
        raise CommitConflictError(
            "the table was dropped and created again meanwhile; no file was deleted", hint="Run it again."
        )


def _still_right(base: TableMetadata, plan: ExpiryPlan, request: ExpiryRequest) -> Callable[[TableMetadata], bool]:
    """Whether the metadata that the commit replaces leads to the same removals."""
    snapshots = {snapshot.snapshot_id for snapshot in base.snapshots}

    def holds(metadata: TableMetadata) -> bool:
        if (plan.spec_ids or plan.schema_ids) and {s.snapshot_id for s in metadata.snapshots} != snapshots:
            # A snapshot that came meanwhile may use a spec or schema that nothing used.
            return False
        try:
            refuse_without_gc(metadata)
            now = decide(metadata, request)
        except IcebergCompactError:
            return False
        return now.expired == plan.retention.expired and now.removed_refs == plan.retention.removed_refs

    return holds


def _refuse_lost_refs(base: Table, plan: ExpiryPlan, fresh: Table) -> None:
    """A REST server cannot be asked that no new ref appeared: look whether one was lost, and delete nothing then.

    The versions between the planned one and the fresh one are in the metadata log; a ref on an expired snapshot in
    one of them came after the plan.
    """
    if validates_in_process(base):
        return
    log = [entry.metadata_file for entry in fresh.metadata.metadata_log]
    if base.metadata_location not in log:
        return
    expired = frozenset(plan.retention.expired)
    for location in log[log.index(base.metadata_location) + 1 :]:
        try:
            with fresh.io.new_input(location).open() as stream:
                refs = json.loads(stream.read()).get("refs", {})
        except Exception as error:
            raise CommitConflictError(
                f"snapshots were expired, but {location}, which came between, cannot be read; no file was deleted",
                hint="Check the table's tags and branches, then run remove_orphans.",
            ) from error
        lost = sorted(
            n for n, r in refs.items() if r["snapshot-id"] in expired and n not in plan.retention.removed_refs
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


def _drop_old_metadata(table: Table, committed: TableMetadata) -> None:
    try:
        delete_old_metadata(table, committed)
    except Exception:
        # The commit stands; a metadata file that stays is an orphan and harms nobody.
        events.reach("expire.old_metadata_stays")
