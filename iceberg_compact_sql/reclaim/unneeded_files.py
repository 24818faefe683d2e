"""The files that only expired snapshots need: all that they name, except what the kept metadata needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql.reclaim import damage_checks
from iceberg_compact_sql.reclaim.damage_checks import NamedFile
from iceberg_compact_sql.reclaim.deletion_candidates import DeletionCandidates
from iceberg_compact_sql.reclaim.journals import PendingDeletes
from iceberg_compact_sql.reclaim.reachability import FileKind, NeededFile, Reachability, statistics_of
from iceberg_compact_sql.storage.same_file import stored_key
from iceberg_compact_sql.storage.stores import Stores

# Delete content first and manifest lists last, so that an interrupted run can still find the rest.
DELETE_ORDER = (
    FileKind.DATA,
    FileKind.POSITION_DELETE,
    FileKind.EQUALITY_DELETE,
    FileKind.STATISTICS,
    FileKind.MANIFEST,
    FileKind.MANIFEST_LIST,
)


def needed_by(
    reader: Reachability, metadata: TableMetadata, expired: Iterable[int], kept: list[Snapshot]
) -> dict[str, NeededFile]:
    """Return all files of expired snapshots, by `stored_key`; manifests that kept snapshots share are not read."""
    expired_snapshots = snapshots_of(metadata, expired)
    shared = reader.manifests_of(kept)
    own = {key: manifest for key, manifest in reader.manifests_of(expired_snapshots).items() if key not in shared}
    needed = {key: NeededFile(m.path, FileKind.MANIFEST, m.size_bytes) for key, m in own.items()}
    needed.update((stored_key(file.path), file) for file in reader.lists_of(expired_snapshots))
    needed.update((stored_key(file.path), file) for file in statistics_of(metadata, frozenset(expired)))
    for file in reader.content_of(own.values()):
        needed.setdefault(stored_key(file.path), file)
    return needed


def keep_needed(
    candidates: dict[str, NeededFile],
    reader: Reachability,
    stores: Stores,
    metadata: TableMetadata,
    kept: list[Snapshot],
) -> None:
    """Remove from `candidates` the files that the kept snapshots or the metadata itself need.

    Raises if a kept manifest is damaged: damage may hide that a file is needed.
    """
    kept_ids = frozenset(snapshot.snapshot_id for snapshot in kept)
    known = dict(candidates)
    deletion = DeletionCandidates(candidates)
    for snapshot in kept:
        deletion.keep(snapshot.manifest_list)
    for file in statistics_of(metadata, kept_ids):
        deletion.keep(file.path)
    manifests = reader.manifests_of(kept)
    for manifest in manifests.values():
        deletion.keep(manifest.path)
    named: list[NamedFile] = []
    if any(file.kind is FileKind.STATISTICS for file in candidates.values()):
        named += damage_checks.named_statistics(metadata, kept_ids)
    repeated: list[NamedFile] = []
    if any(file.kind in DELETE_ORDER[:3] for file in candidates.values()):
        for item in damage_checks.named_by_manifests(reader, manifests.values(), repeated):
            key = stored_key(item.file.path)
            deletion.keep(item.file.path)
            # A file that an expired manifest names with the same size is not damaged. All other files must exist.
            if key not in known or known[key].size_bytes != item.file.size_bytes:
                named.append(item)
    content = [file.path for file in candidates.values() if file.kind in DELETE_ORDER[:4]]
    if content:
        damage_checks.refuse_similar_paths(repeated, content)
        damage_checks.refuse_missing_files(stores, named, content)
    deletion.report()


def still_unneeded(
    reader: Reachability,
    stores: Stores,
    base: TableMetadata,
    fresh: TableMetadata,
    planned: Sequence[NeededFile],
    kept_by_plan: Iterable[int],
    pending: list[PendingDeletes],
) -> list[NeededFile]:
    """Return the planned files, and those of unfinished deletions, that the fresh metadata does not need.

    The snapshots that the plan kept do not need a planned file. Only newer snapshots are checked.
    """
    candidates = {stored_key(file.path): file for file in planned}
    known = frozenset(kept_by_plan) if base.table_uuid == fresh.table_uuid else frozenset()
    keep_needed(candidates, reader, stores, fresh, [s for s in fresh.snapshots if s.snapshot_id not in known])
    deletion = DeletionCandidates(candidates)
    for file in statistics_of(fresh):
        deletion.keep(file.path)
    deletion.report()
    left_over = undeleted_files(reader, stores, fresh, [s.snapshot_id for s in fresh.snapshots], pending)
    return sorted({**left_over, **candidates}.values(), key=lambda file: DELETE_ORDER.index(file.kind))


def undeleted_files(
    reader: Reachability,
    stores: Stores,
    metadata: TableMetadata,
    kept: Iterable[int],
    pending: list[PendingDeletes],
) -> dict[str, NeededFile]:
    """Return the files of unfinished deletions that no kept snapshot needs."""
    left = {stored_key(file.path): file for entry in pending for file in entry.files}
    if left:
        keep_needed(left, reader, stores, metadata, snapshots_of(metadata, kept))
    return left


def snapshots_of(metadata: TableMetadata, ids: Iterable[int]) -> list[Snapshot]:
    wanted = frozenset(ids)
    return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in wanted]
