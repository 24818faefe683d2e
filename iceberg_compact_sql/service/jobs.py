"""A job of the service as plain data: what was asked for, its state, and the JSON form that clients see."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# Rows of a result that are kept; the job says when there were more.
MAX_RESULT_ROWS = 1000


class Status(str, Enum):
    """The state of a job. A job that was accepted ends in exactly one of the final states."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


ACTIVE = (Status.RUNNING, Status.CANCELLING)
FINAL = (Status.SUCCESS, Status.FAILED, Status.CANCELLED, Status.INTERRUPTED)


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A checked call of a procedure: the full table name and the arguments as given, without `table`.

    `table` is a pattern for a procedure over many tables, and None for one without any.
    """

    procedure: str
    table: str | None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    source: str = "api"
    estimated_seconds: float | None = None
    estimated_bytes: int | None = None
    estimated_cost: float | None = None
    not_before_ms: int | None = None
    note: str | None = None
    figures: Mapping[str, Any] | None = None
    traceparent: str | None = None

    @property
    def fingerprint(self) -> str:
        """Equal for requests of the same procedure, table and arguments, in any order."""
        text = json.dumps([self.procedure, self.table, self.arguments], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job as the store holds it; times in epoch milliseconds."""

    job_id: str
    status: Status
    procedure: str
    table: str | None
    arguments: Mapping[str, Any]
    source: str
    created_ms: int
    run_id: str | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    progress: Mapping[str, Any] | None = None
    result: list[dict[str, Any]] | None = None
    result_truncated: bool = False
    outcome: str | None = None
    error: Mapping[str, Any] | None = None
    committed: Mapping[str, Any] | None = None
    steps: list[dict[str, Any]] | None = None
    estimated_seconds: float | None = None
    not_before_ms: int | None = None
    note: str | None = None
    figures: Mapping[str, Any] | None = None
    traceparent: str | None = None

    @property
    def seconds(self) -> float | None:
        """How long an ended job ran; None for one that never started or is not over."""
        if self.started_ms is None or self.finished_ms is None:
            return None
        return max(0, self.finished_ms - self.started_ms) / 1000

    def as_json(self) -> dict[str, Any]:
        """The job as the HTTP answers show it."""
        return {
            "job_id": self.job_id,
            "status": self.status.value,
            "procedure": self.procedure,
            "table": self.table,
            "arguments": dict(self.arguments),
            "source": self.source,
            "run_id": self.run_id,
            "created_at": iso_time(self.created_ms),
            "started_at": iso_time(self.started_ms),
            "finished_at": iso_time(self.finished_ms),
            "estimated_completion": iso_time(self._completion_ms()),
            "progress": None if self.progress is None else dict(self.progress),
            "result": self.result,
            "result_truncated": self.result_truncated,
            "outcome": self.outcome,
            "error": None if self.error is None else dict(self.error),
            "committed": None if self.committed is None else dict(self.committed),
            "steps": self.steps,
            "estimated_duration_seconds": self.estimated_seconds,
            "not_before": iso_time(self.not_before_ms),
            "note": self.note,
            "figures": None if self.figures is None else dict(self.figures),
        }

    def _completion_ms(self) -> int | None:
        """When a running job is expected to end: from its progress, else from the estimate."""
        if self.started_ms is None or self.finished_ms is not None:
            return None
        percent = (self.progress or {}).get("percent") or 0
        updated_ms = (self.progress or {}).get("updated_ms")
        if percent >= 1 and updated_ms:
            return int(self.started_ms + (updated_ms - self.started_ms) * 100 / percent)
        if self.estimated_seconds is None:
            return None
        return int(self.started_ms + self.estimated_seconds * 1000)


def iso_time(time_ms: int | None) -> str | None:
    """A moment in UTC as `2026-01-01T00:00:00.000Z`.

    >>> iso_time(0)
    '1970-01-01T00:00:00.000Z'
    """
    if time_ms is None:
        return None
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain_json(value: Any) -> Any:
    """The value in types that JSON has: times as text in UTC, decimals as numbers, other objects as text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_json(item) for item in value]
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
        return iso_time(int(aware.timestamp() * 1000))
    if isinstance(value, dt.timedelta):
        return f"{value.total_seconds():g} seconds"
    return str(value)
