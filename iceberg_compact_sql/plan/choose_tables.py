"""Chooses the tables of maintain_tables within its budgets. Pure; a dry run and a run use the same choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from iceberg_compact_sql.plan.budget import Budget, Price
from iceberg_compact_sql.plan.table_scores import TableScore
from iceberg_compact_sql.units import format_duration


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceLimits:
    """What maintain_tables may take on; None means no limit."""

    min_score: float | None = None
    max_tables: int | None = None
    max_cost: float | None = None
    max_bytes: int | None = None
    time_budget_ms: int | None = None
    created_before_ms: int | None = None
    order: str = "score"


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCandidate:
    """A table that could be maintained: its score, the estimate of its steps, and when it was created.

    `created_ms` is None when the table is older than its metadata can tell.
    """

    name: str
    score: TableScore
    price: Price
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TableChoice:
    """A candidate, whether it is maintained, and why."""

    candidate: TableCandidate
    maintain: bool
    reason: str


_ORDERS: dict[str, Callable[[TableCandidate], float]] = {
    "score": lambda table: -table.score.score,
    # Files saved for each dollar.
    "gain": lambda table: -table.score.files_saved / max(table.price.dollars, 1e-12),
}


def choose_tables(candidates: Iterable[TableCandidate], limits: ChoiceLimits, *, now_ms: int) -> list[TableChoice]:
    """Return the tables to maintain in the order in which they run, then the others in the same order.

    A cheaper table is taken after one that a budget excludes.
    """
    budget = Budget(limits.max_bytes, limits.max_cost, limits.time_budget_ms)
    order = _ORDERS[limits.order]
    chosen: list[TableChoice] = []
    left_out: list[TableChoice] = []
    for table in sorted(candidates, key=lambda table: (order(table), -table.score.files_saved, table.name)):
        reason = _excluded(table, limits, now_ms) or _full(chosen, limits) or budget.spend(table.price)
        if reason is None:
            chosen.append(TableChoice(table, True, table.score.recommendation))
        else:
            left_out.append(TableChoice(table, False, reason))
    return [*chosen, *left_out]


def _excluded(table: TableCandidate, limits: ChoiceLimits, now_ms: int) -> str | None:
    created_ms, limit_ms = table.created_ms, limits.created_before_ms
    if limit_ms is not None and created_ms is not None and created_ms >= limit_ms:
        age, limit = format_duration(max(0, now_ms - created_ms)), format_duration(max(0, now_ms - limit_ms))
        return f"created {age} ago, created_before {limit} ago"
    if limits.min_score is not None and table.score.score < limits.min_score:
        return f"score {table.score.score:.2f}, below min_score {limits.min_score:g}"
    return None


def _full(chosen: Sequence[TableChoice], limits: ChoiceLimits) -> str | None:
    if limits.max_tables is not None and len(chosen) >= limits.max_tables:
        return f"max_tables {limits.max_tables} is reached"
    return None
