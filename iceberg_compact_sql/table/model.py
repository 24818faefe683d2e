"""The state of one table snapshot as plain data: live files, and the deletes that apply to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol


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
    # The single data file that all its rows point at: from `referenced_data_file`, or from equal path bounds.
    referenced_path: str | None = None
    content_offset: int | None = None
    content_size_bytes: int | None = None
    # Bounds of the key columns (equality) or of the path column (position), in Iceberg's single-value encoding.
    lower_bounds: tuple[tuple[int, bytes], ...] = ()
    upper_bounds: tuple[tuple[int, bytes], ...] = ()

    @property
    def file_scoped(self) -> bool:
        return self.kind is DeleteKind.VECTOR or self.referenced_path is not None


# Not frozen, though nothing changes one: there may be a million, and a frozen one takes five times as long to make.
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


@dataclass(frozen=True, slots=True)
class PlannedState:
    """What a plan was made on: a commit validates everything that happened since."""

    table_uuid: str
    format_version: int
    branch: str
    snapshot_id: int | None
    sequence_number: int


class Inventory(Protocol):
    """Live files of one branch head; implemented in `table.inventory`."""

    @property
    def state(self) -> PlannedState: ...

    @property
    def files(self) -> Sequence[LiveFile]: ...

    @property
    def deletes(self) -> Sequence[LiveDelete]: ...

    def deletes_for(self, file: LiveFile) -> Sequence[LiveDelete]:
        """The deletes that apply to a file by sequence number, spec and partition (and path, where scoped)."""
        ...

    def partition_path(self, spec_id: int, partition: tuple[Any, ...]) -> str:
        """`day=2026-01-01/kind=a`, empty when unpartitioned."""
        ...

    @property
    def snapshot_times_ms(self) -> Mapping[int, int]:
        """Commit times of the snapshots still in the metadata."""
        ...
