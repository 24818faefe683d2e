"""Metrics of runs, and the file for the node exporter."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from iceberg_compact_sql.errors import IcebergCompactError, RunCancelledError
from iceberg_compact_sql.events import Observer
from iceberg_compact_sql.report.action_outcome import ActionOutcome
from iceberg_compact_sql.report.metrics import Metrics, TableFigures
from tests.support.calls import call
from tests.support.plain import PlainLake

COMPACT = "CALL compact_table('db.t', target => '1MB')"


def make(lake: PlainLake, files: int = 6) -> None:
    lake.create("db.t", *(pa.table({"id": pa.array([number], pa.int64())}) for number in range(files)))


def values(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def measured(metrics: Metrics) -> dict[str, float]:
    return values(metrics.text().decode())


def test_a_compaction_and_an_expiry_are_counted(plain_lake: PlainLake) -> None:
    make(plain_lake)
    metrics = Metrics()
    active: list[float] = []

    def watch(event: str, facts: object) -> None:
        if event == "compact.committed":
            active.append(measured(metrics)["active_compactions"])

    (row,) = call(plain_lake, COMPACT, observer=Observer(metrics.listener, watch))
    found = measured(metrics)
    assert active == [1] and found["active_compactions"] == 0
    assert found['compaction_jobs_total{status="success"}'] == found["compaction_duration_seconds_count"] == 1
    assert found["files_compacted_total"] == 6
    assert found["bytes_read_total"] == row["rewritten_bytes_count"]
    assert found["bytes_written_total"] == found["file_size_bytes_sum"] == row["added_bytes_count"]
    assert found["file_size_bytes_count"] == 1 and found["cost_dollars_total"] > 0
    assert found["compression_ratio_sum"] == pytest.approx(row["added_bytes_count"] / row["rewritten_bytes_count"])
    assert found['last_compaction_timestamp{table="plain.db.t"}'] > 1.7e9
    expire = "CALL expire_snapshots('db.t', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    (row,) = call(plain_lake, expire, observer=Observer(metrics.listener))
    found = measured(metrics)
    assert found["bytes_freed_total"] == row["freed_bytes"] > 0 and found["files_expired_total"] > 6
    assert found["compaction_duration_seconds_count"] == 1
    assert not any("_created" in name for name in found)


def test_failed_and_cancelled_runs_have_their_own_status(plain_lake: PlainLake) -> None:
    make(plain_lake)
    metrics = Metrics()
    with pytest.raises(IcebergCompactError):
        call(plain_lake, "CALL compact_table('db.gone')", observer=Observer(metrics.listener))
    observer = Observer(metrics.listener)
    observer.cancel()
    with pytest.raises(RunCancelledError):
        call(plain_lake, COMPACT, observer=observer)
    found = measured(metrics)
    assert found['compaction_jobs_total{status="failed"}'] == found['compaction_jobs_total{status="cancelled"}'] == 1
    assert found["active_compactions"] == 0 and found["files_compacted_total"] == 0


def test_names_buckets_and_labels() -> None:
    metrics = Metrics(table_labels=2)
    scores = {"a": 0.5, "b": 0.4, "c": 0.3, "d": 0.2}
    for _ in range(2):
        metrics.set_scores(TableFigures(table, score, 3, 2, 1) for table, score in scores.items())
    found = measured(metrics)
    assert (found['table_score{table="other"}'], found['table_data_files{table="other"}']) == (0.3, 6)
    assert {name for name in found if name.startswith("table_score")} == {
        f'table_score{{table="{table}"}}' for table in ("a", "b", "other")
    }
    buckets = [name for name in found if name.startswith("compaction_duration_seconds_bucket")]
    assert re.findall(r'le="([\d.]+)', "".join(buckets)) == [
        f"{edge:.1f}" for edge in (1, 5, 15, 60, 300, 600, 1800, 3600, 14400)
    ]
    metrics.set_scores([TableFigures("b", 0.1, 3, 2, 1)])
    assert [name for name in measured(metrics) if name.startswith("table_snapshots")] == ['table_snapshots{table="b"}']
    for name in ("pending_compactions", "schedule_missed_total", "orphan_files_removed_total"):
        assert found[name] == 0


def test_two_registries_do_not_share_counts() -> None:
    one, two = Metrics(), Metrics()
    outcome = ActionOutcome(
        procedure="remove_orphans", table="t", status="success", started_ms=0, elapsed_ms=1, deleted_files=4
    )
    one.listener("action.done", {"outcome": asdict(outcome)})
    assert (measured(one)["orphan_files_removed_total"], measured(two)["orphan_files_removed_total"]) == (4, 0)


def test_the_file_for_the_node_exporter(plain_lake: PlainLake, tmp_path: Path) -> None:
    make(plain_lake)
    path = tmp_path / "iceberg.prom"
    plain_lake.conf["spark.iceberg_compact_sql.metrics"] = str(path)
    call(plain_lake, "CALL compact_table('db.t', dry_run => true)")
    assert not path.exists()
    call(plain_lake, COMPACT)
    first = values(path.read_text())
    with pytest.raises(IcebergCompactError):
        call(plain_lake, "CALL compact_table('db.gone')")
    second = values(path.read_text())
    assert (
        second['compaction_jobs_total{status="failed"}'] == first.get('compaction_jobs_total{status="failed"}', 0) + 1
    )
    assert second["files_compacted_total"] == first["files_compacted_total"] >= 6
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [file.name for file in tmp_path.glob("*prom*")] == ["iceberg.prom"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/a.prom", "the folder '.*missing' does not exist"),
        ("", "it is a folder"),
        ("metrics.txt", "only names that end in .prom"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_sentence_before_anything_is_done(
    plain_lake: PlainLake, tmp_path: Path, name: str, message: str
) -> None:
    make(plain_lake)
    plain_lake.conf["spark.iceberg_compact_sql.metrics"] = str(tmp_path / name)
    with pytest.raises(IcebergCompactError, match=message):
        call(plain_lake, COMPACT)
    assert len(plain_lake.load("db.t").snapshots()) == 6


def test_a_call_imports_neither_metrics_nor_tracing() -> None:
    script = (
        "import sys, iceberg_compact_sql, iceberg_compact_sql.doors.session\n"
        "from iceberg_compact_sql.procedures.registry import procedures\n"
        "procedures()\n"
        "print([name for name in sys.modules if name.startswith(('prometheus_client', 'opentelemetry', 'yaml'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
