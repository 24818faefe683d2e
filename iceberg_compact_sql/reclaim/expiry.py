"""Expire snapshots: commit the metadata first, then delete exactly the files that nothing needs any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql import events
from iceberg_compact_sql.catalogs.complete_metadata import require_complete_metadata
from iceberg_compact_sql.errors import CommitUnknownError, IcebergCompactError
from iceberg_compact_sql.reclaim import damage_checks, journals, quarantine
from iceberg_compact_sql.reclaim.commit_expiry import commit_expiry, reload
from iceberg_compact_sql.reclaim.find_records import find_records
from iceberg_compact_sql.reclaim.journals import PendingDeletes
from iceberg_compact_sql.reclaim.known_files import KnownFiles
from iceberg_compact_sql.reclaim.metadata_versions import refuse_copied_folder, require_one_name
from iceberg_compact_sql.reclaim.named_by_others import OtherTables
from iceberg_compact_sql.reclaim.owned_roots import owned_roots
from iceberg_compact_sql.reclaim.reachability import FileKind, NeededFile, Reachability
from iceberg_compact_sql.reclaim.record_files import new_run_id
from iceberg_compact_sql.reclaim.retention import ExpiryRequest, Retention, check_request, decide
from iceberg_compact_sql.reclaim.unneeded_files import (
    DELETE_ORDER,
    keep_needed,
    needed_by,
    snapshots_of,
    still_unneeded,
    undeleted_files,
)
from iceberg_compact_sql.storage.locations import relative_to, split_location
from iceberg_compact_sql.storage.same_file import stored_key
from iceberg_compact_sql.storage.stores import Stores

_SAMPLE = 8
_DELETE_BATCH = 5_000


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What an expiry removes: snapshots, refs, unused specs and schemas, and files that only those snapshots need."""

    retention: Retention
    files: tuple[NeededFile, ...] = ()
    spec_ids: tuple[int, ...] = ()
    schema_ids: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.retention.expired or self.retention.removed_refs or self.spec_ids or self.schema_ids)


@dataclass(frozen=True, slots=True)
class ExpiryResult:
    """What was removed. `deleted` counts files by kind, also those that did not exist; `freed_bytes` does not."""

    expired_snapshots: int = 0
    deleted: Mapping[FileKind, int] = field(default_factory=dict)
    failed_deletes: int = 0
    freed_bytes: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpiryOptions:
    """Whether files are deleted or moved to quarantine, and with how many threads."""

    keep_files: bool = False
    workers: int | None = None
    quarantine_ms: int | None = None
    # Tables of the catalog that share no files with this one, as the user says.
    ignored_tables: frozenset[str] = frozenset()


def plan_expiry(table: Table, request: ExpiryRequest, options: ExpiryOptions | None = None) -> ExpiryPlan:
    """Return what `run_expiry` with the same arguments would remove now; changes nothing."""
    options = options or ExpiryOptions()
    check_request(table.metadata, request)
    require_complete_metadata(table)
    if not options.keep_files:
        refuse_copied_folder(table)
    stores = Stores(table.io, workers=options.workers)
    reader = Reachability(stores)
    plan = _plan(table.metadata, request, reader, stores, with_files=not options.keep_files)
    if options.keep_files:
        return plan
    stores.require_addressable(file.path for file in plan.files)
    pending = journals.not_yet_deleted(stores, find_records(stores, table.metadata).pending)
    left_over = undeleted_files(reader, stores, table.metadata, plan.retention.kept, pending)
    known = {stored_key(file.path) for file in plan.files}
    extra = tuple(file for key, file in left_over.items() if key not in known)
    return _only_ours(table, stores, replace(plan, files=plan.files + extra), options)


