"""The summary of a REPLACE snapshot, with the keys and totals that Iceberg's Java library writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from iceberg_compact_sql.commit.snapshot_draft import FileFacts
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import spec_schema
from iceberg_compact_sql.table.partition_keys import PartitionKey, loose_partition_key
from iceberg_compact_sql.table.properties import SUMMARY_PARTITION_LIMIT

_TOTALS = (
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)


def replace_summary(
    metadata: TableMetadata,
    parent: Snapshot,
    added: Sequence[FileFacts],
    removed: Sequence[FileFacts],
    properties: Mapping[str, str],
) -> Summary:
    """Return the counts of what this snapshot adds and removes, and the totals after it.

    A total that the parent does not have is left out, as in Java: an invented one would stay wrong for ever.
    """
    counts = change_counts(added, removed)
    partitions: dict[PartitionKey, tuple[list[FileFacts], list[FileFacts]]] = {}
    for side, files in enumerate((added, removed)):
        for file in files:
            partitions.setdefault(loose_partition_key(file.spec_id, file.partition), ([], []))[side].append(file)
    facts = {key: str(count) for key, count in counts.items() if count}
    facts["changed-partition-count"] = str(len(partitions))
    facts.update(_partition_summaries(metadata, partitions))
    before: Mapping[str, str] = parent.summary.additional_properties if parent.summary else {}
    for total, plus, minus in _TOTALS:
        if (earlier := before.get(total)) is not None and earlier.isdigit():
            after = int(earlier) + counts[plus] - counts[minus]
            if after >= 0:
                facts[total] = str(after)
    return Summary(Operation.REPLACE, **{**properties, **facts})


def change_counts(added: Sequence[FileFacts], removed: Sequence[FileFacts]) -> dict[str, int]:
    """Return every counter of a summary, zeros included."""
    plus, minus = _count(added), _count(removed)
    return {
        "added-data-files": plus.data_files,
        "deleted-data-files": minus.data_files,
        "added-delete-files": plus.delete_files,
        "removed-delete-files": minus.delete_files,
        "added-dvs": plus.vectors,
        "removed-dvs": minus.vectors,
        "added-position-delete-files": plus.position_files,
        "removed-position-delete-files": minus.position_files,
        "added-equality-delete-files": plus.equality_files,
        "removed-equality-delete-files": minus.equality_files,
        "added-records": plus.records,
        "deleted-records": minus.records,
        "added-files-size": plus.size_bytes,
        "removed-files-size": minus.size_bytes,
        "added-position-deletes": plus.position_deletes,
        "removed-position-deletes": minus.position_deletes,
        "added-equality-deletes": plus.equality_deletes,
        "removed-equality-deletes": minus.equality_deletes,
    }


@dataclass(slots=True)
class _Count:
    data_files: int = 0
    records: int = 0
    vectors: int = 0
    position_files: int = 0
    position_deletes: int = 0
    equality_files: int = 0
    equality_deletes: int = 0
    size_bytes: int = 0

    @property
    def delete_files(self) -> int:
        return self.vectors + self.position_files + self.equality_files


def _count(files: Sequence[FileFacts]) -> _Count:
    count = _Count()
    for file in files:
        count.size_bytes += file.size_bytes
        if file.content == DataFileContent.DATA:
            count.data_files += 1
            count.records += file.record_count
        elif file.content == DataFileContent.POSITION_DELETES:
            if file.is_vector:
                count.vectors += 1
            else:
                count.position_files += 1
            count.position_deletes += file.record_count
        else:
            count.equality_files += 1
            count.equality_deletes += file.record_count
    return count


def _partition_summaries(
    metadata: TableMetadata, partitions: Mapping[PartitionKey, tuple[list[FileFacts], list[FileFacts]]]
) -> dict[str, str]:
    if not 0 < len(partitions) <= SUMMARY_PARTITION_LIMIT.of(metadata.properties):
        return {}
    facts = {"partition-summaries-included": "true"}
    specs = metadata.specs()
    for (spec_id, *_), (added, removed) in partitions.items():
        spec = specs[spec_id]
        path = spec.partition_to_path((added or removed)[0].partition, spec_schema(metadata, spec))
        counts = change_counts(added, removed)
        facts[f"partitions.{path}"] = ",".join(f"{key}={count}" for key, count in counts.items() if count)
    return facts
