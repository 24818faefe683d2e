"""Deletes that apply to nothing any more, proved on the final state of the new snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile

from iceberg_compact_sql.commit.delete_scope import DeleteId, DeleteScope
from iceberg_compact_sql.commit.find_files import Wanted, may_hold
from iceberg_compact_sql.commit.partition_keys import PartitionKey, loose_partition_key
from iceberg_compact_sql.commit.snapshot_draft import Head, ManifestReader, has_live_files
from iceberg_compact_sql.storage.paths import same_file_key


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file that the new snapshot adds, with the data sequence number that it will carry."""

    file: DataFile
    sequence_number: int


@dataclass(slots=True)
class _Evidence:
    """What was seen of live data files, no more than the open questions need."""

    targets: set[str]
    partitions: set[PartitionKey]
    lowest: int | None = None
    lowest_in: dict[PartitionKey, int] = field(default_factory=dict)
    lowest_of_target: dict[str, int] = field(default_factory=dict)
    paths_in: dict[PartitionKey, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))

    def see(self, file: DataFile, sequence_number: int, *, new: bool = False) -> None:
        if self.lowest is None or sequence_number < self.lowest:
            self.lowest = sequence_number
        key = loose_partition_key(file.spec_id, file.partition)
        known = self.lowest_in.get(key)
        if known is None or sequence_number < known:
            self.lowest_in[key] = sequence_number
        # A delete that is already live names no file that is only now being added: its path was in no snapshot yet.
        if new or (not self.targets and key not in self.partitions):
            return
        path = same_file_key(file.file_path)
        if path in self.targets:
            self.lowest_of_target[path] = min(sequence_number, self.lowest_of_target.get(path, sequence_number))
        if key in self.partitions:
            self.paths_in[key].append((path, sequence_number))

    def alive(self, delete: DeleteScope) -> bool:
        """Whether some live data file can lose a row to the delete."""
        number = delete.sequence_number
        if delete.equality:
            lowest = self.lowest if delete.everywhere else self.lowest_in.get(delete.partition)
            return lowest is not None and lowest < number
        if delete.target is not None:
            lowest = self.lowest_of_target.get(delete.target)
            return lowest is not None and lowest <= number
        return any(
            sequence_number <= number and delete.may_name(path)
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
    """The deletes, of those given, that no live data file of the new snapshot can be touched by.

    The new files count with the data sequence number that they carry: an equality delete that landed during
    a compaction is newer than its outputs and therefore stays. Data manifests that no delete can reach are not read.
    """
    if not deletes:
        return set()
    evidence = _Evidence(
        targets={delete.target for delete in deletes if delete.target is not None},
        partitions={d.partition for d in deletes if not d.equality and d.target is None},
    )
    for new in added:
        evidence.see(new.file, new.sequence_number, new=True)
    wanted = _reach(deletes)
    passed_over = []
    for manifest in head.of_content(ManifestContent.DATA):
        if not has_live_files(manifest):
            continue
        if not _reaches(head, manifest, wanted, deletes):
            passed_over.append(manifest)
            continue
        _look_into(head, manifest, removed_paths, evidence, reader)
    # Readers find a delete of one file by its path alone, whatever partition its writer gave it: before such a delete
    # goes that was not made idle by this very commit, its file is looked for everywhere.
    gone = {same_file_key(path) for path in removed_paths}
    lost = {d.target for d in deletes if d.target is not None and d.target not in gone and not evidence.alive(d)}
    if lost:
        for manifest in passed_over:
            _look_into(head, manifest, removed_paths, evidence, reader)
    return {delete.delete_id for delete in deletes if not evidence.alive(delete)}


def _look_into(
    head: Head, manifest: ManifestFile, removed_paths: Collection[str], evidence: _Evidence, reader: ManifestReader
) -> None:
    for entry in reader.entries(head, manifest):
        if entry.data_file.file_path not in removed_paths:
            evidence.see(entry.data_file, entry.sequence_number or 0)


def _reach(deletes: Sequence[DeleteScope]) -> list[Wanted] | None:
    """The parts of the table that the deletes can reach; None: all of it."""
    if any(delete.everywhere for delete in deletes):
        return None
    by_spec: dict[int, list[DeleteScope]] = defaultdict(list)
    for delete in deletes:
        by_spec[delete.partition[0]].append(delete)
    return [
        Wanted(spec_id, frozenset(d.partition[1:] for d in mine), 0, max(d.sequence_number for d in mine))
        for spec_id, mine in by_spec.items()
    ]


def _reaches(head: Head, manifest: ManifestFile, wanted: list[Wanted] | None, deletes: Sequence[DeleteScope]) -> bool:
    if wanted is None:
        return manifest.min_sequence_number <= max(delete.sequence_number for delete in deletes)
    return any(may_hold(head, manifest, one) for one in wanted)
