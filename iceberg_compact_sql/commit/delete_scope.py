"""Which data files a delete file can touch, from its manifest entry alone."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.commit.partition_keys import PartitionKey, loose_partition_key
from iceberg_compact_sql.pyiceberg_internals.manifest_entries import CONTENT_OFFSET, REFERENCED_DATA_FILE
from iceberg_compact_sql.storage.paths import same_file_key
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID, PathRange, in_range, path_range
from iceberg_compact_sql.table.partitions import is_unpartitioned

DeleteId = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class DeleteScope:
    """A live delete file; `target` is set when all its rows point at one data file.

    `everywhere`: an equality delete of a spec without partitions applies to the files of every spec.
    `path_range`: normalised bounds of the paths in a position delete file, None when nothing can be said.
    """

    delete_id: DeleteId
    sequence_number: int
    partition: PartitionKey
    equality: bool
    everywhere: bool
    vector: bool
    target: str | None
    path_range: PathRange | None

    def may_name(self, path_key: str) -> bool:
        """Whether a position delete can hold rows of the data file with this normalised path."""
        if self.target is not None:
            return self.target == path_key
        return in_range(path_key, self.path_range)


def delete_scope(entry: ManifestEntry, metadata: TableMetadata) -> DeleteScope:
    """The scope of a delete file as the spec's "scan planning" gives it."""
    file = entry.data_file
    equality = file.content == DataFileContent.EQUALITY_DELETES
    bounds = None if equality else _path_bounds(file.lower_bounds, file.upper_bounds)
    referenced = None if equality else file[REFERENCED_DATA_FILE]
    target = same_file_key(referenced) if referenced else None
    if target is None and bounds is not None and bounds[0] == bounds[1]:
        target = bounds[0]
    return DeleteScope(
        delete_id=delete_id(entry),
        sequence_number=entry.sequence_number or 0,
        partition=loose_partition_key(file.spec_id, file.partition),
        equality=equality,
        everywhere=equality and is_unpartitioned(metadata.specs()[file.spec_id]),
        vector=file.file_format == FileFormat.PUFFIN,
        target=target,
        path_range=bounds,
    )


def delete_id(entry: ManifestEntry) -> DeleteId:
    """A delete file, or one vector inside a puffin file that holds several."""
    return entry.data_file.file_path, entry.data_file[CONTENT_OFFSET]


def _path_bounds(lower: dict[int, bytes] | None, upper: dict[int, bytes] | None) -> PathRange | None:
    return path_range((lower or {}).get(PATH_FIELD_ID), (upper or {}).get(PATH_FIELD_ID))