def run_expiry(table: Table, request: ExpiryRequest, options: ExpiryOptions | None = None) -> ExpiryResult:
    """Expire snapshots and delete the files that only they needed.

    If the metadata changed before the commit, the expiry is planned again. Files are chosen from metadata that is
    loaded after the commit: a file that any snapshot or ref needs then is kept. Another run finishes the deletions of
    an interrupted one.
    """
    options = options or ExpiryOptions()
    check_request(table.metadata, request)
    if not options.keep_files:
        # Also where nothing expires: journals and quarantined files of the original are found too.
        refuse_copied_folder(table)
    stores = Stores(table.io, workers=options.workers)
    reader = Reachability(stores)
    run_id = new_run_id()
    own_journals: list[str] = []

    def replan(current: Table) -> ExpiryPlan:
        metadata = current.metadata
        plan = _plan(metadata, request, reader, stores, with_files=not options.keep_files)
        if plan.files:
            plan = _only_ours(current, stores, plan, options)
        events.reach("expire.planned", expired=len(plan.retention.expired), files=len(plan.files))
        # Refuse before the commit, while nothing has changed yet.
        stores.require_addressable(file.path for file in plan.files)
        if options.quarantine_ms:
            quarantine.refuse_other_stores(metadata, plan.files)
        if plan.files:
            own_journals[:] = [
                journals.write_pending(stores, metadata, run_id, plan.files, keep_ms=options.quarantine_ms)
            ]
        return plan

    def done_by_others(plan: ExpiryPlan, refused: bool) -> bool:
        """Whether another run has deleted files of this plan, or has written a journal that it will.

        Journals of other runs count only if this commit was refused: otherwise those runs may have lost.
        """
        metadata_files = [file for file in plan.files if file.kind in (FileKind.MANIFEST, FileKind.MANIFEST_LIST)]
        if any(state is None for state in stores.each(lambda file: stores.stat(file.path), metadata_files[:_SAMPLE])):
            return True
        metadata_keys = {stored_key(file.path) for file in metadata_files}
        pending = find_records(stores, table.metadata).pending if refused else []
        others = [entry for entry in pending if entry.run_id != run_id]
        return any(stored_key(file.path) in metadata_keys for entry in others for file in entry.files)

    try:
        committed = commit_expiry(table, request, replan, done_by_others)
    except IcebergCompactError as error:
        if not isinstance(error, CommitUnknownError):
            # No snapshot was removed, so no file may be deleted: a later run must not find the journal.
            stores.delete(own_journals)
        raise
    base, plan, fresh, expired = committed.base, committed.plan, committed.fresh, committed.expired
    # The reloaded table may carry renewed credentials.
    stores.renew(fresh.io)
    if options.keep_files:
        stores.delete(own_journals)
        return ExpiryResult(expired_snapshots=expired)
    events.reach("expire.committed", expired=expired)

    records = find_records(stores, fresh.metadata)
    quarantine.purge(
        stores, records.quarantined, request.now_ms, lambda paths: reader.needed_among(fresh.metadata, paths)
    )
    pending = [entry for entry in records.pending if entry.run_id != run_id]
    others = journals.not_yet_deleted(stores, pending)
    files = still_unneeded(reader, stores, base, fresh.metadata, plan.files, plan.retention.kept, others)
    if files:
        require_one_name(fresh, lambda: reload(table), stores)
        files = _not_named_by_others(fresh, stores, files, options)
    events.reach("expire.delete", files=len(files))
    keep_ms = _keep_times(plan, others, files, options)
    removed = _remove(stores, fresh.metadata, files, keep_ms, run_id, request.now_ms)
    _close_journals(stores, fresh.metadata, run_id, own_journals, others, files, removed, keep_ms)
    gone = [file for file in files if file.path not in removed.failures]
    return ExpiryResult(
        expired_snapshots=expired,
        deleted=Counter(file.kind for file in gone),
        failed_deletes=len(removed.failures),
        # A file in quarantine still takes its space, and a file that did not exist took none.
        freed_bytes=sum(f.size_bytes for f in gone if f.path not in keep_ms and f.path not in removed.missing),
        failures=removed.failures,
    )


def _only_ours(table: Table, stores: Stores, plan: ExpiryPlan, options: ExpiryOptions) -> ExpiryPlan:
    """Return the plan without files of other tables; refuse a table that has a second name."""
    if not plan.files:
        return plan
    require_one_name(table, lambda: reload(table), stores)
    files = _not_named_by_others(table, stores, plan.files, options)
    return replace(plan, files=tuple(files))


def _not_named_by_others(
    table: Table, stores: Stores, files: Sequence[NeededFile], options: ExpiryOptions
) -> list[NeededFile]:
    """Return the files that no other table of the catalog names.

    Files outside the table's folders were imported (add_files), perhaps from a table that is still in use. Files
    inside are the table's own. They are kept if another table has imported them.
    """
    roots = [split_location(root) for root in owned_roots(table.metadata)]
    paths = [file.path for file in files]
    imported = [path for path in paths if all(relative_to(root, split_location(path)) is None for root in roots)]
    others = OtherTables(table, stores.workers, options.ignored_tables)
    identity = KnownFiles().identity
    own = sorted(set(paths).difference(imported))
    named = {**others.naming(imported, identity), **others.naming_taken_over(own, identity)}
    return [file for file in files if file.path not in named]


