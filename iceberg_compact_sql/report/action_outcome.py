"""How an action that changes a table ended: the content of the event `action.done`, for history, metrics and traces."""

from __future__ import annotations

from dataclasses import dataclass

# How fast files are rewritten depends on the way: copied and spliced bytes are not decoded, sorted ones are moved.
WAYS = ("copied", "spliced", "encoded", "sorted")


@dataclass(frozen=True, kw_only=True)
class ActionOutcome:
    """One ended action on one table. Counts are of what is committed or deleted for certain, also after a failure.

    `status` is `success`, `failed`, `cancelled` or `unknown` (the catalog did not say whether a commit landed).
    `estimated_seconds` and `estimated_cost` are the estimate before the run; `base_seconds` is that of the constants.
    `way` is how most of a compaction was done, one of WAYS; None for other actions.
    """

    procedure: str
    table: str
    status: str
    started_ms: int
    elapsed_ms: int
    error: str | None = None
    strategy: str | None = None
    snapshot_ids: tuple[int, ...] = ()
    removed_data_files: int = 0
    added_data_files: int = 0
    removed_delete_files: int = 0
    added_delete_files: int = 0
    removed_bytes: int = 0
    added_bytes: int = 0
    rows: int = 0
    expired_snapshots: int = 0
    deleted_files: int = 0
    freed_bytes: int = 0
    cost: float | None = None
    estimated_seconds: float | None = None
    estimated_cost: float | None = None
    base_seconds: float | None = None
    way: str | None = None

    @property
    def changed(self) -> bool:
        """Whether the table or its files are different now."""
        return bool(self.snapshot_ids or self.expired_snapshots or self.deleted_files)
