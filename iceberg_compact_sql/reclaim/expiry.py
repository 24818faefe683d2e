"""Expiring snapshots: metadata first, on the freshest state, then exactly the files that nothing needs any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import CommitUnknownError, IcebergCompactError
from iceberg_compact_sql.reclaim import quarantine
from iceberg_compact_sql.reclaim.commit_expiry import commit_expiry
from iceberg_compact_sql.reclaim.quarantine import PendingDeletes
from iceberg_compact_sql.reclaim.reachability import FileKind, NeededFile, Reachability, statistics_of
from iceberg_compact_sql.reclaim.retention import ExpiryRequest, Retention, check_request, decide
from iceberg_compact_sql.storage.locations import one_file_key
from iceberg_compact_sql.storage.stores import Stores

# Content goes first and lists last: what an interrupted run leaves is what leads to the rest.
_DELETE_ORDER = (
    FileKind.DATA,
    FileKind.POSITION_DELETE,
    FileKind.EQUALITY_DELETE,
    FileKind.STATISTICS,
    FileKind.MANIFEST,
    FileKind.MANIFEST_LIST,
)
_SAMPLE = 8


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What would go: snapshots, refs, unused specs and schemas, and the files that only those snapshots need."""

    retention: Retention
    files: tuple[NeededFile, ...] = ()
    spec_ids: tuple[int, ...] = ()
    schema_ids: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.retention.expired or self.retention.removed_refs or self.spec_ids or self.schema_ids)


@dataclass(frozen=True, slots=True)
class ExpiryResult:
    """What went; `deleted` counts files by kind, those already gone included."""

    expired_snapshots: int = 0
    deleted: Mapping[FileKind, int] = field(default_factory=dict)
    failed_deletes: int = 0
    freed_bytes: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpiryOptions:
    """How files go: not at all, in how many threads, or aside for a time."""

    keep_files: bool = False
    workers: int | None = None
    quarantine_ms: int | None = None


def plan_expiry(table: Table, request: ExpiryRequest, options: ExpiryOptions | None = None) -> ExpiryPlan:
    """What `run_expiry` with the same arguments would remove now; changes nothing."""
    options = options or ExpiryOptions()
    check_request(table.metadata, request)
    stores = Stores(table.io, workers=options.workers)
    reader = Reachability(stores)
    plan = _plan(table.metadata, request, reader, with_files=not options.keep_files)
    if options.keep_files:
        return plan
    pending = quarantine.not_yet_deleted(stores, quarantine.runs(stores, table.metadata)[1])
    left_over = _left_over(reader, table.metadata, plan.retention.kept, pending)
    known = {one_file_key(file.path) for file in plan.files}
    extra = tuple(file for key, file in left_over.items() if key not in known)
    return ExpiryPlan(plan.retention, plan.files + extra, plan.spec_ids, plan.schema_ids)


