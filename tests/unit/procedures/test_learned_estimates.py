"""Estimates learn: with a history database, seconds and dollars of a dry run come from past runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.plan.learned_pace import LearnedPaces, Pace, PastRun, planned_way
from iceberg_compact_sql.report.history_store import HistoryEntry, read, record
from tests.support.calls import call
from tests.support.plain import PlainLake

COMPACT = "CALL compact_table('db.t', target => '1MB')"
DRY_RUN = "CALL compact_table('db.t', target => '1MB', dry_run => true)"


@pytest.fixture
def url(plain_lake: PlainLake, tmp_path: Path) -> str:
    plain_lake.conf["spark.iceberg_compact_sql.history"] = address = f"sqlite:///{tmp_path}/history.db"
    return address


def append(lake: PlainLake, name: str = "db.t", files: int = 6) -> None:
    if not lake.catalog.table_exists(name):
        lake.create(name, pa.table({"id": pa.array([0], pa.int64())}))
    for number in range(files):
        lake.load(name).append(pa.table({"id": pa.array([number], pa.int64())}))


def planned(lake: PlainLake, sql: str = DRY_RUN) -> dict[str, Any]:
    (row,) = [row for row in call(lake, sql) if row["action"] in ("rewrite", "maintain")]
    return row


def run_of(table: str, seconds: float, number: int, **changes: Any) -> HistoryEntry:
    """A past run that took `seconds` where the constants say one second."""
    values: dict[str, Any] = {"way": "encoded", "base_seconds": 1.0, "procedure": "compact_table", "status": "success"}
    values |= {"started_ms": number, "elapsed_ms": round(seconds * 1000), "run_id": f"run-{number}", "table": table}
    return HistoryEntry(**(values | changes))


def test_estimates_of_five_similar_runs_predict_the_sixth(plain_lake: PlainLake, url: str) -> None:
    append(plain_lake)
    assert planned(plain_lake)["estimate_source"] == "constants"
    for _ in range(5):
        call(plain_lake, COMPACT)
        append(plain_lake)
    row = planned(plain_lake)
    assert row["estimate_source"] == "median of 5 runs of this table"
    past = sorted(entry.elapsed_ms / 1000 for entry in read(url, procedure="compact_table"))
    # The runs had the same bytes and files: the estimate is the middle one of them.
    assert row["estimated_seconds"] == pytest.approx(past[2], rel=0.3)
    costs = sorted(entry.cost or 0.0 for entry in read(url, procedure="compact_table"))
    assert row["estimated_cost"] == pytest.approx(costs[2], rel=0.3)
    call(plain_lake, COMPACT)
    (newest,) = read(url, procedure="compact_table", limit=1)
    assert newest.estimated_seconds == pytest.approx(row["estimated_seconds"])
    assert newest.estimated_cost == pytest.approx(row["estimated_cost"])
    shown = call(plain_lake, "CALL history('db.t', limit => 1)")[0]
    assert (shown["estimated_seconds"], shown["elapsed_ms"]) == (newest.estimated_seconds, newest.elapsed_ms)


def test_the_source_is_this_table_then_others_then_the_constants(plain_lake: PlainLake, url: str) -> None:
    append(plain_lake)
    constant = planned(plain_lake)
    record(url, run_of("plain.db.other", 5.0, 1))
    record(url, run_of("plain.db.t", 3.0, 2))
    record(url, run_of("plain.db.t", 3.0, 3))
    others = planned(plain_lake)
    assert others["estimate_source"] == "median of 1 run of other tables"
    assert others["estimated_seconds"] == pytest.approx(5 * constant["estimated_seconds"])
    record(url, run_of("plain.db.t", 4.0, 4))
    own = planned(plain_lake)
    assert own["estimate_source"] == "median of 3 runs of this table"
    assert own["estimated_seconds"] == pytest.approx(3 * constant["estimated_seconds"])
    assert own["estimated_cost"] > constant["estimated_cost"]
    fleet = planned(plain_lake, "CALL maintain_tables('db.t', target => '1MB', dry_run => true)")
    assert fleet["estimate_source"] == "median of 3 runs of this table"
    assert fleet["estimated_seconds"] == pytest.approx(own["estimated_seconds"])


def test_failures_other_ways_and_other_procedures_teach_nothing(plain_lake: PlainLake, url: str) -> None:
    append(plain_lake)
    for number in range(4):
        record(url, run_of("plain.db.t", 9.0, number, status="failed"))
        record(url, run_of("plain.db.t", 9.0, number, way="sorted"))
        record(url, run_of("plain.db.t", 9.0, number, way="copied"))
        record(url, run_of("plain.db.t", 9.0, number, procedure="expire_snapshots"))
        record(url, run_of("plain.db.t", 9.0, number, base_seconds=None))
    assert planned(plain_lake)["estimate_source"] == "constants"


def test_the_median_of_the_last_twenty_runs_counts() -> None:
    newest_first = [PastRun("copied", 2.0, 1.0)] * 20 + [PastRun("copied", 50.0, 1.0)] * 30
    assert LearnedPaces(newest_first).of("copied") == Pace(2.0, "median of 20 runs of this table")


@pytest.mark.parametrize(
    ("strategy", "copied_bytes", "way"),
    [("binpack", 100, "copied"), ("binpack", 49, "encoded"), ("binpack", 0, "encoded"), ("sort", 100, "sorted")],
)
def test_the_way_of_most_bytes_counts(strategy: str, copied_bytes: int, way: str) -> None:
    assert planned_way(strategy, 100, copied_bytes) == way


def test_a_dry_run_names_a_history_that_cannot_be_read(plain_lake: PlainLake, tmp_path: Path) -> None:
    append(plain_lake)
    (tmp_path / "text.db").write_text("not a database " * 100)
    plain_lake.conf["spark.iceberg_compact_sql.history"] = f"sqlite:///{tmp_path}/text.db"
    with pytest.raises(IcebergCompactError, match="cannot be read: file is not a database"):
        planned(plain_lake)
