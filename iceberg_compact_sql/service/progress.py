"""Turns the events of a run into the progress that a job shows, and into what it has committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

_STEPS = {
    "table.load": "opening",
    "inventory.head": "planning",
    "plan.done": "planned",
    "compact.start": "rewriting",
    "compact.committing": "committing",
    "compact.committed": "rewriting",
    "expire.planned": "expiring",
    "expire.delete": "deleting",
    "orphans.listed": "searching orphans",
    "orphans.delete": "deleting",
}
# Events after which the table or its files differ from before.
_CHANGES = frozenset({"compact.committed", "expire.committed", "reclaim.delete", "reclaim.moved", "orphans.delete"})


class JobProgress:
    """A listener of one run. Its figures only grow, and may be read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step = "starting"
        self._percent = 0.0
        self._read_bytes = self._written_bytes = self._total_bytes = self._done_bytes = 0.0
        self._files = self._files_total = self._groups = self._groups_total = self._partitions_total = 0
        self._partitions: set[str] = set()
        self._snapshots: list[int] = []
        self._removed = self._added = 0
        self._sent: int | None = None
        self._steps: list[dict[str, Any]] = []
        self.changed = False
        self.output_bytes: list[int] = []

    def __call__(self, event: str, facts: Mapping[str, Any]) -> None:
        with self._lock:
            self._receive(event, facts)

    def _receive(self, event: str, facts: Mapping[str, Any]) -> None:
        self.changed = self.changed or event in _CHANGES
        if event == "maintain.step":
            self._enter(str(facts["step"]))
        elif event == "maintain.table":
            self._enter(f"maintaining {facts['table']}")
        elif event in _STEPS:
            self._enter(_STEPS[event])
        if event == "plan.done":
            self._partitions_total = max(self._partitions_total, facts["partitions"])
        elif event == "compact.start" and facts["attempt"] == 1:
            self._total_bytes += facts["input_bytes"]
            self._files_total += facts["files"]
            self._groups_total += facts["groups"]
        elif event == "compact.progress":
            self._done_bytes += facts["input_bytes"]
            self._read_bytes = max(self._read_bytes, min(self._done_bytes, self._total_bytes))
        elif event == "compact.group":
            self._groups += 1
            self._files += facts["files"]
            self._written_bytes += facts["written_bytes"]
            self._partitions.add(facts["partition"])
            self.output_bytes += [facts["written_bytes"] // max(1, facts["outputs"])] * facts["outputs"]
        elif event == "compact.committed":
            self._snapshots.append(facts["snapshot_id"])
            self._removed += facts["files"]
            self._added += facts["outputs"]
        elif event == "commit.sent":
            self._sent = facts["snapshot_id"]
        if self._total_bytes:
            # The last percent is for the commit.
            self._percent = max(self._percent, min(99.0, 99.0 * self._read_bytes / self._total_bytes))

    def _enter(self, step: str) -> None:
        if step != self._step or not self._steps:
            self._step = step
            if len(self._steps) < 1000:
                self._steps.append({"step": step, "at_ms": int(time.time() * 1000)})

    @property
    def sent_snapshot(self) -> int | None:
        """The snapshot of the last commit that was sent, whatever the answer was."""
        return self._sent

    @property
    def steps(self) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._steps)

    def as_json(self, *, done: bool = False) -> dict[str, Any]:
        """The progress as a job shows it."""
        with self._lock:
            return {
                "step": "done" if done else self._step,
                "percent": 100.0 if done else round(self._percent, 1),
                "partitions_completed": min(len(self._partitions), self._partitions_total),
                "partitions_total": self._partitions_total,
                "groups_completed": min(self._groups, self._groups_total),
                "groups_total": self._groups_total,
                "files_processed": min(self._files, self._files_total),
                "files_total": self._files_total,
                "bytes_read": int(self._read_bytes),
                "bytes_written": int(self._written_bytes),
                "commits": len(self._snapshots),
                "updated_ms": int(time.time() * 1000),
            }

    def committed(self) -> dict[str, Any]:
        """What the run has committed so far."""
        with self._lock:
            return {
                "commits": len(self._snapshots),
                "snapshots": list(self._snapshots),
                "removed_data_files": self._removed,
                "added_data_files": self._added,
            }
