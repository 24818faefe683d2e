"""The request and the result of a REPLACE commit as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from iceberg_compact_sql.rewrite.task import OutputFile
from iceberg_compact_sql.table.model import LiveDelete, LiveFile


@dataclass(frozen=True, slots=True)
class NewDelete:
    """A position delete file or deletion vector that a commit adds, with the data sequence number that it carries."""

    path: str
    size_bytes: int
    rows: int
    spec_id: int
    partition: tuple[Any, ...]
    sequence_number: int
    referenced_path: str | None = None
    file_format: str = "PARQUET"
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()
    # The place of a deletion vector in its Puffin file.
    content_offset: int | None = None
    content_size_bytes: int | None = None

    @property
    def is_vector(self) -> bool:
        return self.content_offset is not None

    @property
    def own_bytes(self) -> int:
        """The bytes of the delete itself: of a deletion vector, only its part of the Puffin file."""
        return self.size_bytes if self.content_size_bytes is None else self.content_size_bytes


@dataclass(frozen=True, slots=True)
class Replacement:
    """Files to remove and to add that are committed together or not at all: one file group of a compaction."""

    key: int
    removed: tuple[LiveFile, ...]
    added: tuple[OutputFile, ...]
    # The data sequence number that the added files carry; None: that of the new snapshot.
    data_sequence_number: int | None
    # Delete files that a rewrite of position deletes removes and adds.
    removed_deletes: tuple[LiveDelete, ...] = ()
    added_deletes: tuple[NewDelete, ...] = ()


class Outcome(str, Enum):
    """How a commit ended, as far as can be proved."""

    COMMITTED = "committed"
    NOTHING_TO_COMMIT = "nothing to commit"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The result of a commit.

    Each replacement's key is in exactly one of `committed` and `conflicts`, unless the outcome is unknown.
    """

    outcome: Outcome
    snapshot_id: int | None = None
    committed: tuple[int, ...] = ()
    conflicts: Mapping[int, str] = field(default_factory=dict)
    removed_delete_files: int = 0
    detail: str = ""


class CommitInterrupted(KeyboardInterrupt):
    """Ctrl-C during a commit. `report` says what was committed, so that the caller deletes only other files."""

    def __init__(self, report: CommitReport) -> None:
        super().__init__(f"interrupted; the commit is {report.outcome.value}. {report.detail}".strip())
        self.report = report
