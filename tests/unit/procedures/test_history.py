"""history: commits from the snapshots themselves, and every action from the history database."""

from __future__ import annotations

import datetime as dt
import getpass
import re
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_compact_sql.errors import IcebergCompactError, RunCancelledError
from iceberg_compact_sql.events import Observer
from iceberg_compact_sql.report.history_store import HistoryEntry, read, record
from tests.support.calls import call
from tests.support.plain import PlainLake

COMPACT = "CALL compact_table('db.t', target => '1MB')"
SNAPSHOT_COLUMNS = [
    "committed_at",
    "run_id",
    "snapshot_id",
    "operation",
    "removed_data_files",
    "added_data_files",
    "removed_delete_files",
    "removed_bytes",
    "added_bytes",
    "added_records",
    "total_data_files",
]


def make(lake: PlainLake, name: str = "db.t", files: int = 6) -> None:
    lake.create(name, *(pa.table({"id": pa.array([number], pa.int64())}) for number in range(files)))


def history(lake: PlainLake, arguments: str = "'db.t'") -> list[dict[str, Any]]:
    return call(lake, f"CALL history({arguments})")


@pytest.fixture
def url(plain_lake: PlainLake, tmp_path: Path) -> str:
    """A history database that the lake's session names."""
    plain_lake.conf["spark.iceberg_compact_sql.history"] = address = f"sqlite:///{tmp_path}/history.db"
    return address


def test_commits_are_read_from_the_snapshots(plain_lake: PlainLake) -> None:
    make(plain_lake)
    assert history(plain_lake) == []
    observer = Observer(run_id="first-run")
    call(plain_lake, COMPACT, observer=observer)
    (row,) = history(plain_lake)
    assert list(row)[:11] == SNAPSHOT_COLUMNS
    snapshot = plain_lake.load("db.t").current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    assert row["committed_at"] == dt.datetime.fromtimestamp(snapshot.timestamp_ms / 1000, dt.timezone.utc)
    assert (row["run_id"], row["snapshot_id"], row["operation"]) == ("first-run", snapshot.snapshot_id, "replace")
    assert (row["removed_data_files"], row["added_data_files"], row["total_data_files"]) == (6, 1, 1)
    assert (row["removed_delete_files"], row["added_records"]) == (0, 6)
    assert row["removed_bytes"] == int(snapshot.summary["removed-files-size"] or 0) > row["added_bytes"] > 0
    assert row["procedure"] is None and row["user"] is None


def test_all_shows_commits_of_other_writers_and_limit_keeps_the_newest(plain_lake: PlainLake) -> None:
    make(plain_lake)
    call(plain_lake, COMPACT)
    rows = history(plain_lake, "'db.t', all => true")
    assert [row["operation"] for row in rows] == ["replace", *["append"] * 6]
    assert [row["run_id"] is None for row in rows] == [False, *[True] * 6]
    assert history(plain_lake, "'db.t', all => true, limit => 2") == rows[:2]
    assert history(plain_lake, f"'db.t', run_id => '{rows[0]['run_id']}', all => true") == rows[:1]
    assert history(plain_lake, "'db.t', run_id => 'nobody'") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'db.t', limit => 0", "limit"),
        ("'db.nothing'", "there is no table 'db.nothing'"),
        ("''", "is empty; give a value"),
    ],
)
def test_wrong_arguments(plain_lake: PlainLake, arguments: str, message: str) -> None:
    make(plain_lake, files=1)
    with pytest.raises(IcebergCompactError, match=message):
        history(plain_lake, arguments)


def test_the_database_has_what_leaves_no_snapshot(plain_lake: PlainLake, url: str) -> None:
    make(plain_lake)
    call(plain_lake, COMPACT, observer=Observer(run_id="run-1"))
    call(plain_lake, "CALL expire_snapshots('db.t', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)")
    call(plain_lake, "CALL remove_orphans('db.t')")
    orphans, expiry, compaction = history(plain_lake)
    assert [row["procedure"] for row in (orphans, expiry, compaction)] == [
        "remove_orphans",
        "expire_snapshots",
        "compact_table",
    ]
    assert {row["status"] for row in (orphans, expiry, compaction)} == {"success"}
    assert {row["user"] for row in (orphans, expiry, compaction)} == {getpass.getuser()}
    assert (expiry["expired_snapshots"], expiry["snapshot_id"]) == (6, None)
    assert expiry["deleted_files"] > 6 and expiry["freed_bytes"] > 0 and expiry["elapsed_ms"] >= 0
    assert compaction["run_id"] == "run-1" and compaction["removed_data_files"] == 6
    assert compaction["cost"] > 0 and compaction["estimated_cost"] > 0 and compaction["estimated_seconds"] > 0
    (entry,) = read(url, run_id="run-1")
    assert entry.table == "plain.db.t" and entry.arguments == {"table": "db.t", "target": 1024**2}
    assert entry.snapshot_ids == (compaction["snapshot_id"],)


def test_a_commit_whose_snapshot_is_expired_stays_in_the_history(plain_lake: PlainLake, url: str) -> None:
    make(plain_lake)
    call(plain_lake, COMPACT)
    plain_lake.load("db.t").append(pa.table({"id": pa.array([7], pa.int64())}))
    call(plain_lake, "CALL expire_snapshots('db.t', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)")
    _, compaction = history(plain_lake)
    assert (compaction["procedure"], compaction["removed_data_files"]) == ("compact_table", 6)
    assert compaction["operation"] is None and compaction["snapshot_id"] is not None


