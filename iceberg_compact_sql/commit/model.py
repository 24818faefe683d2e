"""What a commit is asked to do, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from iceberg_compact_sql.rewrite.task import OutputFile
from iceberg_compact_sql.table.model import LiveDelete, LiveFile


@dataclass(frozen=True, slots=True)
class NewDelete:
    """A position delete file that a commit adds, with the data sequence number that it carries."""

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


@dataclass(frozen=True, slots=True)
class Replacement:
    """One unit that goes in whole or not at all: a file group of a compaction."""

    key: int
    removed: tuple[LiveFile, ...]
    added: tuple[OutputFile, ...]
    # The data sequence number that the added files carry; None: the new snapshot's own.
    data_sequence_number: int | None
    # Deletes that were applied to `removed`; the commit drops those that apply to nothing any more.
    applied_deletes: tuple[LiveDelete, ...] = ()
    # Delete files that go, and delete files that come (a rewrite of position deletes).
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
    """Exactly one of committed or conflicts holds each replacement's key, unless the outcome is unknown."""

    outcome: Outcome
    snapshot_id: int | None = None
    committed: tuple[int, ...] = ()
    conflicts: Mapping[int, str] = field(default_factory=dict)
    removed_delete_files: int = 0
    detail: str = ""


class CommitInterrupted(KeyboardInterrupt):
    """Ctrl-C during a commit; `report` says what is in the table, so that the caller cleans only what is not."""

    def __init__(self, report: CommitReport) -> None:
        super().__init__(f"interrupted; the commit is {report.outcome.value}. {report.detail}".strip())
        self.report = report
