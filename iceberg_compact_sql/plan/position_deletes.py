"""Plans which position delete files are merged: the size rules of data files, with the target of delete files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.plan.packing import pack_files
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile
from iceberg_compact_sql.table.partition_keys import exact_partition_key


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a merge of position delete files."""

    target_bytes: int
    min_file_bytes: int
    max_file_bytes: int
    min_input_files: int
    max_group_bytes: int
    rewrite_all: bool
    # One delete file for each data file, for `write.delete.granularity` = 'file'.
    one_per_data_file: bool = False
    max_group_files: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Position delete files of one partition that are rewritten and committed together."""

    group_id: int
    spec_id: int
    partition: tuple[Any, ...]
    deletes: tuple[LiveDelete, ...]

    @property
    def input_bytes(self) -> int:
        return sum(delete.own_bytes for delete in self.deletes)

    @property
    def sequence_number(self) -> int:
        """The sequence number of the merged file: that of its newest input. Safe, as paths of data files are unique."""
        return max(delete.sequence_number for delete in self.deletes)


PartitionKey = tuple[int, Any]


def partition_key(spec_id: int, partition: tuple[Any, ...]) -> PartitionKey:
    """Return the key of a partition, for data files and delete files."""
    return (spec_id, exact_partition_key(partition))


def sequences_by_partition(files: Sequence[LiveFile]) -> Mapping[PartitionKey, Mapping[str, int]]:
    """Map each partition to the data sequence numbers of its live data files, by exact path."""
    sequences: dict[PartitionKey, dict[str, int]] = defaultdict(dict)
    for file in files:
        by_path = sequences[partition_key(file.spec_id, file.partition)]
        # For a file with two entries use the older one: more deletes apply to it.
        by_path[file.path] = min(file.sequence_number, by_path.get(file.path, file.sequence_number))
    return sequences


def plan_delete_groups(
    deletes: Sequence[LiveDelete],
    options: DeleteOptions,
    *,
    sequences: Mapping[PartitionKey, Mapping[str, int]],
    partitions: Collection[PartitionKey] | None = None,
) -> tuple[DeleteGroup, ...]:
    """Return the groups to rewrite, only of the given `partitions`. A second plan on the result selects nothing.

    A file-scoped delete applies to its data file even if its writer recorded another partition. A merged delete file
    applies only within its partition. So a delete is not merged if its data file is in another partition.
    """
    partition_by_path = {path: key for key, paths in sequences.items() for path in paths}
    candidates: dict[PartitionKey, list[LiveDelete]] = defaultdict(list)
    for delete in deletes:
        key = partition_key(delete.spec_id, delete.partition)
        if delete.kind is not DeleteKind.POSITION or not (partitions is None or key in partitions):
            continue
        file_elsewhere = (
            delete.referenced_path is not None and partition_by_path.get(delete.referenced_path, key) != key
        )
        if not file_elsewhere and _wrong_size(delete, options):
            candidates[key].append(delete)
    groups: list[DeleteGroup] = []
    for partition_deletes in candidates.values():
        for packed in pack_files(partition_deletes, options.max_group_bytes, options.max_group_files):
            if _worthwhile(packed, options):
                first = packed[0]
                groups.append(DeleteGroup(len(groups), first.spec_id, first.partition, tuple(packed)))
    return tuple(groups)


def plan_vector_groups(
    deletes: Sequence[LiveDelete],
    options: DeleteOptions,
    *,
    files: Sequence[LiveFile],
    partitions: Collection[PartitionKey] | None = None,
) -> tuple[DeleteGroup, ...]:
    """Return the groups of a table whose deletes are deletion vectors (format version 3).

    - Position delete files from before an upgrade become vectors, all of a partition at once: a vector hides every
      position delete of its data file, so it must contain all of them.
    - Vectors in many Puffin files move to one.

    A second plan on the result selects nothing.
    """
    file_of = {file.path: file for file in files}
    places: dict[PartitionKey, tuple[int, tuple[Any, ...]]] = {}
    position_files: dict[PartitionKey, list[LiveDelete]] = defaultdict(list)
    vectors: dict[PartitionKey, list[LiveDelete]] = defaultdict(list)
    for delete in deletes:
        if delete.kind is DeleteKind.EQUALITY:
            continue
        # A vector has the partition of its data file; a file-scoped delete may have been written with another one.
        home = file_of.get(delete.referenced_path or "", delete)
        key = partition_key(home.spec_id, home.partition)
        if partitions is None or key in partitions:
            places[key] = (home.spec_id, home.partition)
            (vectors if delete.kind is DeleteKind.VECTOR else position_files)[key].append(delete)
    groups: list[DeleteGroup] = []
    for key, place in places.items():
        chosen = [*position_files[key], *(vectors[key] if _many_puffins(vectors[key], options) else ())]
        if chosen:
            groups.append(DeleteGroup(len(groups), *place, tuple(chosen)))
    return tuple(groups)


def _many_puffins(vectors: Sequence[LiveDelete], options: DeleteOptions) -> bool:
    """Whether merging pays: many Puffin files, as commits leave them, of which one of the target size is enough."""
    puffins = {vector.path for vector in vectors}
    small = sum(vector.own_bytes for vector in vectors) <= options.target_bytes
    return len(puffins) > 1 and small and (options.rewrite_all or len(puffins) >= options.min_input_files)


def _wrong_size(delete: LiveDelete, options: DeleteOptions) -> bool:
    inside = options.min_file_bytes <= delete.size_bytes <= options.max_file_bytes
    return options.rewrite_all or not inside


def _worthwhile(deletes: Sequence[LiveDelete], options: DeleteOptions) -> bool:
    if options.one_per_data_file:
        targets = {delete.referenced_path for delete in deletes}
        return options.rewrite_all or None in targets or len(targets) < len(deletes)
    size = sum(delete.size_bytes for delete in deletes)
    if options.rewrite_all or size > options.max_file_bytes:
        return True
    return len(deletes) > 1 and (len(deletes) >= options.min_input_files or size > options.target_bytes)
