"""What happened between the plan and the head, and which replacements it forbids."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from iceberg_compact_sql.commit.delete_scope import DeleteScope, delete_scope
from iceberg_compact_sql.commit.find_files import Located
from iceberg_compact_sql.commit.model import Replacement
from iceberg_compact_sql.commit.partition_keys import PartitionKey, loose_partition_key
from iceberg_compact_sql.commit.snapshot_draft import Head, ManifestReader, has_live_files
from iceberg_compact_sql.storage.paths import same_file_key
from iceberg_compact_sql.table.model import LiveFile, PlannedState


def is_ancestor(metadata: TableMetadata, branch: str, snapshot_id: int) -> bool:
    """Whether a snapshot is in the history of a branch as far as the metadata still has it."""
    head = metadata.snapshot_by_name(branch)
    return any(snapshot.snapshot_id == snapshot_id for snapshot in ancestors_of(head, metadata))


def find_conflicts(
    head: Head, state: PlannedState, replacements: Sequence[Replacement], located: Located, reader: ManifestReader
) -> dict[int, str]:
    """A sentence for each replacement that must not be committed on this head; the others are safe.

    Judged by what is live in the head and by data sequence numbers, never by which snapshot wrote a manifest: a
    delete that was carried into another manifest by a later commit still counts, one that is gone does not.
    """
    if state.snapshot_id is None or not is_ancestor(head.metadata, head.branch, state.snapshot_id):
        sentence = (
            f"starting snapshot {state.snapshot_id} is no longer in the history of branch '{head.branch}': "
            "it was expired or rolled back"
        )
        return {replacement.key: sentence for replacement in replacements}
    conflicts = _vanished_inputs(head, replacements, located)
    if head.snapshot.snapshot_id != state.snapshot_id:
        fresh = _deletes_since(head, state, reader)
        for replacement in replacements:
            if replacement.key not in conflicts and (reason := fresh.conflict(replacement)):
                conflicts[replacement.key] = reason
    return conflicts


def _vanished_inputs(head: Head, replacements: Sequence[Replacement], located: Located) -> dict[int, str]:
    conflicts: dict[int, str] = {}
    taken: set[str] = set()
    specs = head.metadata.specs()
    for replacement in replacements:
        paths = Counter(file.path for file in replacement.removed)
        sentence = None
        for file in replacement.removed:
            entries = located.files.get(file.path, [])
            if not entries:
                sentence = f"input file {file.path} was removed meanwhile"
            elif len(entries) != paths[file.path] or file.path in taken:
                sentence = f"input file {file.path} is in the table more than once"
            elif head.metadata.format_version > 1 and file.sequence_number not in {e.sequence_number for e in entries}:
                sentence = f"input file {file.path} was removed and added again meanwhile"
            if sentence:
                break
        if sentence is None and (gone := {file.spec_id for file in replacement.added} - specs.keys()):
            sentence = f"partition spec {min(gone)} of the new files was removed meanwhile"
        if sentence:
            conflicts[replacement.key] = sentence
        else:
            taken.update(paths)
    return conflicts


class _FreshDeletes:
    """Deletes that the plan did not see, indexed by what they can touch."""

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
            elif scope.target is not None:
                self._by_target[scope.target].append(scope)
            else:
                self._by_partition[scope.partition].append(scope)

    def conflict(self, replacement: Replacement) -> str | None:
        for file in replacement.removed:
            if scope := self._position_delete_on(file):
                return f"rows of input file {file.path} were deleted meanwhile by {scope.delete_id[0]}"
        homes = {loose_partition_key(file.spec_id, file.partition) for file in replacement.removed}
        if replacement.data_sequence_number is None:
            if scope := self._equality_everywhere or self._equality_in(homes):
                return (
                    f"equality delete {scope.delete_id[0]} arrived meanwhile and would not apply to new files "
                    "that do not keep the old sequence number"
                )
            return None
        # An old sequence number keeps the rows of one partition under its deletes, and only as long as they stay there:
        # rows that change place would get away from the deletes of the old one and fall under those of the new one.
        places = homes | {loose_partition_key(file.spec_id, file.partition) for file in replacement.added}
        if len(places) > 1 and (scope := self._equality_in(places)):
            return (
                f"equality delete {scope.delete_id[0]} arrived meanwhile for a partition that rows leave or enter "
                "on their way to another spec"
            )
        return None

    def _equality_in(self, places: Iterable[PartitionKey]) -> DeleteScope | None:
        return next((self._equality[place] for place in places if place in self._equality), None)

    def _position_delete_on(self, file: LiveFile) -> DeleteScope | None:
        path = same_file_key(file.path)
        candidates = [
            *self._by_target.get(path, ()),
            *self._by_partition.get(loose_partition_key(file.spec_id, file.partition), ()),
        ]
        return next((scope for scope in candidates if scope.may_name(path)), None)


def _deletes_since(head: Head, state: PlannedState, reader: ManifestReader) -> _FreshDeletes:
    scopes = []
    for manifest in head.of_content(ManifestContent.DELETES):
        # A manifest is never older than its entries, so an old one holds no new delete.
        if not has_live_files(manifest) or manifest.sequence_number <= state.sequence_number:
            continue
        for entry in reader.entries(head, manifest):
            if (entry.sequence_number or 0) > state.sequence_number:
                scopes.append(delete_scope(entry, head.metadata))
    return _FreshDeletes(scopes)
