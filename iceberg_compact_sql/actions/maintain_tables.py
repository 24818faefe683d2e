"""The work of `maintain_tables`: maintains the tables that need it most, one after another, within budgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.compact_request import CompactRequest
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.maintain import MaintainRequest, MaintainResult, Step, maintain
from iceberg_compact_sql.actions.past_runs import PastRuns
from iceberg_compact_sql.actions.score_tables import ScoredTable, ScoreTablesRequest, score_match, score_matches
from iceberg_compact_sql.catalogs.matching_tables import MatchingTable, matches_pattern, matching_tables
from iceberg_compact_sql.errors import IcebergCompactError, NotFoundError, RunCancelledError
from iceberg_compact_sql.plan.budget import Price
from iceberg_compact_sql.plan.choose_tables import ChoiceLimits, TableCandidate, choose_tables
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.units import format_duration

_EXCLUDED = "excluded by a pattern of exclude"
_Number = TypeVar("_Number", int, float)
# The steps of a table from its quoted name and its properties; raises when a property is wrong.
StepsOf = Callable[[str, Mapping[str, str]], tuple[Step, ...]]


@dataclass(frozen=True, kw_only=True)
class MaintainTablesRequest:
    """Maintenance of all tables that match, while the limits hold. With `plan_only` nothing is changed."""

    steps_of: StepsOf = field(repr=False)
    pattern: str = "*"
    # Patterns of tables that are left out.
    exclude: tuple[str, ...] = ()
    target_bytes: int | None = None
    limits: ChoiceLimits = field(default_factory=ChoiceLimits)
    max_failures: int = 5
    plan_only: bool = False


@dataclass(frozen=True, kw_only=True)
class TableMaintenance:
    """A table that was maintained, would be, or is left out, with the reason.

    `result` has its steps; `error` is what stopped it before or between them. Both are empty in a dry run.
    """

    match: MatchingTable
    maintain: bool
    reason: str
    score: float | None = None
    price: Price | None = None
    estimate_source: str = ""
    result: MaintainResult | None = None
    error: str = ""
    score_after: float | None = None
    elapsed_ms: int | None = None

    @property
    def failed(self) -> bool:
        steps = () if self.result is None else self.result.steps
        return bool(self.error) or any(step.outcome in ("failed", "unknown") for step in steps)


@dataclass(frozen=True)
class MaintainTablesResult:
    """One entry for each table and view that matches: those to maintain in their order, then the others."""

    tables: tuple[TableMaintenance, ...]


def maintain_tables(request: MaintainTablesRequest, context: Context) -> MaintainTablesResult:
    """Maintain the tables that `choose_tables` selects. The failure of one table is its entry and does not end the run.

    Raises before any change when no table matches, when a catalog cannot be listed, or for wrong settings. A cancelled
    run raises RunCancelledError: its `result` has every table, with what the cancelled one had done.
    """
    fleet = _Fleet(request, context)
    with context.run(fleet.progress):
        fleet.choose()
        if not request.plan_only:
            fleet.run()
    return fleet.result()


@dataclass
class _Fleet:
    """One run over many tables."""

    request: MaintainTablesRequest
    context: Context
    started: float = field(default_factory=time.monotonic)
    chosen: list[TableMaintenance] = field(default_factory=list)
    left_out: list[TableMaintenance] = field(default_factory=list)
    ended: list[TableMaintenance] = field(default_factory=list)
    steps: dict[str, tuple[Step, ...]] = field(default_factory=dict)

    @property
    def scoring(self) -> ScoreTablesRequest:
        return ScoreTablesRequest(pattern=self.request.pattern, target_bytes=self.request.target_bytes)

    @property
    def now(self) -> Context:
        """The context at this moment: a run over many tables takes hours."""
        return self.context.at(self.context.now_ms + self._elapsed_ms(self.started))

    def _is_excluded(self, match: MatchingTable) -> bool:
        view, catalog = self.context.view, self.context.catalog
        return any(matches_pattern(view, match, pattern, catalog=catalog) for pattern in self.request.exclude)

    def choose(self) -> None:
        """Score every table and decide which ones are maintained; changes nothing."""
        matches = matching_tables(self.context.view, self.request.pattern, catalog=self.context.catalog)
        excluded = [match for match in matches if self._is_excluded(match)]
        self.left_out += [TableMaintenance(match=match, maintain=False, reason=_EXCLUDED) for match in excluded]
        matches = [match for match in matches if match not in excluded]
        tables = [match for match in matches if not match.is_view]
        by_name: dict[str, ScoredTable] = {}
        candidates = []
        for scored in score_matches(tables, self.scoring, self.context):
            candidate = self._candidate(scored)
            if isinstance(candidate, str):
                self.left_out.append(TableMaintenance(match=scored.match, maintain=False, reason=candidate))
            else:
                by_name[candidate.name] = scored
                candidates.append(candidate)
        for choice in choose_tables(candidates, self.request.limits, now_ms=self.context.now_ms):
            table = TableMaintenance(
                match=by_name[choice.candidate.name].match,
                maintain=choice.maintain,
                reason=choice.reason,
                score=choice.candidate.score.score,
                price=choice.candidate.price,
                estimate_source=choice.candidate.score.estimate_source if choice.candidate.price.seconds else "",
            )
            (self.chosen if choice.maintain else self.left_out).append(table)
        views = [match for match in matches if match.is_view]
        self.left_out += [TableMaintenance(match=view, maintain=False, reason="a view, not a table") for view in views]

    def run(self) -> None:
        """Maintain the chosen tables one after another."""
        for table in self.chosen:
            events.reach("maintain.table", table=table.match.shown)
            reason = self._stopped(table)
            self.ended.append(replace(table, maintain=False, reason=reason) if reason else self._maintained(table))
            if self.context.observer.cancelled():
                raise events.RunCancelled

    def result(self) -> MaintainTablesResult:
        return MaintainTablesResult((*self.ended, *self.chosen[len(self.ended) :], *self.left_out))

    def progress(self) -> tuple[MaintainTablesResult, str]:
        """Return the result so far and a sentence about it, for a cancelled run."""
        done = [table.match.shown for table in self.ended if table.result is not None and not table.failed]
        return self.result(), f"Tables that are done: {', '.join(done) or 'none'}."

    def _candidate(self, scored: ScoredTable) -> TableCandidate | str:
        """Return the table with its steps and their price, or the reason why it cannot be maintained."""
        if scored.score is None:
            return scored.error
        try:
            steps = self.request.steps_of(scored.match.quoted, scored.properties)
        except IcebergCompactError as error:
            return str(error)
        self.steps[scored.match.quoted] = steps
        compacts = any(isinstance(step.request, CompactRequest) for step in steps)
        score = scored.score
        price = Price(score.rewrite_bytes, score.cost_dollars, score.seconds) if compacts else Price(0, 0.0, 0.0)
        return TableCandidate(name=scored.match.quoted, score=score, price=price, created_ms=scored.created_ms)

    def _stopped(self, table: TableMaintenance) -> str | None:
        """Return why this table is not started although it was chosen."""
        failures = sum(ended.failed for ended in self.ended)
        if failures >= self.request.max_failures:
            return f"{failures} tables failed before it: max_failures {self.request.max_failures}"
        left_ms = self._time_left_ms()
        if left_ms is not None and table.price is not None and table.price.seconds * 1000 > left_ms:
            return (
                f"{format_duration(table.price.seconds * 1000)} are needed and {format_duration(max(0, left_ms))} are "
                f"left of time_budget {format_duration(self.request.limits.time_budget_ms or 0)}"
            )
        return None

    def _time_left_ms(self) -> int | None:
        budget_ms = self.request.limits.time_budget_ms
        return None if budget_ms is None else budget_ms - self._elapsed_ms(self.started)

    def _maintained(self, table: TableMaintenance) -> TableMaintenance:
        begun = time.monotonic()
        steps = self._within_limits(self.steps[table.match.quoted], table.price)
        try:
            result = maintain(MaintainRequest(steps=steps), self.now)
        except RunCancelledError as error:
            partial = error.result if isinstance(error.result, MaintainResult) else None
            return replace(table, result=partial, error=str(error), elapsed_ms=self._elapsed_ms(begun))
        except NotFoundError as error:
            return replace(table, maintain=False, reason=f"it was dropped or renamed meanwhile: {error}")
        except IcebergCompactError as error:
            return replace(table, error=str(error), elapsed_ms=self._elapsed_ms(begun))
        except Exception as error:
            # An error of one table's store must not end the run.
            text = f"{type(error).__name__}: {redact(error)}"
            return replace(table, error=text, elapsed_ms=self._elapsed_ms(begun))
        elapsed_ms = self._elapsed_ms(begun)
        prices = Prices.from_settings(self.context.view.conf)
        after = score_match(table.match, self.scoring, self.now, prices, PastRuns(self.context)).score
        score_after = None if after is None else after.score
        return replace(table, result=result, score_after=score_after, elapsed_ms=elapsed_ms)

    def _within_limits(self, steps: Sequence[Step], price: Price | None) -> tuple[Step, ...]:
        """Return the steps; a compaction gets the table's share of each budget, in case the table has grown."""
        limits = self.request.limits
        narrowed: list[Step] = []
        for step in steps:
            request = step.request
            if isinstance(request, CompactRequest) and price is not None:
                if limits.max_cost is not None:
                    request = replace(request, max_cost_dollars=_least(request.max_cost_dollars, price.dollars))
                if limits.max_bytes is not None:
                    request = replace(request, max_bytes=_least(request.max_bytes, price.input_bytes))
                if (left_ms := self._time_left_ms()) is not None:
                    request = replace(request, time_budget_ms=_least(request.time_budget_ms, max(1, left_ms)))
            narrowed.append(Step(step.name, request))
        return tuple(narrowed)

    @staticmethod
    def _elapsed_ms(since: float) -> int:
        return int((time.monotonic() - since) * 1000)


def _least(limit: _Number | None, other: _Number) -> _Number:
    return other if limit is None else min(limit, other)
