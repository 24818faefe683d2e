"""The clock on a real service without Spark, ticked with moments of the test: triggers, dry runs, budgets, the rest."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_compact_sql.service.configuration.config import service_config
from iceberg_compact_sql.service.jobs import Job, Status
from iceberg_compact_sql.service.process import Service
from tests.support.plain import PlainLake

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
NOON = int(dt.datetime(2100, 1, 4, 12, tzinfo=dt.timezone.utc).timestamp() * 1000)
OPTIONS = {"target": "1MB", "min_input_files": 2}
WHEN = {"small_files": 3, "every": "5m", "min_interval": "30m", "quiet": "0s"}


class Ticked:
    """A service whose clock stands still until the test moves it. Jobs run by hand, so that nothing is awaited."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.now_ms = NOON
        service.queue.now_ms = lambda: self.now_ms
        service.clock.open()

    def tick(self, now_ms: int) -> list[Job]:
        """All jobs, oldest first, after a tick at this moment."""
        self.now_ms = now_ms
        self.service.clock.tick(now_ms)
        return self.jobs()

    def jobs(self) -> list[Job]:
        return list(reversed(self.service.store.jobs(limit=100)[0]))

    def run(self) -> Job | None:
        """Run the next job that may start."""
        job = self.service.queue.claim()
        if job is not None:
            self.service.runner.run(job)
            return self.service.queue.require(job.job_id)
        return None

    def fired(self) -> list[dict[str, Any]]:
        """The details of what the audit says was fired, oldest first."""
        return [
            entry["detail"] for entry in reversed(self.service.store.audit_entries(100)) if entry["action"] == "fire"
        ]


Start = Callable[..., Ticked]


@pytest.fixture
def start(plain_lake: PlainLake, tmp_path: Path) -> Iterator[Start]:
    services: list[Service] = []

    def started(**document: Any) -> Ticked:
        # Its own loop is off: `open` only reads the states, and the test ticks.
        scheduler = {"enabled": False, **document.pop("scheduler", {})}
        state = {"folder": str(tmp_path / "state")}
        config = service_config(
            {"spark": {"conf": plain_lake.conf}, "state": state, "scheduler": scheduler, **document}
        )
        services.append(Service(config, with_spark=False))
        return Ticked(services[-1])

    yield started
    for service in services:
        service.close()


def make(lake: PlainLake, name: str, files: int) -> None:
    lake.create(name, *(pa.table({"id": pa.array([number], pa.int64())}) for number in range(files)))


def append(lake: PlainLake, name: str, files: int) -> None:
    for number in range(files):
        lake.load(name).append(pa.table({"id": pa.array([number], pa.int64())}))


def test_a_trigger_runs_by_state_and_keeps_to_its_intervals(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 2)
    ticked = start(tables=[{"name": "db.t", "when": WHEN, "options": OPTIONS}])
    assert ticked.tick(NOON) == []
    append(plain_lake, "db.t", 1)
    # The catalog is asked every 5 minutes, not at every tick.
    assert ticked.tick(NOON + 4 * MINUTE) == []
    [job] = ticked.tick(NOON + 5 * MINUTE)
    assert (job.source, job.status, job.note) == ("trigger:db.t", Status.QUEUED, "small_files 3 >= 3")
    assert job.figures is not None and job.figures["small_files"] == 3
    # It waits already: no second one.
    assert len(ticked.tick(NOON + 10 * MINUTE)) == 1
    done = ticked.run()
    assert done is not None and (done.status, done.outcome, done.note) == (Status.SUCCESS, "changed", job.note)
    append(plain_lake, "db.t", 3)
    assert len(ticked.tick(NOON + 39 * MINUTE)) == 1
    assert len(ticked.tick(NOON + 44 * MINUTE)) == 2
    assert [entry["reason"] for entry in ticked.fired()] == ["small_files 3 >= 3", "small_files 4 >= 3"]


def test_an_event_makes_the_next_tick_look(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 2)
    ticked = start(tables=[{"name": "db.t", "when": WHEN, "options": OPTIONS}])
    ticked.tick(NOON)
    append(plain_lake, "db.t", 1)
    ticked.service.clock.look_at(["plain.db.t"])
    assert len(ticked.tick(NOON + 1)) == 1