def test_failures_are_recorded(plain_lake: PlainLake, url: str) -> None:
    make(plain_lake)
    with pytest.raises(IcebergCompactError):
        call(plain_lake, "CALL compact_table('db.gone')")
    with pytest.raises(IcebergCompactError):
        call(plain_lake, "CALL maintain_table('db.gone2')")
    with pytest.raises(IcebergCompactError):
        call(plain_lake, "CALL compact_table('db.t', where => 'nothing = 1')")
    observer = Observer()
    observer.cancel()
    with pytest.raises(RunCancelledError):
        call(plain_lake, COMPACT, observer=observer)
    entries = read(url)
    assert [(entry.table, entry.status) for entry in entries] == [
        ("plain.db.t", "cancelled"),
        ("plain.db.t", "failed"),
        ("plain.db.gone2", "failed"),
        ("plain.db.gone", "failed"),
    ]
    assert all(entry.error and not entry.snapshot_ids for entry in entries)
    assert "nothing" in str(entries[1].error)
    assert [row["status"] for row in history(plain_lake)] == ["cancelled", "failed"]


def test_each_step_of_a_fleet_is_an_entry_and_a_dry_run_is_none(plain_lake: PlainLake, url: str) -> None:
    make(plain_lake, "db.a")
    make(plain_lake, "db.b")
    steps = "steps => array('compact', 'manifests'), target => '1MB'"
    call(plain_lake, f"CALL maintain_tables('db.*', {steps}, dry_run => true)")
    call(plain_lake, "CALL compact_table('db.a', dry_run => true)")
    call(plain_lake, "CALL score_tables('db.*')")
    assert read(url) == []
    assert not Path(url.removeprefix("sqlite:///")).exists()
    call(plain_lake, f"CALL maintain_tables('db.*', {steps})")
    found = {(entry.table, entry.procedure) for entry in read(url)}
    assert found == {(f"plain.db.{t}", p) for t in "ab" for p in ("compact_table", "rewrite_manifests")}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("not a url", "which is not a database URL. Write sqlite:///"),
        ("mysql://u:geheim123@h/db", "which is not a database URL"),
        ("sqlite://", "which keeps nothing"),
        ("sqlite:///{folder}/missing/history.db", "the folder '.*missing' does not exist. Create the folder"),
        ("sqlite:///file:{folder}/read.db?mode=ro&uri=true", "cannot be written to: attempt to write a readonly"),
        ("sqlite:///{folder}/text.db", "cannot be written to: file is not a database"),
        ("postgresql+psycopg://u:geheim123@127.0.0.1:9/db", "the history database postgresql.*cannot be written to"),
    ],
)
def test_a_database_that_cannot_be_written_to_is_one_sentence_before_anything_is_done(
    plain_lake: PlainLake, tmp_path: Path, address: str, message: str
) -> None:
    make(plain_lake)
    record(f"sqlite:///{tmp_path}/read.db", ENTRY)
    (tmp_path / "text.db").write_text("this is not a database, and long enough to have a header of its own kind" * 9)
    plain_lake.conf["spark.iceberg_compact_sql.history"] = address.format(folder=tmp_path)
    with pytest.raises(IcebergCompactError, match=message) as raised:
        call(plain_lake, COMPACT)
    assert str(raised.value).startswith("compact_table: ") and "geheim123" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(plain_lake.load("db.t").snapshots()) == 6


ENTRY = HistoryEntry(
    procedure="compact_table", table="lake.db.t", status="success", started_ms=1, elapsed_ms=2, run_id="r"
)


def test_a_row_that_cannot_be_written_afterwards_does_not_hide_the_result(
    plain_lake: PlainLake, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(plain_lake)

    def break_database(event: str, facts: object) -> None:
        if event == "compact.committed":
            path = Path(url.removeprefix("sqlite:///"))
            path.write_bytes(b"broken" * 1000)

    (row,) = call(plain_lake, COMPACT, observer=Observer(break_database))
    assert row["rewritten_data_files_count"] == 6
    assert re.search("compact_table plain.db.t ended as success and is not in the history", caplog.text)


def test_entries_come_back_as_they_were_written(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/h.db"
    assert read(url) == []
    entry = HistoryEntry(
        procedure="compact_table",
        table="lake.db.t",
        status="failed",
        started_ms=5,
        elapsed_ms=7,
        error="no",
        snapshot_ids=(2**62 + 1, 3),
        removed_data_files=4,
        cost=0.25,
        way="copied",
        run_id="r",
        user="ann",
        arguments={"where": "a = 'b'"},
    )
    record(url, entry)
    record(url, ENTRY)
    assert read(url) == [entry, ENTRY]
    assert read(url, table="lake.db.other") == [] and read(url, limit=1) == [entry]
    assert read(url, status="success") == [ENTRY] and read(url, other_than_table="lake.db.t") == []
    with sqlite3.connect(f"{tmp_path}/h.db") as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert tables == ["ics_history"]
    connection.close()
