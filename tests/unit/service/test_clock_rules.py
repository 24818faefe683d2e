"""Windows, catch-up, back-off, quiet and depth on a real service without Spark, ticked with moments of the test."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from iceberg_compact_sql.service.jobs import Status
from tests.support.plain import PlainLake
from tests.unit.report.test_metrics import values
from tests.unit.service.test_clock import MINUTE, NOON, OPTIONS, WHEN, Start, Ticked, append, make, start

__all__ = ["start"]
HOUR = 60 * MINUTE
HOURLY = {"name": "db.t", "schedule": "0 * * * *", "options": OPTIONS}


def audited(ticked: Ticked, action: str) -> list[dict[str, Any]]:
    entries = reversed(ticked.service.store.audit_entries(100))
    return [entry["detail"] for entry in entries if entry["action"] == action]


def missed(ticked: Ticked) -> float:
    return values(ticked.service.metrics_text().decode())["schedule_missed_total"]


def test_a_schedule_starts_only_inside_its_window_and_ends_with_it(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 4)
    ticked = start(tables=[{**HOURLY, "window": "22:00-06:00"}])
    assert ticked.tick(NOON + HOUR) == []
    assert audited(ticked, "skip") == [{"reason": "outside its window"}] and missed(ticked) == 1
    [job] = ticked.tick(NOON + 10 * HOUR)
    assert job.arguments["time_budget"] == "480m"
    done = ticked.run()
    assert done is not None and (done.status, done.outcome) == (Status.SUCCESS, "changed")


def test_a_trigger_waits_for_its_window(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 4)
    ticked = start(tables=[{"name": "db.t", "when": WHEN, "options": OPTIONS, "window": "22:00-06:00"}])
    assert ticked.tick(NOON) == [] and ticked.tick(NOON + 9 * HOUR) == []
    [job] = ticked.tick(NOON + 10 * HOUR)
    assert (job.source, job.note) == ("trigger:db.t", "small_files 4 >= 3")


def test_runs_that_a_stopped_service_missed_are_made_up_for_once(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 4)
    first = start(tables=[HOURLY])
    assert len(first.tick(NOON + HOUR)) == 1
    first.run()
    first.service.close()
    second = start(tables=[HOURLY])
    jobs = second.tick(NOON + 5 * HOUR + 10 * MINUTE)
    assert len(jobs) == 2 and jobs[1].status is Status.QUEUED
    assert [entry["stands_for"] for entry in audited(second, "fire")] == [1, 4] and missed(second) == 3
    # It is dealt with: the next run is that of the next hour.
    assert len(second.tick(NOON + 5 * HOUR + 30 * MINUTE)) == 2


def test_without_catch_up_missed_runs_are_dropped(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 4)
    first = start(tables=[HOURLY])
    assert first.tick(NOON + 30 * MINUTE) == []
    first.service.close()
    second = start(tables=[HOURLY], scheduler={"catch_up": "none"})
    assert second.tick(NOON + 5 * HOUR + 10 * MINUTE) == []
    assert audited(second, "skip") == [{"reason": "missed while the service was down"}]
    assert len(second.tick(NOON + 6 * HOUR)) == 1


def test_runs_that_save_nothing_come_less_and_less_often(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 4)
    entry = {"name": "db.t", "when": {**WHEN, "every": "1m"}, "options": {**OPTIONS, "min_input_files": 100}}
    ticked = start(tables=[entry])
    now_ms, gaps, last_ms = NOON, [], NOON
    while len(gaps) < 4:
        waiting = [job for job in ticked.tick(now_ms) if job.status is Status.QUEUED]
        if waiting:
            gaps.append((now_ms - last_ms) // MINUTE)
            last_ms = now_ms
            done = ticked.run()
            assert done is not None and done.outcome == "nothing_to_do"
        now_ms += 10 * MINUTE
    assert gaps == [0, 60, 120, 240]


def test_a_table_that_was_just_written_to_is_left_alone(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 4)
    ticked = start(tables=[{"name": "db.t", "when": {**WHEN, "quiet": "10m"}, "options": OPTIONS}])
    written_ms = int(time.time() * 1000)
    assert ticked.tick(written_ms + 5 * MINUTE) == []
    [job] = ticked.tick(written_ms + 11 * MINUTE)
    assert job.source == "trigger:db.t"


def overlapping(lake: PlainLake, name: str, files: int) -> None:
    lake.create(name, *(pa.table({"id": pa.array(range(100), pa.int64())}) for _ in range(files)))


@pytest.mark.parametrize("strategy", ["sort", "hilbert"])
def test_a_depth_that_is_reached_starts_a_run_that_lowers_it(
    start: Start, plain_lake: PlainLake, strategy: str
) -> None:
    overlapping(plain_lake, "db.t", 6)
    options = {"sort_order": "id", "target": "1MB"}
    when = {"depth": 6, "every": "5m", "min_interval": "30m"}
    ticked = start(tables=[{"name": "db.t", "when": when, "strategy": strategy, "options": options}])
    [job] = ticked.tick(NOON)
    assert job.note == "depth 6 >= 6" and job.figures is not None and job.figures["depth"] == 6
    done = ticked.run()
    assert done is not None and (done.status, done.outcome) == (Status.SUCCESS, "changed"), done.error
    assert len(ticked.tick(NOON + HOUR)) == 1


def test_a_depth_without_an_order_leaves_the_other_thresholds(
    start: Start, plain_lake: PlainLake, caplog: pytest.LogCaptureFixture
) -> None:
    make(plain_lake, "db.t", 2)
    ticked = start(tables=[{"name": "db.t", "when": {**WHEN, "depth": 2}, "options": OPTIONS}])
    assert ticked.tick(NOON) == []
    assert "table plain.db.t has no sort order" in caplog.text
    append(plain_lake, "db.t", 1)
    [job] = ticked.tick(NOON + 5 * MINUTE)
    assert job.note == "small_files 3 >= 3"


def test_metrics_count_compactions_apart_from_other_jobs(start: Start, plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", 4)
    ticked = start()
    requests = [
        ("compact_table", {"target": "1MB"}),
        ("compact_table", {"dry_run": True}),
        ("maintain_table", {"steps": ["manifests"]}),
        ("expire_snapshots", {}),
    ]
    for procedure, arguments in requests:
        ticked.service.submit(ticked.service.request(procedure, "db.t", arguments))
    waiting = values(ticked.service.metrics_text().decode())
    assert (waiting["pending_compactions"], waiting["active_compactions"]) == (1, 0)
    while ticked.run() is not None:
        pass
    counted = values(ticked.service.metrics_text().decode())
    assert counted['compaction_jobs_total{status="success"}'] == counted["compaction_duration_seconds_count"] == 1
    assert counted['service_jobs_total{procedure="compact_table",status="success"}'] == 2
    assert counted['service_jobs_total{procedure="expire_snapshots",status="success"}'] == 1
