"""Query logs as input: every bad one is one clear sentence, and no literal of a query is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from iceberg_compact_sql.errors import IcebergCompactError
from tests.support.calls import call
from tests.support.plain import PlainLake

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
START = {"Event": "SparkListenerLogStart", "Spark Version": "4.1.0"}
SQL = "org.apache.spark.sql.execution.ui.SparkListener"


def scan(table: str, filters: str) -> list[dict]:
    """The events of one scan, as Spark writes them."""
    node = {
        "nodeName": f"BatchScan {table}",
        "simpleString": f"BatchScan {table}[id#1L] IcebergScan(table={table}, schemaId=0, snapshotId=5, branch=null, "
        f"filters={filters}, runtimeFilters=, groupedBy=) RuntimeFilters: []",
        "metrics": [{"name": "number of output rows", "accumulatorId": 1}],
        "children": [],
    }
    stage = {"Stage ID": 0, "Accumulables": [{"ID": 1, "Name": "rows", "Value": "3", "Metadata": "sql"}]}
    return [
        {"Event": f"{SQL}SQLExecutionStart", "executionId": 0, "time": 1, "sparkPlanInfo": node},
        {"Event": "SparkListenerJobStart", "Stage IDs": [0], "Properties": {"spark.sql.execution.id": "0"}},
        {"Event": "SparkListenerStageCompleted", "Stage Info": stage},
    ]


def lines(*events: dict) -> bytes:
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


def advise(lake: PlainLake, place: Path, more: str = "") -> list[dict]:
    return call(lake, f"CALL advise('db.t', queries => '{place}'{more})")


GOOD = lines(START, *scan("lake.db.t", "id IS NOT NULL, id = 777123"))
BAD = {
    "another application": (
        b'{"level":"INFO","secret":777123}\n',
        "holds no readable Spark event log: it has no event",
    ),
    "not a log": (b"\x00\x01 777123", "holds no readable Spark event log: it does not begin as a Spark event log"),
    "lzf": (b"ZV\x00777123", "it is compressed with lzf, which is not supported; use zstd, lz4 or snappy"),
    "only the start": (GOOD[:60], r"no query in '.*' reads db\.t\. The logs scan no Iceberg table\."),
    "another table": (GOOD.replace(b"lake.db.t", b"lake.db.u"), r"reads db\.t\. The logs scan: lake\.db\.u\."),
    "a version that was not tested": (GOOD.replace(b"4.1.0", b"3.5.4"), r"has only logs of Spark 3\.5, whose text was"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_logs(plain_lake: PlainLake, tmp_path: Path, name: str) -> None:
    plain_lake.create("db.t", ROWS)
    content, message = BAD[name]
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(IcebergCompactError, match=message) as raised:
        advise(plain_lake, tmp_path / "log")
    assert "777123" not in str(raised.value) and "\n" not in str(raised.value)


def test_a_folder_without_logs_and_no_folder(plain_lake: PlainLake, tmp_path: Path) -> None:
    plain_lake.create("db.t", ROWS)
    (tmp_path / "logs").mkdir()
    for place in (tmp_path / "logs", tmp_path / "nowhere"):
        with pytest.raises(IcebergCompactError, match="holds no Spark event log"):
            advise(plain_lake, place)
    with pytest.raises(IcebergCompactError, match="argument 'queries': '' is empty"):
        call(plain_lake, "CALL advise('db.t', queries => '')")


@pytest.mark.parametrize("more", ["", ", sample => false"])
def test_what_is_whole_of_a_truncated_log_counts(plain_lake: PlainLake, tmp_path: Path, more: str) -> None:
    plain_lake.create("db.t", *[ROWS] * 4)
    (tmp_path / "log.inprogress").write_bytes(GOOD + GOOD[:200])
    (tmp_path / "bad.lz4").write_bytes(b"LZ4Block" + bytes(13))
    rows = [row for row in advise(plain_lake, tmp_path, more) if row["topic"] == "queries"]
    assert rows and "1 scans in 1 day" in rows[0]["finding"] and "the log is thin" in rows[0]["finding"]
    assert "777123" not in str(rows)
