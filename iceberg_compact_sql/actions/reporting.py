"""Raises `action.start` and `action.done` around an action that changes a table, however it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.errors import CommitUnknownError, IcebergCompactError, RunCancelledError
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.report.action_outcome import ActionOutcome


@contextlib.contextmanager
def reported(context: Context, procedure: str, table: str, facts: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Report the block as one action. `facts` returns what is done for certain, as fields of ActionOutcome."""
    started, started_ms = time.monotonic(), int(time.time() * 1000)
    name = context.full_name(table)
    with events.observed(context.observer):
        events.reach("action.start", procedure=procedure, table=name)
        status, error_text = "success", None
        try:
            yield
        except BaseException as error:
            status, error_text = _status(error), _text(error)
            raise
        finally:
            with events.uninterrupted():
                outcome = ActionOutcome(
                    procedure=procedure,
                    table=name,
                    status=status,
                    started_ms=started_ms,
                    elapsed_ms=int((time.monotonic() - started) * 1000),
                    error=error_text,
                    **facts(),
                )
                events.reach("action.done", procedure=procedure, table=name, outcome=asdict(outcome))


def _status(error: BaseException) -> str:
    if isinstance(error, CommitUnknownError):
        return "unknown"
    ended_from_outside = (RunCancelledError, events.RunCancelled, KeyboardInterrupt)
    return "cancelled" if isinstance(error, ended_from_outside) else "failed"


def _text(error: BaseException) -> str:
    if isinstance(error, IcebergCompactError):
        return str(error)
    return f"{type(error).__name__}: {redact(error)}".rstrip(": ")


def snapshot_ids(snapshot_id: int | None) -> tuple[int, ...]:
    """Return the ids of an action with at most one commit."""
    return () if snapshot_id is None else (snapshot_id,)