def _plan(
    metadata: TableMetadata, request: ExpiryRequest, reader: Reachability, stores: Stores, *, with_files: bool
) -> ExpiryPlan:
    damage_checks.refuse_broken_refs(metadata)
    retention = decide(metadata, request)
    kept = snapshots_of(metadata, retention.kept)
    files: tuple[NeededFile, ...] = ()
    if with_files and retention.expired:
        damage_checks.refuse_changed_snapshots(metadata, reader)
        candidates = needed_by(reader, metadata, retention.expired, kept)
        keep_needed(candidates, reader, stores, metadata, kept)
        files = tuple(candidates.values())
    if not request.clean_expired_metadata:
        return ExpiryPlan(retention, files)
    specs = {manifest.spec_id for manifest in reader.manifests_of(kept).values()} | {metadata.default_spec_id}
    schemas = {snapshot.schema_id for snapshot in kept} | {metadata.current_schema_id}
    schemas |= _schemas_of_sources(metadata, specs, schemas)
    return ExpiryPlan(
        retention,
        files,
        spec_ids=tuple(s.spec_id for s in metadata.partition_specs if s.spec_id not in specs),
        schema_ids=tuple(s.schema_id for s in metadata.schemas if s.schema_id not in schemas),
    )


def _schemas_of_sources(metadata: TableMetadata, specs: Collection[int], schemas: Collection[int | None]) -> set[int]:
    """Return the newest schemas with source columns of these specs that none of the given schemas has.

    Only such a schema has the type of a dropped column. Without the type, partition values of that column cannot be
    read.
    """
    wanted = {f.source_id for spec in metadata.partition_specs if spec.spec_id in specs for f in spec.fields}
    newest_first = sorted(metadata.schemas, key=lambda schema: (schema.schema_id in schemas, schema.schema_id))[::-1]
    needed = set()
    for schema in newest_first:
        known = wanted.intersection(schema.field_ids)
        if known and schema.schema_id not in schemas:
            needed.add(schema.schema_id)
        wanted -= known
    return needed


def _keep_times(
    plan: ExpiryPlan, others: list[PendingDeletes], files: Sequence[NeededFile], options: ExpiryOptions
) -> dict[str, int]:
    """Return for each path how long it is kept in quarantine; files that are deleted at once are left out.

    Files of an interrupted run with quarantine go to quarantine now, even if this run deletes its own files.
    """
    if options.quarantine_ms:
        return {file.path: options.quarantine_ms for file in files}
    own = {stored_key(file.path) for file in plan.files}
    times = journals.keep_times(others)
    keys = {file.path: stored_key(file.path) for file in files}
    return {path: times[key] for path, key in keys.items() if key in times and key not in own}


@dataclass(frozen=True, slots=True)
class _Removed:
    """The reason for each path that could not be removed, and the paths that did not exist."""

    failures: Mapping[str, str]
    missing: frozenset[str] = frozenset()


def _remove(
    stores: Stores,
    metadata: TableMetadata,
    files: list[NeededFile],
    keep_ms: Mapping[str, int],
    run_id: str,
    now_ms: int,
) -> _Removed:
    missing: set[str] = set()
    failures = quarantine.put_aside_until(stores, metadata, files, keep_ms, run_id=run_id, now_ms=now_ms)
    for kind in DELETE_ORDER:
        paths = [file.path for file in files if file.kind is kind and file.path not in keep_ms]
        for start in range(0, len(paths), _DELETE_BATCH):
            # A cancelled run leaves the rest to the next one, which finds it in the journal.
            events.stop_if_cancelled()
            failures.update(stores.delete(paths[start : start + _DELETE_BATCH], missing))
    return _Removed(failures, frozenset(missing))


def _close_journals(
    stores: Stores,
    metadata: TableMetadata,
    run_id: str,
    own: list[str],
    others: list[PendingDeletes],
    files: list[NeededFile],
    removed: _Removed,
    keep_ms: Mapping[str, int],
) -> None:
    """Write one journal of the files that could not be deleted, and delete the journals that are finished.

    A journal that names files still needed is kept: its run may not have committed yet.
    """
    tried = {stored_key(file.path) for file in files}
    closed = [entry.journal for entry in others if all(stored_key(file.path) in tried for file in entry.files)]
    if removed.failures:
        failed = [file for file in files if file.path in removed.failures]
        longest_ms = max((keep_ms[file.path] for file in failed if file.path in keep_ms), default=None)
        rest = journals.write_pending(stores, metadata, run_id, failed, longest_ms)
        own = [journal for journal in own if journal != rest]
    stores.delete(closed + own)
