"""A run cancelled from outside: nothing of it is lost or left over, and the error says what was committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from iceberg_compact_sql.actions.compact import compact
from iceberg_compact_sql.actions.compact_request import CompactRequest, CompactResult
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.maintain import MaintainResult
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import RunCancelledError
from iceberg_compact_sql.events import EVENTS, Listener, Observer
from iceberg_compact_sql.storage.protocol import StoredFile
from iceberg_compact_sql.storage.stores import Stores
from tests.support.calls import call
from tests.support.handmade import BY_NAME, SIMPLE_SCHEMA, append, make_table
from tests.support.oracle import assert_readable, entries, rows
from tests.support.plain import PlainLake, open_plain
from tests.unit.actions.test_compact_faults import COMPACT, files_on_disk, fragmented, live_on_disk


class CancelAt:
    """An observer that cancels its run when event number `number` comes, as another thread would."""

    def __init__(self, number: int = 0) -> None:
        self.seen: list[str] = []
        self.number = number
        self.observer = Observer(self.receive)

    def receive(self, event: str, facts: Mapping[str, object]) -> None:
        assert facts["run_id"] == self.observer.run_id
        self.seen.append(event)
        if len(self.seen) == self.number:
            self.observer.cancel()


def events_of_a_run(tmp_path: Path) -> list[str]:
    probe = CancelAt()
    with open_plain(tmp_path / "probe") as lake:
        fragmented(lake)
        call(lake, COMPACT, observer=probe.observer)
    return probe.seen


def test_cancelled_anywhere_a_run_commits_whole_or_not_at_all(plain_lake: PlainLake, tmp_path: Path) -> None:
    names = events_of_a_run(tmp_path)
    last_chance = max(number for number, name in enumerate(names, 1) if EVENTS[name].stops)
    assert "compact.committing" in names[:last_chance]
    table = fragmented(plain_lake)
    before = rows(table)
    for number in range(1, last_chance + 1):
        cancel = CancelAt(number)
        with pytest.raises(RunCancelledError) as raised:
            call(plain_lake, COMPACT, observer=cancel.observer)
        assert "Nothing was committed" in str(raised.value)
        assert cancel.observer.run_id in str(raised.value)
        assert isinstance(raised.value.result, CompactResult) and raised.value.result.snapshot_ids == ()
        assert rows(table) == before, names[number - 1]
        assert files_on_disk(plain_lake) == live_on_disk(table, plain_lake), names[number - 1]
    # In a commit and after it the run ends as if nobody had cancelled.
    assert call(plain_lake, COMPACT, observer=CancelAt(last_chance + 1).observer)[0]["commits_count"] == 1
    assert rows(table) == before
    assert_readable(table)


def test_what_was_committed_before_the_cancel_stays_and_is_reported(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA, BY_NAME)
    for number in range(3):
        append(table, [{"id": number * 10 + i, "name": f"n{i}"} for i in range(4)])
    before = rows(table)

    def cancel_after_first_commit(event: str, facts: Mapping[str, object]) -> None:
        if event == "compact.committed":
            observer.cancel()

    observer = Observer(cancel_after_first_commit)
    with pytest.raises(RunCancelledError) as raised:
        call(plain_lake, f"{COMPACT[:-1]}, partial_progress => true, max_commits => 4)", observer=observer)
    result = raised.value.result
    assert isinstance(result, CompactResult)
    assert (result.commits, result.groups, result.rewritten_data_files) == (1, 1, 3)
    assert result.snapshot_id == plain_lake.load("db.t").metadata.current_snapshot_id
    assert f"snapshot {result.snapshot_id}" in str(raised.value)
    assert rows(table) == before
    assert files_on_disk(plain_lake) == live_on_disk(table, plain_lake)


def test_a_cancel_from_another_thread_reaches_a_task_between_two_batches(plain_lake: PlainLake) -> None:
    """One file with one large row group: without a check between batches the task would read it to its end."""
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA)
    for number in range(2):
        append(table, [{"id": i, "name": f"{number}-{i % 7}"} for i in range(300_000)])
    before = files_on_disk(plain_lake)
    reading = threading.Event()
    encoded: list[str] = []

    def receive(event: str, facts: Mapping[str, object]) -> None:
        if event == "rewrite.read":
            reading.set()
            # The other thread cancels while this one is in the middle of the row group.
            cancelled.wait(10)
        if event == "rewrite.encode":
            encoded.append(event)

    cancelled = threading.Event()
    observer = Observer(receive)

    def cancel() -> None:
        reading.wait(30)
        observer.cancel()
        cancelled.set()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    view = SessionView(conf=plain_lake.conf, current_catalog=plain_lake.name, current_namespace=("db",))
    with pytest.raises(RunCancelledError):
        compact(CompactRequest(table="db.t", min_input_files=2, copy="never"), Context(view, observer=observer))
    canceller.join()
    assert encoded == []
    assert files_on_disk(plain_lake) == before
    assert len(rows(table)) == 600_000


def test_two_runs_at_once_one_cancelled_do_not_disturb_each_other(plain_lake: PlainLake) -> None:
    tables = {name: make_table(plain_lake.catalog, f"db.{name}", SIMPLE_SCHEMA) for name in ("a", "b")}
    for table in tables.values():
        for number in range(3):
            append(table, [{"id": number, "name": "n"}])
    seen: dict[str, list[object]] = {"a": [], "b": []}
    observers = {}
    both_run = threading.Barrier(2)

    def receiver(name: str) -> Listener:
        def receive(event: str, facts: Mapping[str, object]) -> None:
            if event == "table.load":
                seen[name].append(facts["table"])
            if event == "plan.done":
                both_run.wait(30)
                if name == "a":
                    observers[name].cancel()

        return receive

    ends: dict[str, object] = {}

    def run(name: str) -> None:
        try:
            ends[name] = call(
                plain_lake, f"CALL compact_table('db.{name}', min_input_files => 2)", observer=observers[name]
            )
        except RunCancelledError as error:
            ends[name] = error

    for name in tables:
        observers[name] = Observer(receiver(name))
    threads = [threading.Thread(target=run, args=(name,)) for name in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(ends["a"], RunCancelledError)
    assert isinstance(ends["b"], list) and ends["b"][0]["commits_count"] == 1
    assert {name: {str(table).rpartition(".")[2] for table in tables} for name, tables in seen.items()} == {
        "a": {"a"},
        "b": {"b"},
    }
    assert (len(entries(tables["a"])), len(entries(tables["b"]))) == (3, 1)


def test_a_cancelled_maintenance_reports_its_steps(plain_lake: PlainLake) -> None:
    table = fragmented(plain_lake)
    before = rows(table)

    def cancel_at_manifests(event: str, facts: Mapping[str, object]) -> None:
        if event == "maintain.step" and facts["step"] == "manifests":
            observer.cancel()

    observer = Observer(cancel_at_manifests)
    with pytest.raises(RunCancelledError) as raised:
        call(plain_lake, "CALL maintain_table('db.t', target => '1MB')", observer=observer)
    result = raised.value.result
    assert isinstance(result, MaintainResult)
    outcomes = {step.step.name: step.outcome for step in result.steps}
    assert outcomes == {
        "compact": "done",
        "position_deletes": "done",
        "manifests": "not run",
        "expire": "not run",
        "orphans": "not run",
    }
    assert "Steps that are done: compact, position_deletes." in str(raised.value)
    assert rows(table) == before


def test_a_cancelled_expiry_leaves_the_rest_of_its_files_to_the_next_run(plain_lake: PlainLake) -> None:
    table = fragmented(plain_lake)
    call(plain_lake, COMPACT)
    before = rows(table)
    expire = "CALL expire_snapshots('db.t', older_than => TIMESTAMP '2999-01-01 00:00:00')"

    def cancel_at_the_first_delete(event: str, facts: Mapping[str, object]) -> None:
        if event == "reclaim.delete":
            observer.cancel()

    observer = Observer(cancel_at_the_first_delete)
    with pytest.raises(RunCancelledError) as raised:
        call(plain_lake, expire, observer=observer)
    assert "run it again to delete the files that they leave" in str(raised.value)
    table.refresh()
    assert len(table.snapshots()) == 1
    metadata = plain_lake.folder / "warehouse" / "db" / "t" / "metadata"
    assert len(list(metadata.glob("snap-*.avro"))) > 1
    [result] = call(plain_lake, expire)
    assert result["expired_snapshots_count"] == 0 and result["deleted_manifest_lists_count"] > 0
    assert len(list(metadata.glob("snap-*.avro"))) == 1
    assert rows(table) == before
    assert files_on_disk(plain_lake) == live_on_disk(table, plain_lake)
    assert_readable(table)


def test_a_cancel_reaches_the_listing_of_remove_orphans(plain_lake: PlainLake, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA)
    folder = plain_lake.folder / "warehouse" / "db" / "t" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1_500):
        (folder / f"{number}.parquet").touch()
    seen: list[str] = []
    observer = Observer(lambda event, facts: seen.append(event))

    def cancel_while_listing(self: Stores, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        for number, file in enumerate(walk(self, root, enter)):
            if number == 10:
                observer.cancel()
            yield file

    walk = Stores.walk
    monkeypatch.setattr(Stores, "walk", cancel_while_listing)
    with pytest.raises(RunCancelledError, match="Nothing was changed"):
        call(plain_lake, "CALL remove_orphans('db.t', dry_run => true)", observer=observer)
    assert "orphans.valid" in seen and "orphans.listed" not in seen
