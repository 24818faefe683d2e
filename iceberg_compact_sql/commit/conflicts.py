"""Which replacements conflict with the commits between the planned snapshot and the head."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.manifest import ManifestContent, ManifestEntry
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from iceberg_compact_sql.commit.delete_scope import DeleteScope, delete_scope
from iceberg_compact_sql.commit.find_files import LocatedFiles
from iceberg_compact_sql.commit.model import Replacement
from iceberg_compact_sql.commit.snapshot_draft import Head, ManifestReader, has_live_files
from iceberg_compact_sql.format_versions import rules_of
from iceberg_compact_sql.storage.same_file import loose_key
from iceberg_compact_sql.table.model import LiveFile, PlannedState
from iceberg_compact_sql.table.partition_keys import PartitionKey, loose_partition_key


def is_ancestor(metadata: TableMetadata, branch: str, snapshot_id: int) -> bool:
    """Whether a snapshot is in the history of a branch as far as the metadata still has it."""
    head = metadata.snapshot_by_name(branch)
    return any(snapshot.snapshot_id == snapshot_id for snapshot in ancestors_of(head, metadata))


def find_conflicts(
    head: Head, state: PlannedState, replacements: Sequence[Replacement], located: LocatedFiles, reader: ManifestReader
) -> dict[int, str]:
    """Return the reason for each replacement that must not be committed on this head; the others are safe.

    Live files and data sequence numbers decide, never the snapshot that wrote a manifest: a delete that a later commit
    moved to another manifest still counts, one that was removed does not.
    """
    if state.snapshot_id is None or not is_ancestor(head.metadata, head.branch, state.snapshot_id):
        reason = (
            f"starting snapshot {state.snapshot_id} is no longer in the history of branch '{head.branch}': "
            "it was expired or rolled back"
        )
        return {replacement.key: reason for replacement in replacements}
    if head.metadata.format_version != state.format_version:
        # Files of another version lack what the new one requires, such as row ids.
        reason = f"the table was upgraded to format version {head.metadata.format_version} meanwhile"
        return {replacement.key: reason for replacement in replacements}
    conflicts = _vanished_inputs(head, replacements, located)
    if head.snapshot.snapshot_id != state.snapshot_id:
        newer_deletes = _deletes_since(head, state, reader)
        for replacement in replacements:
            if replacement.key not in conflicts and (conflict := newer_deletes.conflict(replacement)):
                conflicts[replacement.key] = conflict
    return conflicts


def _vanished_inputs(head: Head, replacements: Sequence[Replacement], located: LocatedFiles) -> dict[int, str]:
    conflicts: dict[int, str] = {}
    claimed_paths: set[str] = set()
    specs = head.metadata.specs()
    numbered = rules_of(head.metadata.format_version).sequence_numbers
    for replacement in replacements:
        paths = Counter(file.path for file in replacement.removed)
        reason = None
        for file in replacement.removed:
            entries = located.files.get(file.path, [])
            if not entries:
                reason = f"input file {file.path} was removed meanwhile"
            elif len(entries) != paths[file.path] or file.path in claimed_paths:
                reason = f"input file {file.path} is in the table more than once"
            elif numbered and file.sequence_number not in {entry.sequence_number for entry in entries}:
                reason = f"input file {file.path} was removed and added again meanwhile"
            if reason:
                break
        if reason is None and (gone := {file.spec_id for file in replacement.added} - specs.keys()):
            reason = f"partition spec {min(gone)} of the new files was removed meanwhile"
        if reason:
            conflicts[replacement.key] = reason
        else:
            claimed_paths.update(paths)
    return conflicts


def find_vector_conflicts(
    head: Head,
    replacements: Sequence[Replacement],
    deletes: Iterable[ManifestEntry],
    conflicts: Mapping[int, str],
    reader: ManifestReader,
) -> dict[int, str]:
    """Return the reason for each replacement whose new deletion vectors must not be added to this head.

    A data file has at most one vector, which hides all its position deletes. So a vector must not be added when its
    data file is gone, or got another vector or a position delete that the new vector does not contain.
    """
    targets = {
        replacement.key: {loose_key(new.referenced_path or "") for new in replacement.added_deletes if new.is_vector}
        for replacement in replacements
        if replacement.key not in conflicts
    }
    if not any(targets.values()):
        return {}
    vectors = [scope for entry in deletes if (scope := delete_scope(entry, head.metadata)).vector]
    live = {
        loose_key(entry.data_file.file_path)
        for manifest in head.of_content(ManifestContent.DATA)
        if has_live_files(manifest)
        for entry in reader.entries(head, manifest)
    }
    found: dict[int, str] = {}
    for replacement in replacements:
        wanted = targets.get(replacement.key, set())
        replaced = {(delete.path, delete.content_offset) for delete in replacement.removed_deletes}
        other = next((v for v in vectors if v.target_key in wanted and v.delete_id not in replaced), None)
        if other is not None:
            found[replacement.key] = f"data file {other.target} got another deletion vector meanwhile"
        elif not wanted <= live:
            found[replacement.key] = "a data file of its deletion vectors was removed meanwhile"
    return found


class _DeletesSincePlan:
    """Deletes that were committed after the planned snapshot, indexed by the data files that they can apply to."""

    def __init__(self, scopes: Sequence[DeleteScope]) -> None:
        self._by_target: dict[str, list[DeleteScope]] = defaultdict(list)
        self._by_partition: dict[PartitionKey, list[DeleteScope]] = defaultdict(list)
        self._equality: dict[PartitionKey, DeleteScope] = {}
        self._equality_everywhere: DeleteScope | None = None
        for scope in scopes:
            if scope.everywhere:
                self._equality_everywhere = scope
            elif scope.equality:
                self._equality[scope.partition] = scope
            elif scope.target_key is not None:
                self._by_target[scope.target_key].append(scope)
            else:
                self._by_partition[scope.partition].append(scope)

    def conflict(self, replacement: Replacement) -> str | None:
        for file in replacement.removed:
            if scope := self._position_delete_on(file):
                return f"rows of input file {file.path} were deleted meanwhile by {scope.delete_id[0]}"
        old_partitions = {loose_partition_key(file.spec_id, file.partition) for file in replacement.removed}
        if replacement.data_sequence_number is None:
            if scope := self._equality_everywhere or self._equality_in(old_partitions):
                return (
                    f"equality delete {scope.delete_id[0]} arrived meanwhile and would not apply to new files "
                    "that do not keep the old sequence number"
                )
            return None
        # Files that keep the old sequence number keep their equality deletes, but only within one partition. Rows that
        # move to another partition would escape its equality deletes and be hit by those of the new one.
        partitions = old_partitions | {loose_partition_key(file.spec_id, file.partition) for file in replacement.added}
        if len(partitions) > 1 and (scope := self._equality_in(partitions)):
            return (
                f"equality delete {scope.delete_id[0]} arrived meanwhile for a partition that rows leave or enter "
                "on their way to another spec"
            )
        return None

    def _equality_in(self, partitions: Iterable[PartitionKey]) -> DeleteScope | None:
        return next((self._equality[partition] for partition in partitions if partition in self._equality), None)

    def _position_delete_on(self, file: LiveFile) -> DeleteScope | None:
        candidates = [
            *self._by_target.get(loose_key(file.path), ()),
            *self._by_partition.get(loose_partition_key(file.spec_id, file.partition), ()),
        ]
        return next((scope for scope in candidates if scope.may_name(file.path)), None)


def _deletes_since(head: Head, state: PlannedState, reader: ManifestReader) -> _DeletesSincePlan:
    scopes = []
    for manifest in head.of_content(ManifestContent.DELETES):
        # A manifest is never older than its entries, so an old one holds no new delete.
        if not has_live_files(manifest) or manifest.sequence_number <= state.sequence_number:
            continue
        for entry in reader.entries(head, manifest):
            if (entry.sequence_number or 0) > state.sequence_number:
                scopes.append(delete_scope(entry, head.metadata))
    return _DeletesSincePlan(scopes)
