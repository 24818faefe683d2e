"""The live data files and delete files of one snapshot as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class DeleteKind(str, Enum):
    """How a delete file names the rows that it removes."""

    POSITION = "position"
    EQUALITY = "equality"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class LiveDelete:
    """A live delete file (or one deletion vector inside a puffin file)."""

    path: str
    kind: DeleteKind
    file_format: str
    spec_id: int
    partition: tuple[Any, ...]
    sequence_number: int
    size_bytes: int
    rows: int
    equality_ids: tuple[int, ...] = ()
    # The data file that all its rows name: from `referenced_data_file`, or from equal bounds of `file_path`.
    referenced_path: str | None = None
    content_offset: int | None = None
    content_size_bytes: int | None = None
    # Bounds of the key columns (equality) or of the path column (position), in Iceberg's single-value encoding.
    lower_bounds: tuple[tuple[int, bytes], ...] = ()
    upper_bounds: tuple[tuple[int, bytes], ...] = ()

    @property
    def own_bytes(self) -> int:
        """The bytes of the delete itself: of a deletion vector, only its part of the Puffin file."""
        return self.size_bytes if self.content_size_bytes is None else self.content_size_bytes

    @property
    def file_scoped(self) -> bool:
        return self.kind is DeleteKind.VECTOR or self.referenced_path is not None


# Not frozen, although nothing changes it: a table may have a million files, and a frozen instance takes five times
# as long to create.
@dataclass(slots=True, unsafe_hash=True)
class LiveFile:
    """A live data file of a snapshot; `path` is exactly the text in the manifest."""

    path: str
    file_format: str
    spec_id: int
    partition: tuple[Any, ...]
    size_bytes: int
    rows: int
    sequence_number: int
    snapshot_id: int | None
    sort_order_id: int | None = None
    encrypted: bool = False
    split_offsets: tuple[int, ...] = ()
    # The sequence number of the commit that added the file; a compacted file keeps an older `sequence_number`.
    file_sequence_number: int | None = None
    # The row id of the file's first row; None before format version 3, and until the first commit after an upgrade.
    first_row_id: int | None = None
    # Field ids of float columns with the number of their NaN values; a column that is missing has no known number.
    nan_counts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedState:
    """The snapshot that a plan was made on. A commit validates all commits since then."""

    table_uuid: str
    format_version: int
    branch: str
    snapshot_id: int | None
    sequence_number: int
