"""Which position delete files are merged: the size rules of data files, with the target of delete files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.plan.packing import pack_files
from iceberg_compact_sql.storage.paths import same_file_key
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile
from iceberg_compact_sql.table.partitions import partition_key


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Sizes and counts in plain numbers."""

    target_bytes: int
    min_file_bytes: int
    max_file_bytes: int
    min_input_files: int
    max_group_bytes: int
    rewrite_all: bool
    # One delete file for each data file, as `write.delete.granularity` may ask.
    one_per_data_file: bool = False


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Position delete files of one partition that are rewritten and committed together."""

    group_id: int
    spec_id: int
    partition: tuple[Any, ...]
    deletes: tuple[LiveDelete, ...]

    @property
    def input_bytes(self) -> int:
        return sum(delete.size_bytes for delete in self.deletes)

    @property
    def sequence_number(self) -> int:
        """What the merged file carries: paths are unique, so the newest of its inputs deletes nothing more."""
        return max(delete.sequence_number for delete in self.deletes)


Place = tuple[int, Any]


def place_of(spec_id: int, partition: tuple[Any, ...]) -> Place:
    """The key under which files and deletes of one partition meet."""
    return (spec_id, partition_key(partition))


def sequences_by_place(files: Sequence[LiveFile]) -> Mapping[Place, Mapping[str, int]]:
    """The data sequence number of every live data file by its comparing key, apart for each partition."""
    found: dict[Place, dict[str, int]] = defaultdict(dict)
    for file in files:
        found[place_of(file.spec_id, file.partition)][same_file_key(file.path)] = file.sequence_number
    return found


def plan_delete_groups(
    deletes: Sequence[LiveDelete],
    options: DeleteOptions,
    *,
    sequences: Mapping[Place, Mapping[str, int]],
    places: Collection[Place] | None = None,
) -> tuple[DeleteGroup, ...]:
    """Groups to rewrite; a second plan on the result of a first selects nothing. `places` limits the partitions.

    Readers find a delete of one file by its path alone, whatever partition its writer gave it. Merged with others it
    would be looked for in that partition only: where its file lives in another one, the delete stays as it is.
    """
    homes = {key: place for place, keys in sequences.items() for key in keys}
    by_place: dict[Place, list[LiveDelete]] = defaultdict(list)
    for delete in deletes:
        place = place_of(delete.spec_id, delete.partition)
        if delete.kind is not DeleteKind.POSITION or not (places is None or place in places):
            continue
        strays = delete.referenced_path is not None and homes.get(same_file_key(delete.referenced_path), place) != place
        if not strays and _chosen(delete, options):
            by_place[place].append(delete)
    groups: list[DeleteGroup] = []
    for candidates in by_place.values():
        for packed in pack_files(candidates, options.max_group_bytes, None):
            if _worthwhile(packed, options):
                first = packed[0]
                groups.append(DeleteGroup(len(groups), first.spec_id, first.partition, tuple(packed)))
    return tuple(groups)


def _chosen(delete: LiveDelete, options: DeleteOptions) -> bool:
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