def test_an_event_about_one_table_looks_at_no_other(start: Start, plain_lake: PlainLake) -> None:
    for name in ("db.a", "db.b"):
        make(plain_lake, name, 2)
    ticked = start(tables=[{"name": "db.*", "when": WHEN, "options": OPTIONS}])
    ticked.tick(NOON)
    for name in ("db.a", "db.b"):
        append(plain_lake, name, 1)
    ticked.service.clock.look_at(["plain.db.b"])
    assert [job.table for job in ticked.tick(NOON + 1)] == ["plain.db.b"]
    assert {job.table for job in ticked.tick(NOON + 5 * MINUTE)} == {"plain.db.a", "plain.db.b"}


def test_a_table_that_did_not_change_costs_one_request_for_each_look(
    start: Start, plain_lake: PlainLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(plain_lake, "db.t", 2)
    ticked = start(tables=[{"name": "db.t", "when": WHEN, "options": OPTIONS}])
    ticked.tick(NOON)
    asked: list[str] = []
    for name in ("load_table", "list_tables", "list_namespaces", "list_views", "table_exists"):
        original = getattr(SqlCatalog, name)

        def counted(*arguments: Any, _name: str = name, _original: Any = original, **more: Any) -> Any:
            asked.append(_name)
            return _original(*arguments, **more)

        monkeypatch.setattr(SqlCatalog, name, counted)
    for look in range(1, 4):
        ticked.tick(NOON + look * 5 * MINUTE)
    assert asked == ["load_table"] * 3


def test_a_full_queue_and_a_bad_table_are_recorded_and_the_other_schedules_fire(
    start: Start, plain_lake: PlainLake
) -> None:
    for name in ("db.a", "db.b"):
        make(plain_lake, name, 4)
    names = ("db.a", "db.gone", "db.b")
    entries = [{"name": name, "schedule": "0 13 * * *", "options": OPTIONS} for name in names]
    ticked = start(tables=[*entries, {"name": "db.*", "when": WHEN, "options": OPTIONS}])
    ticked.service.queue.limit = 1
    jobs = ticked.tick(NOON + 60 * MINUTE)
    assert [(job.table, job.source) for job in jobs] == [("plain.db.a", "schedule:db.a")]
    failed = {
        entry["who"]: entry["detail"]["error"]
        for entry in ticked.service.store.audit_entries(100)
        if entry["action"] == "failed"
    }
    assert "there is no table 'db.gone'" in failed["schedule:db.gone"]
    assert "the queue is full: 1 jobs wait" in failed["schedule:db.b"]
    assert b"schedule_missed_total 2.0" in ticked.service.metrics_text()
    # When there is room again, the next run is taken.
    ticked.service.queue.limit = 10
    later = ticked.tick(NOON + DAY + 60 * MINUTE)
    assert {job.table for job in later} == {"plain.db.a", "plain.db.b"}


def test_dry_decides_and_writes_it_down_without_a_job(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 4)
    entry = {"name": "db.t", "when": WHEN, "schedule": "0 13 * * *", "options": OPTIONS, "dry": True}
    ticked = start(tables=[entry])
    for minutes in range(0, 61, 5):
        assert ticked.tick(NOON + minutes * MINUTE) == []
    triggered = [detail for detail in ticked.fired() if "figures" in detail]
    scheduled = [detail for detail in ticked.fired() if "stands_for" in detail]
    # At 12:00, 12:30 and 13:00, as runs that saved something would have started.
    assert [(detail["reason"], detail["dry"]) for detail in triggered] == [("small_files 4 >= 3", True)] * 3
    assert scheduled == [{"stands_for": 1, "dry": True, "tables": ["plain.db.t"]}]
    assert len(plain_lake.load("db.t").metadata.snapshots) == 4


def test_the_default_schedule_maintains_the_catalog_worst_first(start: Start, plain_lake: PlainLake) -> None:
    for name, files in (("db.few", 3), ("db.many", 6)):
        make(plain_lake, name, files)
    ticked = start(scheduler={"default_schedule": "0 13 * * *"}, compaction={"target_file_size": "1MB"})
    assert ticked.tick(NOON + 59 * MINUTE) == []
    [job] = ticked.tick(NOON + 60 * MINUTE)
    assert (job.procedure, job.source, job.arguments) == ("maintain_tables", "schedule:*", {"target": "1MB"})
    # The run of this moment is dealt with: the next one is tomorrow's.
    assert ticked.tick(NOON + 61 * MINUTE) == [job]
    done = ticked.run()
    assert done is not None and done.status is Status.SUCCESS and done.result is not None
    assert [(row["table"], row["action"]) for row in done.result] == [
        ("plain.db.many", "maintain"),
        ("plain.db.few", "maintain"),
    ]


def test_the_default_schedule_leaves_out_tables_that_have_an_entry(start: Start, plain_lake: PlainLake) -> None:
    for name in ("db.named", "db.other", "db.raw_one"):
        make(plain_lake, name, 6)
    entries = [{"name": name, "schedule": "0 14 * * *", "options": OPTIONS} for name in ("db.named", "db.raw_*")]
    ticked = start(scheduler={"default_schedule": "0 13 * * *"}, compaction={"target_file_size": "1MB"}, tables=entries)
    ticked.tick(NOON + 59 * MINUTE)
    ticked.tick(NOON + 60 * MINUTE)
    done = ticked.run()
    assert done is not None and done.result is not None
    assert [(row["table"], row["action"]) for row in done.result] == [
        ("plain.db.other", "maintain"),
        ("plain.db.named", "skip"),
        ("plain.db.raw_one", "skip"),
    ]


def test_jobs_beyond_the_budget_of_the_day_wait_for_tomorrow(start: Start, plain_lake: PlainLake) -> None:
    for name in ("db.a", "db.b"):
        make(plain_lake, name, 4)
    entries = [{"name": name, "schedule": "0 13 * * *", "options": OPTIONS} for name in ("db.a", "db.b")]
    ticked = start(tables=entries, budgets={"max_bytes_per_day": 1})
    # Estimates are of the scores. One table is more than a byte, so it waits however early it comes.
    ticked.service.scores.score_now()
    jobs = ticked.tick(NOON + 60 * MINUTE)
    midnight = NOON - NOON % DAY + DAY
    note = "waits for tomorrow: max_bytes_per_day 1 is used up"
    assert [(job.table, job.not_before_ms, job.note) for job in jobs] == [
        ("plain.db.a", midnight, note),
        ("plain.db.b", midnight, note),
    ]
    assert jobs[0].as_json()["not_before"] == "2100-01-05T00:00:00.000Z"
    assert ticked.run() is None
    ticked.now_ms = midnight
    done = ticked.run()
    assert done is not None and (done.status, done.note) == (Status.SUCCESS, None)


def test_what_waits_for_a_runner_has_used_the_budget(start: Start, plain_lake: PlainLake) -> None:
    for name in ("db.a", "db.b"):
        make(plain_lake, name, 4)
    entries = [{"name": name, "schedule": "0 13 * * *", "options": OPTIONS} for name in ("db.a", "db.b")]
    size = sum(file.file.file_size_in_bytes for file in plain_lake.load("db.a").scan().plan_files())
    ticked = start(tables=entries, budgets={"max_bytes_per_day": size + size // 2})
    ticked.service.scores.score_now()
    first, second = ticked.tick(NOON + 60 * MINUTE)
    assert first.not_before_ms is None and second.not_before_ms is not None


def test_the_loop_of_the_clock_fires_by_itself(plain_lake: PlainLake, tmp_path: Path) -> None:
    make(plain_lake, "db.t", 4)
    document = {
        "spark": {"conf": plain_lake.conf},
        "state": {"folder": str(tmp_path / "state")},
        "tables": [{"name": "db.t", "when": WHEN, "options": OPTIONS}],
    }
    service = Service(service_config(document), with_spark=False)
    service.open()
    try:
        jobs: list[Job] = []
        for _ in range(600):
            jobs, _ = service.store.jobs(limit=10)
            if jobs and jobs[0].finished_ms is not None:
                break
            time.sleep(0.05)
        assert [(job.source, job.status, job.outcome) for job in jobs] == [("trigger:db.t", Status.SUCCESS, "changed")]
        assert service.health()["checks"]["scheduler"] == "ok"
    finally:
        service.close()
