"""Which runs are due: cron schedules with windows and catch-up. Pure: states and the clock are arguments."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.procedures.registry import names
from iceberg_compact_sql.service.configuration.config import ServiceConfig, TableEntry, When
from iceberg_compact_sql.service.configuration.cron import missed, next_after
from iceberg_compact_sql.service.configuration.strategies import renamed, strategy_arguments
from iceberg_compact_sql.service.queue import WILDCARDS
from iceberg_compact_sql.units import zone

DEFAULT_NAME = "*"


@dataclass(frozen=True)
class Schedule:
    """One entry of `tables`, or the default schedule `*` for all other tables."""

    name: str
    table: str
    procedure: str
    arguments: Mapping[str, Any]
    cron: str | None
    time_zone: str
    when: When | None = None
    window: tuple[int, int] | None = None
    enabled: bool = True
    dry: bool = False

    @property
    def is_pattern(self) -> bool:
        return not WILDCARDS.isdisjoint(self.table)

    def next_ms(self, after_ms: int) -> int | None:
        """When it fires next by its clock; None without one."""
        return None if self.cron is None or not self.enabled else next_after(self.cron, self.time_zone, after_ms)

    def window_left_ms(self, now_ms: int) -> int | None:
        """Milliseconds until the window ends; 0 outside of it, None without one."""
        if self.window is None:
            return None
        moment = dt.datetime.fromtimestamp(now_ms / 1000, zone(self.time_zone))
        minute = moment.hour * 60 + moment.minute
        start, end = self.window
        inside = start <= minute < end if start < end else minute >= start or minute < end
        if not inside:
            return 0
        return ((end - minute) % (24 * 60)) * 60_000 - moment.second * 1000

    def run_arguments(self, now_ms: int) -> dict[str, Any]:
        """The arguments of a run that starts now: its time budget ends with the window."""
        left_ms = self.window_left_ms(now_ms)
        arguments = dict(self.arguments)
        takes_budget = any(parameter.name == "time_budget" for parameter in names()[self.procedure].parameters)
        if left_ms and takes_budget and "time_budget" not in arguments:
            arguments["time_budget"] = f"{max(1, left_ms // 60_000)}m"
        return arguments


@dataclass(frozen=True)
class Due:
    """A schedule that fires now. `stands_for` counts the runs that were missed and are made up for by this one."""

    schedule: Schedule
    stands_for: int


def schedules_of(config: ServiceConfig) -> list[Schedule]:
    """The schedules of a configuration, in its order; a table that is named twice gets a number."""
    schedules: list[Schedule] = []
    seen: dict[str, int] = {}
    for entry in config.tables:
        seen[entry.name] = seen.get(entry.name, 0) + 1
        name = entry.name if seen[entry.name] == 1 else f"{entry.name}#{seen[entry.name]}"
        schedules.append(_of_entry(config, entry, name))
    if config.scheduler.default_schedule is not None:
        target = config.compaction.target_file_size
        arguments: dict[str, Any] = {} if target is None else {"target": target}
        if config.tables:
            # Tables with an entry of their own have their own schedule, or none.
            arguments["exclude"] = sorted({entry.name for entry in config.tables})
        schedules.append(
            Schedule(
                DEFAULT_NAME,
                "*",
                "maintain_tables",
                arguments,
                config.scheduler.default_schedule,
                config.scheduler.time_zone,
                dry=config.scheduler.dry,
            )
        )
    return schedules


def due(
    schedules: Sequence[Schedule], states: Mapping[str, Mapping[str, Any]], now_ms: int, *, catch_up: bool
) -> list[Due]:
    """The schedules that fire now. A state has `last_ms`, the moment up to which its runs are dealt with."""
    found = []
    for schedule in schedules:
        state = states.get(schedule.name, {})
        last_ms = state.get("last_ms")
        if schedule.cron is None or not schedule.enabled or state.get("paused") or last_ms is None:
            continue
        count, latest_ms = missed(schedule.cron, schedule.time_zone, last_ms, now_ms)
        if latest_ms is None:
            continue
        on_time = now_ms - latest_ms < 60_000
        if on_time or catch_up:
            found.append(Due(schedule, count))
        else:
            found.append(Due(schedule, 0))
    return found


def _of_entry(config: ServiceConfig, entry: TableEntry, name: str) -> Schedule:
    options = renamed(entry.options)
    if entry.procedure == "compact_table":
        target = config.compaction.target_file_size
        own = strategy_arguments(entry.strategy, config.compaction.configured(), target=target)
        options = own | options
    if entry.steps is not None:
        options["steps"] = list(entry.steps)
    return Schedule(
        name=name,
        table=entry.name,
        procedure=names()[entry.procedure].name,
        arguments=options,
        cron=entry.schedule,
        time_zone=entry.time_zone or config.scheduler.time_zone,
        when=entry.when,
        window=entry.window,
        enabled=entry.enabled,
        dry=entry.dry or config.scheduler.dry,
    )