def run_expiry(table: Table, request: ExpiryRequest, options: ExpiryOptions | None = None) -> ExpiryResult:
    """Expire snapshots and delete the files that only they needed.

    The commit holds only while the plan is still right on the metadata that it replaces; otherwise it is planned
    again. Files are chosen from metadata loaded after the commit: whatever a snapshot or ref needs by then stays.
    Running again finishes what an interrupted run left over.
    """
    options = options or ExpiryOptions()
    check_request(table.metadata, request)
    stores = Stores(table.io, workers=options.workers)
    reader = Reachability(stores)
    run_id = quarantine.new_run_id()
    journals: list[str] = []

    def replan(metadata: TableMetadata) -> ExpiryPlan:
        plan = _plan(metadata, request, reader, with_files=not options.keep_files)
        events.reach("expire.planned", expired=len(plan.retention.expired), files=len(plan.files))
        if options.quarantine_ms:
            # Found out before the commit, while everything can still stay as it is.
            quarantine.refuse_other_stores(metadata, plan.files)
        if plan.files:
            journals[:] = [quarantine.write_pending(stores, metadata, run_id, plan.files)]
        return plan

    def done_by_others(plan: ExpiryPlan, refused: bool) -> bool:
        """Whether another run has deleted files that were there when this plan was made, or says that it is about to.

        What others mean to delete counts only against a refused commit: they may have lost against this one.
        """
        read = [file for file in plan.files if file.kind in (FileKind.MANIFEST, FileKind.MANIFEST_LIST)]
        if any(state is None for state in stores.each(lambda file: stores.stat(file.path), read[:_SAMPLE])):
            return True
        mine = {one_file_key(file.path) for file in read}
        pending = quarantine.runs(stores, table.metadata)[1] if refused else []
        others = [one for one in pending if one.journal not in journals]
        return any(one_file_key(file.path) in mine for one in others for file in one.files)

    try:
        committed = commit_expiry(table, request, replan, done_by_others)
    except IcebergCompactError as error:
        if not isinstance(error, CommitUnknownError):
            # Certain that nothing is to be deleted: a journal would have a later run look for it.
            stores.delete(journals)
        raise
    base, plan, fresh, expired = committed.base, committed.plan, committed.fresh, committed.expired
    # Credentials that came with the table may have been renewed meanwhile.
    stores.renew(fresh.io)
    if options.keep_files:
        stores.delete(journals)
        return ExpiryResult(expired_snapshots=expired)
    events.reach("expire.committed", expired=expired)

    quarantined, pending = quarantine.runs(stores, fresh.metadata)
    quarantine.purge(stores, quarantined, request.now_ms)
    others = quarantine.not_yet_deleted(stores, [one for one in pending if one.journal not in journals])
    files = _still_unneeded(reader, base, fresh.metadata, plan, others)
    events.reach("expire.delete", files=len(files))
    failures = _remove(stores, fresh.metadata, files, run_id, request.now_ms, options)
    _close_journals(stores, fresh.metadata, run_id, journals, others, files, failures)
    gone = [file for file in files if file.path not in failures]
    return ExpiryResult(
        expired_snapshots=expired,
        deleted=Counter(file.kind for file in gone),
        failed_deletes=len(failures),
        # What is only put aside still takes its room.
        freed_bytes=0 if options.quarantine_ms else sum(file.size_bytes for file in gone),
        failures=failures,
    )


def _plan(metadata: TableMetadata, request: ExpiryRequest, reader: Reachability, *, with_files: bool) -> ExpiryPlan:
    retention = decide(metadata, request)
    kept = _snapshots(metadata, retention.kept)
    files: tuple[NeededFile, ...] = ()
    if with_files and retention.expired:
        candidates = _needed_by(reader, metadata, retention.expired, kept)
        _spare_needed(candidates, reader, metadata, kept)
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
    """The newest schemas that know the source columns of these specs, where none of the given ones does.

    A column that was dropped after its files were written has its type nowhere else, and without it nobody can read
    the partition values of those files.
    """
    wanted = {f.source_id for spec in metadata.partition_specs if spec.spec_id in specs for f in spec.fields}
    newest_first = sorted(metadata.schemas, key=lambda schema: (schema.schema_id in schemas, schema.schema_id))[::-1]
    found = set()
    for schema in newest_first:
        known = wanted.intersection(schema.field_ids)
        if known and schema.schema_id not in schemas:
            found.add(schema.schema_id)
        wanted -= known
    return found


def _needed_by(
    reader: Reachability, metadata: TableMetadata, expired: Iterable[int], kept: list[Snapshot]
) -> dict[str, NeededFile]:
    """Everything that expired snapshots need, by key; manifests that kept ones share are not even read."""
    going = _snapshots(metadata, expired)
    shared = reader.manifests_of(kept)
    own = {key: manifest for key, manifest in reader.manifests_of(going).items() if key not in shared}
    needed = {key: NeededFile(m.path, FileKind.MANIFEST, m.size_bytes) for key, m in own.items()}
    needed.update((one_file_key(file.path), file) for file in reader.lists_of(going))
    needed.update((one_file_key(file.path), file) for file in statistics_of(metadata, frozenset(expired)))
    for file in reader.content_of(own.values()):
        needed.setdefault(one_file_key(file.path), file)
    return needed


