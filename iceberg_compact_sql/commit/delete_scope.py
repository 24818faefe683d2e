"""Which data files a delete file can touch, from its manifest entry alone."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.commit.partitions import PartitionKey, partition_key
from iceberg_compact_sql.table.partitions import is_unpartitioned
from iceberg_compact_sql.table.paths import same_file_key
from iceberg_compact_sql.table.pyiceberg_internals.manifests import CONTENT_OFFSET, REFERENCED_DATA_FILE

_PATH_FIELD_ID = 2147483546
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
    path_range: tuple[str, str] | None

    def may_name(self, path_key: str) -> bool:
        """Whether a position delete can hold rows of the data file with this normalised path."""
        if self.target is not None:
            return self.target == path_key
        return self.path_range is None or self.path_range[0] <= path_key <= self.path_range[1]


def delete_scope(entry: ManifestEntry, metadata: TableMetadata) -> DeleteScope:
    """The scope of a delete file as the spec's "scan planning" gives it."""
    file = entry.data_file
    equality = file.content == DataFileContent.EQUALITY_DELETES
    path_range = None if equality else _path_range(file.lower_bounds, file.upper_bounds)
    referenced = None if equality else file[REFERENCED_DATA_FILE]
    target = same_file_key(referenced) if referenced else None
    if target is None and path_range is not None and path_range[0] == path_range[1]:
        target = path_range[0]
    return DeleteScope(
        delete_id=delete_id(entry),
        sequence_number=entry.sequence_number or 0,
        partition=partition_key(file.spec_id, file.partition),
        equality=equality,
        everywhere=equality and is_unpartitioned(metadata.specs()[file.spec_id]),
        vector=file.file_format == FileFormat.PUFFIN,
        target=target,
        path_range=path_range,
    )


def delete_id(entry: ManifestEntry) -> DeleteId:
    """A delete file, or one vector inside a puffin file that holds several."""
    return entry.data_file.file_path, entry.data_file[CONTENT_OFFSET]


def _path_range(lower: dict[int, bytes] | None, upper: dict[int, bytes] | None) -> tuple[str, str] | None:
    if not lower or not upper or _PATH_FIELD_ID not in lower or _PATH_FIELD_ID not in upper:
        return None
    try:
        low, high = lower[_PATH_FIELD_ID].decode(), upper[_PATH_FIELD_ID].decode()
    except UnicodeDecodeError:
        return None
    if low == high:
        return same_file_key(low), same_file_key(low)
    # Two spellings of the scheme in one file: the order of raw texts says nothing about the normalised ones.
    if _spelling(low) != _spelling(high):
        return None
    return same_file_key(low), same_file_key(high)


def _spelling(path: str) -> str:
    key = same_file_key(path)
    tail = key[key.find(":") + 1 :].lstrip("/")
    return path[: len(path) - len(tail)] if tail and path.endswith(tail) else path
