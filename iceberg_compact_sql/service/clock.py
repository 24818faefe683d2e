"""The clock of the service: fires schedules, looks at tables with `when`, and keeps to windows and budgets."""

from __future__ import annotations

import threading
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.errors import IcebergCompactError, NotFoundError
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.service.jobs import Job, JobRequest, Status
from iceberg_compact_sql.service.queue import Submitted
from iceberg_compact_sql.service.schedules import Schedule, due, schedules_of
from iceberg_compact_sql.service.scores import deepest_partition
from iceberg_compact_sql.service.triggers import TriggerState, after_look, after_run, decide, figures_of

if TYPE_CHECKING:
    from iceberg_compact_sql.catalogs.matching_tables import MatchingTable
    from iceberg_compact_sql.service.process import Service

_log = masked_logger(__name__)
_TICK_SECONDS = 0.5
_DAY_MS = 86_400_000


class Clock:
    """Every schedule with its state. States are in the store, so that pauses and missed runs survive a restart."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.schedules = {schedule.name: schedule for schedule in schedules_of(service.config)}
        self._states: dict[str, dict[str, Any]] = {}
        # Full names of tables that events were about since the last tick.
        self._asked: set[str] = set()
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self.state = "ok" if service.config.scheduler.enabled else "off"

    def open(self) -> None:
        now_ms = self.service.queue.now_ms()
        with self._lock:
            self._states = self.service.store.schedule_states()
            for name in self.schedules:
                # A new schedule has missed nothing.
                self._states.setdefault(name, {"last_ms": now_ms})
        if self.service.config.scheduler.enabled:
            self._thread = threading.Thread(target=self._tick_on, name="clock", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(5)

    def shown(self, now_ms: int) -> list[dict[str, Any]]:
        """Every schedule with its state; times in epoch milliseconds."""
        with self._lock:
            return [
                {
                    "name": schedule.name,
                    "table": schedule.table,
                    "schedule": schedule.cron,
                    "time_zone": schedule.time_zone,
                    "paused": bool(self._states.get(schedule.name, {}).get("paused")),
                    "next_ms": self._next_ms(schedule, now_ms),
                    "last_ms": self._states.get(schedule.name, {}).get("fired_ms"),
                    "last_job": self._states.get(schedule.name, {}).get("job_id"),
                    "procedure": schedule.procedure,
                    "arguments": dict(schedule.arguments),
                    "when": None if schedule.when is None else schedule.when.thresholds(),
                    "enabled": schedule.enabled,
                    "dry": schedule.dry,
                }
                for schedule in self.schedules.values()
            ]

    def _next_ms(self, schedule: Schedule, now_ms: int) -> int | None:
        return None if self._states.get(schedule.name, {}).get("paused") else schedule.next_ms(now_ms)

    def require(self, name: str) -> Schedule:
        """The schedule of this name; raises NotFoundError."""
        schedule = self.schedules.get(name)
        if schedule is None:
            raise NotFoundError(f"there is no schedule {name!r}", argument="name", value=name)
        return schedule

    def pause(self, name: str, *, paused: bool) -> None:
        """Stop or resume a schedule; remembered across restarts. Runs of the pause are not made up for."""
        self.require(name)
        with self._lock:
            self._save(name, paused=paused, last_ms=self.service.queue.now_ms())

    def run_now(self, name: str, *, who: str, address: str | None) -> Submitted:
        """Submit the run of a schedule now, whatever its clock, window and budget say."""
        schedule = self.require(name)
        source, arguments = f"schedule:{name}", dict(schedule.arguments)
        requests = [
            self.service.request(schedule.procedure, quoted, arguments, source=source)
            for _, quoted in self._tables_of(schedule)
        ]
        submitted = [self.service.submit(request, who=who, address=address) for request in requests]
        self._save(name, fired_ms=self.service.queue.now_ms(), job_id=submitted[0].job.job_id)
        return submitted[0]

    def look_at(self, tables: list[str]) -> None:
        """Look at these tables at the next tick, and at no others: somebody has committed to them."""
        with self._lock:
            self._asked.update(tables)
        for table in tables:
            self.service.scores.forget(table)
        self._woken.set()

    def finished(self, job: Job) -> None:
        """Note the end of a job: intervals of triggers begin, and back-off when it saved nothing."""
        now_ms = self.service.queue.now_ms()
        with self._lock:
            for name, schedule in self.schedules.items():
                triggers = self._states.get(name, {}).get("triggers", {})
                if schedule.when is None or job.table not in triggers or job.status is Status.QUEUED:
                    continue
                state = after_run(_state(triggers[job.table]), saved=job.outcome == "changed", now_ms=now_ms)
                self._save(name, triggers={**triggers, job.table: asdict(state)})

    def tick(self, now_ms: int) -> None:
        """Fire what is due now. Called twice a second; tests call it with moments of their own."""
        config = self.service.config.scheduler
        with self._lock:
            states = {name: dict(state) for name, state in self._states.items()}
            asked, self._asked = frozenset(self._asked), set()
        for entry in due(list(self.schedules.values()), states, now_ms, catch_up=config.catch_up == "once"):
            self._fire(entry.schedule, entry.stands_for, now_ms)
        for schedule in self.schedules.values():
            if schedule.when is not None and schedule.enabled and not states.get(schedule.name, {}).get("paused"):
                self._look(schedule, now_ms, asked)

    def _tick_on(self) -> None:
        while not self._stopped.is_set():
            engine = self.service.engine
            if engine is None or engine.session is not None:
                try:
                    self.tick(self.service.queue.now_ms())
                    self.state = "ok"
                except Exception:
                    self.state = "failing"
                    _log.exception("the clock met an error")
            self._woken.wait(_TICK_SECONDS)
            self._woken.clear()

    def _fire(self, schedule: Schedule, stands_for: int, now_ms: int) -> None:
        """Submit the jobs of a schedule that is due; outside its window it is skipped."""
        who = f"schedule:{schedule.name}"
        if stands_for == 0 or schedule.window_left_ms(now_ms) == 0:
            reason = "missed while the service was down" if stands_for == 0 else "outside its window"
            self.service.metrics.schedule_missed.inc(1)
            self._save(schedule.name, last_ms=now_ms)
            self.service.store.audit(now_ms, who, "skip", {"reason": reason})
            return
        self.service.metrics.schedule_missed.inc(stands_for - 1)
        detail = {"stands_for": stands_for, "dry": schedule.dry}
        # The moment is remembered first: after a crash here the run is lost once and never made twice.
        self._save(schedule.name, last_ms=now_ms, fired_ms=now_ms)
        try:
            tables = self._tables_of(schedule)
        except IcebergCompactError as error:
            self.service.store.audit(now_ms, who, "failed", {**detail, "error": str(error)})
            return
        self.service.store.audit(now_ms, who, "fire", {**detail, "tables": [shown for shown, _ in tables]})
        if schedule.dry:
            return
        arguments = schedule.run_arguments(now_ms)
        for shown, quoted in tables:
            # One table's error, or a full queue, does not keep the others from their runs.
            try:
                request = self.service.request(schedule.procedure, quoted, arguments, source=who)
                job = self.service.submit(self._within_budget(request, now_ms), who=who).job
            except IcebergCompactError as error:
                self._not_run(now_ms, who, shown, error)
            else:
                self._save(schedule.name, job_id=job.job_id)

    def _not_run(self, now_ms: int, who: str, table: str, error: IcebergCompactError) -> None:
        """Record a run that could not be queued; it is missed, and the next one does its work."""
        self.service.metrics.schedule_missed.inc(1)
        self.service.store.audit(now_ms, who, "failed", {"table": table, "error": str(error)})
        _log.warning("%s: %s: %s", who, table, error)

    def _tables_of(self, schedule: Schedule) -> list[tuple[str, str]]:
        """The tables of a run as shown and as quoted names; a procedure over many tables takes its pattern."""
        if schedule.procedure in ("maintain_tables", "score_tables"):
            return [(schedule.table, schedule.table)]
        return [(match.shown, match.quoted) for match in self._matches(schedule)]

    def _matches(self, schedule: Schedule) -> list[MatchingTable]:
        """The tables of a schedule; a pattern leaves out the tables that other entries name."""
        # Imported late for start-up time, as all of pyiceberg here: HTTP answers first.
        from iceberg_compact_sql.catalogs.matching_tables import MatchingTable, matching_tables
        from iceberg_compact_sql.catalogs.names import parse_table_name, resolve_name
        from iceberg_compact_sql.catalogs.open_table import known_catalogs

        view = self.service.context().view
        if not schedule.is_pattern:
            # A name needs no listing: opening the table shows whether it is there.
            resolved = resolve_name(view, parse_table_name(schedule.table), known_catalogs(view))
            return [MatchingTable(resolved.catalog, resolved.identifier)]
        matches = [match for match in matching_tables(view, schedule.table) if not match.is_view]
        return [match for match in matches if not self._has_own_entry(schedule, match)]

    def _asked_matches(self, schedule: Schedule, asked: frozenset[str]) -> list[MatchingTable]:
        """The tables of events that belong to a schedule; nothing is listed."""
        from iceberg_compact_sql.catalogs.matching_tables import MatchingTable, matches_pattern
        from iceberg_compact_sql.catalogs.names import parse_table_name

        if not schedule.is_pattern:
            return [match for match in self._matches(schedule) if match.shown in asked]
        view = self.service.context().view
        names = (parse_table_name(table) for table in sorted(asked))
        tables = [MatchingTable(parts[0], parts[1:]) for parts in names]
        return [
            table
            for table in tables
            if matches_pattern(view, table, schedule.table) and not self._has_own_entry(schedule, table)
        ]

    def _has_own_entry(self, schedule: Schedule, match: MatchingTable) -> bool:
        named = {other.table for other in self.schedules.values() if other is not schedule}
        return not named.isdisjoint((match.shown, match.shown.partition(".")[2]))

    def _within_budget(self, request: JobRequest, now_ms: int) -> JobRequest:
        """The request, or the same for tomorrow when the budget of today is used up."""
        budgets = self.service.config.budgets
        midnight = now_ms - now_ms % _DAY_MS
        cost, size = self.service.queue.used_since(midnight)
        notes = []
        if budgets.max_cost_per_day is not None and cost + (request.estimated_cost or 0) > budgets.max_cost_per_day:
            notes.append(f"max_cost_per_day {budgets.max_cost_per_day:g} is used up")
        if budgets.max_bytes_per_day is not None and size + (request.estimated_bytes or 0) > budgets.max_bytes_per_day:
            notes.append(f"max_bytes_per_day {budgets.max_bytes_per_day} is used up")
        if not notes:
            return request
        return replace(request, not_before_ms=midnight + _DAY_MS, note=f"waits for tomorrow: {', '.join(notes)}")

    def _look(self, schedule: Schedule, now_ms: int, asked: frozenset[str]) -> None:
        """Look at the tables of a trigger whose time has come, or that events were about.

        A table that did not change costs one request of the catalog and is not scored again.
        """
        from iceberg_compact_sql.actions.score_tables import ScoreTablesRequest, score_matches

        when = schedule.when
        assert when is not None
        with self._lock:
            state = dict(self._states.get(schedule.name, {}))
        is_due = now_ms - state.get("listed_ms", 0) >= when.every
        if not is_due and not asked:
            return
        triggers = {table: _state(values) for table, values in state.get("triggers", {}).items()}
        if is_due:
            self._save(schedule.name, listed_ms=now_ms)
        context = self.service.context()
        try:
            matches = self._matches(schedule) if is_due else self._asked_matches(schedule, asked)
        except IcebergCompactError as error:
            _log.warning("trigger %s: %s", schedule.name, error)
            return
        for match in matches:
            known = triggers.get(match.shown, TriggerState())
            try:
                location = context.open_table(match.quoted).table.metadata_location
            except IcebergCompactError as error:
                _log.warning("trigger %s: %s", schedule.name, error)
                continue
            if location != known.location:
                target = self.service.scores_target()
                request = ScoreTablesRequest(target_bytes=target)
                scored = score_matches([match], request, context)[0]
                if scored.score is None:
                    continue
                written = scored.score.last_written_ms
                figures = figures_of(scored.score) | self._depth(schedule, match)
                known = replace(known, location=location, figures=figures, written_ms=written)
            known = after_look(known, when, now_ms)
            triggers[match.shown] = known
            if self._decide(schedule, match, known, now_ms) and schedule.dry:
                # A shadow keeps to the intervals of the run that it stands for.
                triggers[match.shown] = replace(known, ended_ms=now_ms, reached_ms=None)
        with self._lock:
            merged = {**self._states.get(schedule.name, {}).get("triggers", {})}
            merged |= {table: asdict(known) for table, known in triggers.items()}
            self._save(schedule.name, triggers=merged)

    def _depth(self, schedule: Schedule, match: MatchingTable) -> dict[str, float]:
        """The clustering depth of a table as a figure; read only for a threshold that asks for it."""
        if schedule.when is None or schedule.when.depth is None:
            return {}
        target = self.service.scores_target()
        try:
            depth = deepest_partition(self.service.context(), match.quoted, schedule.arguments, target_bytes=target)
        except IcebergCompactError as error:
            # The other thresholds are compared all the same.
            _log.warning("trigger %s: depth: %s", schedule.name, error)
            return {}
        if depth is None:
            _log.warning(
                "trigger %s: depth: table %s has no sort order; set one, or give sort_order in options",
                schedule.name,
                match.shown,
            )
            return {}
        return {"depth": depth}

    def _decide(self, schedule: Schedule, match: MatchingTable, known: TriggerState, now_ms: int) -> bool:
        """Start the run that the figures ask for; returns whether they do. A dry one is only written down."""
        assert schedule.when is not None
        decision = decide(schedule.when, known, now_ms)
        if not decision.run or schedule.window_left_ms(now_ms) == 0:
            return False
        active, _ = self.service.store.jobs(statuses=["queued", "running", "cancelling"], table=match.shown, limit=1)
        if active:
            return False
        source = f"trigger:{schedule.name}"
        detail = {"table": match.shown, "reason": decision.reason, "figures": dict(known.figures), "dry": schedule.dry}
        self.service.store.audit(now_ms, source, "fire", detail)
        if schedule.dry:
            return True
        arguments = schedule.run_arguments(now_ms)
        try:
            request = self.service.request(schedule.procedure, match.quoted, arguments, source=source)
            request = replace(request, figures=dict(known.figures), note=request.note or decision.reason)
            job = self.service.submit(self._within_budget(request, now_ms), who=source).job
        except IcebergCompactError as error:
            # The thresholds stay reached: the next look tries again.
            self._not_run(now_ms, source, match.shown, error)
            return False
        self._save(schedule.name, fired_ms=now_ms, job_id=job.job_id)
        return True

    def _save(self, name: str, **changes: Any) -> None:
        with self._lock:
            state = {**self._states.get(name, {}), **changes}
            self._states[name] = state
            self.service.store.save_schedule(name, state)


def _state(values: dict[str, Any]) -> TriggerState:
    return TriggerState(**values)
