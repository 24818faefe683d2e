"""Which data files a delete file can apply to, from its manifest entry alone."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.pyiceberg_internals.manifest_entries import CONTENT_OFFSET, REFERENCED_DATA_FILE
from iceberg_compact_sql.storage.same_file import loose_key
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID, PathRange, may_be_in_range, path_range
from iceberg_compact_sql.table.delete_rules import applies_at, is_global
from iceberg_compact_sql.table.partition_keys import PartitionKey, loose_partition_key

DeleteId = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class DeleteScope:
    """A live delete file; `target` is the exact path of its data file when all its rows name one data file.

    `target_key`: the `loose_key` of the target. Readers apply deletes by the exact text; conflicts and obsolete deletes
    are judged by the key, so that doubt refuses a commit and keeps a delete file.
    `everywhere`: an equality delete of a spec without partitions applies to the files of every spec.
    `path_range`: bounds of the paths in a position delete file, None when they are unknown.
    """

    delete_id: DeleteId
    sequence_number: int
    partition: PartitionKey
    equality: bool
    everywhere: bool
    vector: bool
    target: str | None
    target_key: str | None
    path_range: PathRange | None

    def applies_at(self, data_sequence: int) -> bool:
        """Whether the delete can remove rows of a data file of this sequence number."""
        return applies_at(equality=self.equality, delete_sequence=self.sequence_number, data_sequence=data_sequence)

    def may_name(self, path: str) -> bool:
        """Whether a position delete can hold rows of the data file at this path, in any spelling."""
        if self.target_key is not None:
            return self.target_key == loose_key(path)
        return may_be_in_range(path, self.path_range)


def delete_scope(entry: ManifestEntry, metadata: TableMetadata) -> DeleteScope:
    """Return the scope of a delete file by the rules of the specification's section "Scan Planning"."""
    file = entry.data_file
    equality = file.content == DataFileContent.EQUALITY_DELETES
    bounds = None if equality else _path_bounds(file.lower_bounds, file.upper_bounds)
    referenced = None if equality else file[REFERENCED_DATA_FILE]
    target: str | None = referenced or None
    if target is None and bounds is not None and bounds[0] == bounds[1]:
        target = bounds[0]
    return DeleteScope(
        delete_id=delete_id(entry),
        sequence_number=entry.sequence_number or 0,
        partition=loose_partition_key(file.spec_id, file.partition),
        equality=equality,
        everywhere=equality and is_global(metadata.specs()[file.spec_id]),
        vector=file.file_format == FileFormat.PUFFIN,
        target=target,
        target_key=None if target is None else loose_key(target),
        path_range=bounds,
    )


def delete_id(entry: ManifestEntry) -> DeleteId:
    """Return the key of a delete file, or of one deletion vector in a Puffin file that holds several."""
    return entry.data_file.file_path, entry.data_file[CONTENT_OFFSET]


def _path_bounds(lower: dict[int, bytes] | None, upper: dict[int, bytes] | None) -> PathRange | None:
    return path_range((lower or {}).get(PATH_FIELD_ID), (upper or {}).get(PATH_FIELD_ID))