def _spare_needed(
    candidates: dict[str, NeededFile], reader: Reachability, metadata: TableMetadata, kept: list[Snapshot]
) -> None:
    """Take out of `candidates` whatever the kept snapshots or the metadata itself need."""
    kept_ids = frozenset(snapshot.snapshot_id for snapshot in kept)
    for snapshot in kept:
        candidates.pop(one_file_key(snapshot.manifest_list), None)
    for file in statistics_of(metadata, kept_ids):
        candidates.pop(one_file_key(file.path), None)
    manifests = reader.manifests_of(kept)
    for key in manifests:
        candidates.pop(key, None)
    content = {key for key, file in candidates.items() if file.kind in _DELETE_ORDER[:3]}
    if content:
        for file in reader.content_of(manifests.values()):
            key = one_file_key(file.path)
            if key in content:
                candidates.pop(key, None)
                content.discard(key)
                if not content:
                    break


def _still_unneeded(
    reader: Reachability,
    base: TableMetadata,
    fresh: TableMetadata,
    plan: ExpiryPlan,
    pending: list[PendingDeletes],
) -> list[NeededFile]:
    """The planned files minus everything that the fresh metadata needs.

    A planned file is not needed by the snapshots that the plan kept; only what is new since has to be looked at.
    """
    candidates = {one_file_key(file.path): file for file in plan.files}
    known = frozenset(plan.retention.kept) if base.table_uuid == fresh.table_uuid else frozenset()
    _spare_needed(candidates, reader, fresh, [s for s in fresh.snapshots if s.snapshot_id not in known])
    for file in statistics_of(fresh):
        candidates.pop(one_file_key(file.path), None)
    left_over = _left_over(reader, fresh, [s.snapshot_id for s in fresh.snapshots], pending)
    return sorted({**left_over, **candidates}.values(), key=lambda file: _DELETE_ORDER.index(file.kind))


def _left_over(
    reader: Reachability, metadata: TableMetadata, kept: Iterable[int], pending: list[PendingDeletes]
) -> dict[str, NeededFile]:
    left = {one_file_key(file.path): file for one in pending for file in one.files}
    if left:
        _spare_needed(left, reader, metadata, _snapshots(metadata, kept))
    return left


def _remove(
    stores: Stores,
    metadata: TableMetadata,
    files: list[NeededFile],
    run_id: str,
    now_ms: int,
    options: ExpiryOptions,
) -> dict[str, str]:
    if not files:
        return {}
    if options.quarantine_ms:
        return quarantine.put_aside(
            stores, metadata, files, run_id=run_id, now_ms=now_ms, keep_ms=options.quarantine_ms
        )
    failures: dict[str, str] = {}
    for kind in _DELETE_ORDER:
        failures.update(stores.delete(file.path for file in files if file.kind is kind))
    return failures


def _close_journals(
    stores: Stores,
    metadata: TableMetadata,
    run_id: str,
    own: list[str],
    others: list[PendingDeletes],
    files: list[NeededFile],
    failures: Mapping[str, str],
) -> None:
    """Leave one journal of exactly the files that could not be deleted, and drop those that are done with.

    A journal with files still needed may be of a run that has not committed yet, so it stays.
    """
    tried = {one_file_key(file.path) for file in files}
    closed = [one.journal for one in others if all(one_file_key(file.path) in tried for file in one.files)]
    if failures:
        rest = quarantine.write_pending(stores, metadata, run_id, [file for file in files if file.path in failures])
        own = [journal for journal in own if journal != rest]
    stores.delete(closed + own)


def _snapshots(metadata: TableMetadata, ids: Iterable[int]) -> list[Snapshot]:
    wanted = frozenset(ids)
    return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in wanted]
