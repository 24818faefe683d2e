"""Dangling deletes: delete files that apply to no data file of the new snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile

from iceberg_compact_sql.commit.delete_scope import DeleteId, DeleteScope
from iceberg_compact_sql.commit.find_files import ManifestFilter, manifest_may_hold
from iceberg_compact_sql.commit.snapshot_draft import Head, ManifestReader, has_live_files
from iceberg_compact_sql.storage.same_file import loose_key
from iceberg_compact_sql.table.partition_keys import PartitionKey, loose_partition_key


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file that the new snapshot adds, with the data sequence number that it will carry."""

    file: DataFile
    sequence_number: int


@dataclass(slots=True)
class _LiveDataFiles:
    """Sequence numbers and paths of live data files, only as far as the given deletes need them."""

    targets: set[str]
    partitions: set[PartitionKey]
    lowest: int | None = None
    lowest_in: dict[PartitionKey, int] = field(default_factory=dict)
    lowest_of_target: dict[str, int] = field(default_factory=dict)
    paths_in: dict[PartitionKey, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, file: DataFile, sequence_number: int, *, new: bool = False) -> None:
        if self.lowest is None or sequence_number < self.lowest:
            self.lowest = sequence_number
        key = loose_partition_key(file.spec_id, file.partition)
        known = self.lowest_in.get(key)
        if known is None or sequence_number < known:
            self.lowest_in[key] = sequence_number
        # A live delete cannot name a file that this commit adds: no snapshot had its path before.
        if new or (not self.targets and key not in self.partitions):
            return
        path_key = loose_key(file.file_path)
        if path_key in self.targets:
            known = self.lowest_of_target.get(path_key, sequence_number)
            self.lowest_of_target[path_key] = min(sequence_number, known)
        if key in self.partitions:
            self.paths_in[key].append((file.file_path, sequence_number))

    def is_needed(self, delete: DeleteScope) -> bool:
        """Whether the delete may remove rows of a live data file."""
        if delete.equality:
            lowest = self.lowest if delete.everywhere else self.lowest_in.get(delete.partition)
            return lowest is not None and delete.applies_at(lowest)
        if delete.target_key is not None:
            lowest = self.lowest_of_target.get(delete.target_key)
            return lowest is not None and delete.applies_at(lowest)
        return any(
            delete.applies_at(sequence_number) and delete.may_name(path)
            for path, sequence_number in self.paths_in.get(delete.partition, ())
        )


def find_dangling(
    head: Head,
    deletes: Sequence[DeleteScope],
    *,
    removed_paths: Collection[str],
    added: Iterable[NewFile],
    reader: ManifestReader,
) -> set[DeleteId]:
    """Return those of the deletes that apply to no live data file of the new snapshot.

    New files count with the data sequence number that they carry: an equality delete that landed during a compaction
    is newer than its outputs, so it stays. Data manifests that no delete can apply to are not read.
    """
    if not deletes:
        return set()
    live_files = _LiveDataFiles(
        targets={delete.target_key for delete in deletes if delete.target_key is not None},
        partitions={d.partition for d in deletes if not d.equality and d.target is None},
    )
    for new in added:
        live_files.add(new.file, new.sequence_number, new=True)
    filters = _filters_of(deletes)
    manifests = [manifest for manifest in head.of_content(ManifestContent.DATA) if has_live_files(manifest)]
    needed = [manifest for manifest in manifests if _may_be_needed_by(head, manifest, filters, deletes)]
    _add_live_files(head, needed, removed_paths, live_files, reader)
    # Readers find a delete of one file by its path alone, whatever partition its writer gave it. Before removing one
    # that this commit did not make obsolete, search all manifests for its data file.
    if any(d.target is not None and d.target not in removed_paths and not live_files.is_needed(d) for d in deletes):
        needed_paths = {manifest.manifest_path for manifest in needed}
        skipped = [manifest for manifest in manifests if manifest.manifest_path not in needed_paths]
        _add_live_files(head, skipped, removed_paths, live_files, reader)
    return {delete.delete_id for delete in deletes if not live_files.is_needed(delete)}


def _add_live_files(
    head: Head,
    manifests: Sequence[ManifestFile],
    removed_paths: Collection[str],
    live_files: _LiveDataFiles,
    reader: ManifestReader,
) -> None:
    for _, entries in reader.all_entries(head, manifests):
        for entry in entries:
            if entry.data_file.file_path not in removed_paths:
                live_files.add(entry.data_file, entry.sequence_number or 0)


def _filters_of(deletes: Sequence[DeleteScope]) -> list[ManifestFilter] | None:
    """Return filters for the manifests whose files the deletes may apply to; None: all manifests."""
    if any(delete.everywhere for delete in deletes):
        return None
    by_spec: dict[int, list[DeleteScope]] = defaultdict(list)
    for delete in deletes:
        by_spec[delete.partition[0]].append(delete)
    return [
        ManifestFilter(spec_id, frozenset(d.partition[1:] for d in scopes), 0, max(d.sequence_number for d in scopes))
        for spec_id, scopes in by_spec.items()
    ]


def _may_be_needed_by(
    head: Head, manifest: ManifestFile, filters: list[ManifestFilter] | None, deletes: Sequence[DeleteScope]
) -> bool:
    if filters is None:
        return manifest.min_sequence_number <= max(delete.sequence_number for delete in deletes)
    return any(manifest_may_hold(head, manifest, manifest_filter) for manifest_filter in filters)
