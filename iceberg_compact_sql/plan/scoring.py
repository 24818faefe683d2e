"""The score, the health and the gain of a partition: how much it needs compaction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iceberg_compact_sql.plan.options import MAX_SIZE_RATIO, MIN_SIZE_RATIO
from iceberg_compact_sql.table.inventory import PartitionHistory, TableInventory
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile

_MB = 1024**2
_HOUR_MS = 3_600_000

# The score: four parts that add up to 1.
FILE_COUNT_WEIGHT, MANY_FILES = 0.3, 100
FRAGMENT_WEIGHT = 0.3
AGE_WEIGHT, OLD_HOURS = 0.2, 24
SMALL_WEIGHT, SMALL_BYTES = 0.2, 32 * _MB

# Health by Amoro's formula: points for sizes, equality and position deletes, and the worst ratio of each.
_HEALTH_FILES = 12
_SIZE_POINTS, _EQUALITY_POINTS, _POSITION_POINTS = 40, 40, 20
_WORST_EQUALITY_RATIO, _WORST_POSITION_RATIO = 0.1, 0.2


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Figures of one partition, for scores and reports."""

    data_files: int
    data_bytes: int
    rows: int
    small_files: int
    mergeable_files: int
    mergeable_bytes: int
    oversized_files: int
    delete_files: int
    delete_bytes: int
    position_deleted_rows: int
    equality_deleted_rows: int
    history: PartitionHistory

    @property
    def fragment_ratio(self) -> float:
        return self.delete_files / self.data_files if self.data_files else 0.0

    @property
    def deleted_rows_ratio(self) -> float:
        """The share of rows that position deletes and deletion vectors delete; equality deletes do not give a count."""
        return min(1.0, self.position_deleted_rows / self.rows) if self.rows else 0.0

    @property
    def worth_rewriting(self) -> bool:
        """Whether compaction could gain anything: two files to merge, one to split, or deletes to apply."""
        return self.mergeable_files >= 2 or self.oversized_files > 0 or self.delete_files > 0


def partition_facts(inventory: TableInventory, files: Sequence[LiveFile], target_bytes: int) -> PartitionFacts:
    """Return the facts of the files of one partition."""
    small_below = min(SMALL_BYTES, int(target_bytes * MIN_SIZE_RATIO))
    mergeable_below = int(target_bytes * MIN_SIZE_RATIO)
    oversized_above = int(target_bytes * MAX_SIZE_RATIO)
    sizes = [file.size_bytes for file in files]
    mergeable = [size for size in sizes if size < mergeable_below]
    deletes = distinct_deletes(inventory, files)
    return PartitionFacts(
        data_files=len(sizes),
        data_bytes=sum(sizes),
        rows=sum([file.rows for file in files]),
        small_files=sum(size < small_below for size in mergeable),
        mergeable_files=len(mergeable),
        mergeable_bytes=sum(mergeable),
        oversized_files=sum(size > oversized_above for size in sizes),
        delete_files=len(deletes),
        delete_bytes=sum(delete.content_size_bytes or delete.size_bytes for delete in deletes),
        position_deleted_rows=sum(delete.rows for delete in deletes if delete.kind is not DeleteKind.EQUALITY),
        equality_deleted_rows=sum(delete.rows for delete in deletes if delete.kind is DeleteKind.EQUALITY),
        history=inventory.history(files),
    )


def score(facts: PartitionFacts, now_ms: int) -> float:
    """Return 0 to 1 from file count, delete files per data file, hours since compaction, and the share of small files.

    A partition that compaction could not improve scores 0, however large or old it is.
    """
    if not facts.worth_rewriting:
        return 0.0
    return weighted_score(
        files=facts.data_files,
        fragment_ratio=facts.fragment_ratio,
        history=facts.history,
        small_share=facts.small_files / facts.data_files,
        now_ms=now_ms,
    )


def weighted_score(
    *, files: int, fragment_ratio: float, history: PartitionHistory, small_share: float, now_ms: int
) -> float:
    """Return the sum of the four parts of a score; an unknown age counts as old."""
    since_ms = history.last_compacted_ms
    if since_ms is None:
        since_ms = history.first_written_ms
    hours = OLD_HOURS if since_ms is None else max(0, now_ms - since_ms) / _HOUR_MS
    return (
        min(files / MANY_FILES, 1.0) * FILE_COUNT_WEIGHT
        + min(fragment_ratio, 1.0) * FRAGMENT_WEIGHT
        + min(hours / OLD_HOURS, 1.0) * AGE_WEIGHT
        + small_share * SMALL_WEIGHT
    )


def health(facts: PartitionFacts, target_bytes: int) -> int:
    """Return 0 to 100 by Amoro's formula; one file, or an empty partition, is healthy."""
    healthy_bytes = target_bytes * MIN_SIZE_RATIO
    penalty = 0.0
    if facts.data_files > 1:
        penalty = _norm(facts.data_files, _HEALTH_FILES) * _norm(facts.data_bytes, healthy_bytes)
    average = facts.data_bytes / facts.data_files if facts.data_files else 0.0
    equality_ratio = facts.equality_deleted_rows / facts.rows if facts.rows else 0.0
    position_ratio = facts.position_deleted_rows / facts.rows if facts.rows else 0.0
    return (
        _points(_SIZE_POINTS, penalty * (1 - _norm(average, healthy_bytes)))
        + _points(_EQUALITY_POINTS, penalty * _norm(equality_ratio, _WORST_EQUALITY_RATIO))
        + _points(_POSITION_POINTS, penalty * _norm(position_ratio, _WORST_POSITION_RATIO))
    )


def files_saved(facts: PartitionFacts, target_bytes: int) -> int:
    """Return how many fewer files there are after a merge of small files, by OpenHouse's formula."""
    return max(0, facts.mergeable_files - math.ceil(facts.mergeable_bytes / target_bytes))


def distinct_deletes(inventory: TableInventory, files: Sequence[LiveFile]) -> list[LiveDelete]:
    """Return every delete that applies to one of the files, once."""
    if not inventory.has_deletes:
        return []
    distinct: dict[tuple[str, int | None], LiveDelete] = {}
    # Files of one partition share one tuple of deletes: read each tuple once.
    read_tuples: dict[int, Sequence[LiveDelete]] = {}
    for file in files:
        deletes = inventory.deletes_for(file)
        if deletes and id(deletes) not in read_tuples:
            read_tuples[id(deletes)] = deletes
            for delete in deletes:
                distinct[(delete.path, delete.content_offset)] = delete
    return list(distinct.values())


def _norm(value: float, worst: float) -> float:
    return min(value, worst) / worst if worst else 0.0


def _points(points: int, lost_share: float) -> int:
    # Rounded first: 40 - 40 * 0.1 * 3 must not become 29 by a rounding error of binary fractions.
    return math.ceil(round(points - points * lost_share, 9))
