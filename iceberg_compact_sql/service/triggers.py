"""Runs by state: whether the figures of a table start one now. Pure: figures, state and the clock are arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.service.configuration.config import When

if TYPE_CHECKING:
    from iceberg_compact_sql.plan.table_scores import TableScore

_DAY_MS = 86_400_000
# A table that never rests runs anyway after this many intervals.
_RESTLESS = 6


@dataclass(frozen=True)
class TriggerState:
    """What is remembered of one table of a trigger; times in epoch milliseconds."""

    location: str | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    written_ms: int | None = None
    looked_ms: int = 0
    ended_ms: int | None = None
    reached_ms: int | None = None
    # Doubled after each run that saved nothing.
    factor: int = 1


@dataclass(frozen=True)
class Decision:
    """Whether a run starts, and why or why not, in a sentence."""

    run: bool
    reason: str


def figures_of(score: TableScore) -> dict[str, float]:
    """The figures of a table that thresholds compare."""
    return {
        "score": score.score,
        "small_files": score.small_files,
        "files_saved": score.files_saved,
        "delete_files": score.delete_files,
        "delete_ratio": score.fragment_ratio,
        "snapshots": score.snapshots,
        "metadata_bytes": score.metadata_bytes or 0,
    }


def decide(when: When, state: TriggerState, now_ms: int) -> Decision:
    """Whether the figures of the state start a run now."""
    reached = [
        f"{name} {state.figures[name]:g} >= {threshold:g}"
        for name, threshold in when.thresholds().items()
        if name in state.figures and state.figures[name] >= threshold
    ]
    if not reached:
        return Decision(False, "no threshold is reached")
    reason = ", ".join(reached)
    interval_ms = min(when.min_interval * state.factor, max(_DAY_MS, when.min_interval))
    if state.ended_ms is not None and now_ms - state.ended_ms < interval_ms:
        return Decision(False, f"{reason}; the last run ended less than min_interval ago")
    rests = state.written_ms is None or now_ms - state.written_ms >= when.quiet
    restless_since = state.reached_ms if state.reached_ms is not None else now_ms
    if not rests and now_ms - restless_since < _RESTLESS * when.min_interval:
        return Decision(False, f"{reason}; written to within quiet")
    return Decision(True, reason)


def after_look(state: TriggerState, when: When, now_ms: int) -> TriggerState:
    """The state after a look: since when a threshold is reached."""
    is_reached = any(
        name in state.figures and state.figures[name] >= threshold for name, threshold in when.thresholds().items()
    )
    reached_ms = (state.reached_ms or now_ms) if is_reached else None
    return replace(state, looked_ms=now_ms, reached_ms=reached_ms)


def after_run(state: TriggerState, *, saved: bool, now_ms: int) -> TriggerState:
    """The state after a run: one that saved nothing doubles the interval, others set it back."""
    factor = 1 if saved else min(state.factor * 2, 1 << 20)
    return replace(state, ended_ms=now_ms, reached_ms=None, factor=factor, location=None)
