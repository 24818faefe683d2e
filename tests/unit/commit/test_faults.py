"""Fail every step: a FileIO and a catalog that raise at call N, or do the work and then raise."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.commit.model import CommitInterrupted, CommitReport, Outcome
from iceberg_compact_sql.commit.outcome import Rejection, classify_error, describe
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.errors import CommitConflictError
from tests.support import oracle
from tests.support.handmade import (
    add_position_deletes,
    append,
    data_paths,
    make_catalog,
    make_table,
)
from tests.support.replacing import live_files, planned, replacement

STALE = "Cannot add snapshot with sequence number 4 older than last sequence number 4"


class Fault(OSError):
    """Raised by the test in place of what a broken network or disk raises."""


class Faults:
    """Counts calls, and fails the one that it is told to: before the work, or after it was done."""

    def __init__(self, at: int = -1, *, after: bool = False) -> None:
        self.at, self.after, self.calls = at, after, 0
        self.names: list[str] = []

    def around(self, name: str, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        number, self.calls = self.calls, self.calls + 1
        self.names.append(name)
        if number == self.at and not self.after:
            raise Fault(f"before {name}")
        result = work(*arguments, **options)
        if number == self.at:
            raise Fault(f"after {name}")
        return result


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> Iterator[None]:
    """Every input, output, delete, load and commit of this process goes through `faults`."""

    def wrap(owner: type, name: str) -> None:
        work = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda self, *args, **options: faults.around(name, work, self, *args, **options)
        )

    with monkeypatch.context() as patch:
        monkeypatch, outer = patch, monkeypatch
        for name in ("new_input", "new_output", "delete"):
            wrap(PyArrowFileIO, name)
        for name in ("load_table", "commit_table"):
            wrap(SqlCatalog, name)
        yield
        monkeypatch = outer


def build(folder: Path) -> Table:
    table = make_table(make_catalog(folder))
    for turn in range(2):
        append(table, [{"id": turn * 10 + i, "name": "k"} for i in range(4)])
    add_position_deletes(table, {data_paths(table)[0]: [1]})
    return table


def metadata_files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "warehouse/db/t/metadata").glob("*.avro")}


def reachable_metadata(table: Table) -> set[str]:
    names = set()
    for snapshot in table.catalog.load_table(table.name()).metadata.snapshots:
        names.add(snapshot.manifest_list)
        names.update(manifest.manifest_path for manifest in snapshot.manifests(table.io))
    return {name.rsplit("/", 1)[1] for name in names}


def check_after(table: Table, report: CommitReport, expected: list[dict[str, Any]], folder: Path) -> None:
    """The rows are there, every live file exists, the report tells the truth, and the work can be done again."""
    table = table.catalog.load_table(table.name())
    assert oracle.rows(table) == expected
    oracle.assert_readable(table)
    assert reachable_metadata(table) <= metadata_files(folder)
    landed = table.metadata.snapshot_by_id(report.snapshot_id or 0) is not None
    if report.outcome is Outcome.COMMITTED:
        assert landed
        assert report.committed == (0,)
    elif report.outcome is Outcome.FAILED:
        assert not landed
        assert set(report.conflicts) == {0}
    again = commit_replacements(table, [replacement(table, live_files(table))], state=planned(table))
    assert again.outcome is Outcome.COMMITTED
    assert oracle.rows(table) == expected


def calls_of_a_clean_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    table = build(folder)
    state, work = planned(table), [replacement(table, live_files(table))]
    counting = Faults()
    with failing(monkeypatch, counting):
        assert commit_replacements(table, work, state=state).outcome is Outcome.COMMITTED
    return counting.names


@pytest.mark.parametrize("after", [False, True], ids=["raises", "does-and-raises"])
def test_every_call_fails_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    names = calls_of_a_clean_run(tmp_path / "clean", monkeypatch)
    assert {"new_input", "new_output", "load_table", "commit_table"} <= set(names)
    outcomes = []
    for number in range(len(names)):
        folder = tmp_path / str(number)
        table = build(folder)
        expected = oracle.rows(table)
        state, work = planned(table), [replacement(table, live_files(table))]
        with failing(monkeypatch, Faults(number, after=after)):
            report = commit_replacements(table, work, state=state)
        outcomes.append((names[number], report.outcome))
        check_after(table, report, expected, folder)
    # A fault of the commit request itself is looked up and tried again: it ends well either way.
    assert [outcome for name, outcome in outcomes if name == "commit_table"] == [Outcome.COMMITTED]
    assert Outcome.UNKNOWN not in {outcome for _, outcome in outcomes}


class Answers:
    """A catalog's answers to commit requests, one after the other: what it does and what it says."""

    def __init__(self, table: Table, monkeypatch: pytest.MonkeyPatch, *answers: str | BaseException) -> None:
        self._answers = itertools.chain(answers, itertools.repeat(answers[-1]))
        self._work = type(table.catalog).commit_table
        self.requests = 0
        monkeypatch.setattr(type(table.catalog), "commit_table", self._commit(table))

    def _commit(self, table: Table) -> Callable[..., Any]:
        def commit(catalog: Any, *arguments: Any) -> Any:
            self.requests += 1
            answer = next(self._answers)
            if answer == "lie":
                fresh = catalog.load_table(table.name())
                return type("Response", (), {"metadata": fresh.metadata})()
            if isinstance(answer, BaseException):
                if "landed" in str(answer):
                    self._work(catalog, *arguments)
                raise answer
            return self._work(catalog, *arguments)

        return commit


def outputs_exist(folder: Path, report_work: list[Any]) -> bool:
    return all(Path(output.path.removeprefix("file://")).exists() for one in report_work for output in one.added)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ((CommitStateUnknownException("landed, then 504"),), Outcome.COMMITTED),
        ((CommitFailedException("409 to a retry of the request that landed"),), Outcome.COMMITTED),
        ((ConnectionError("reset, never arrived"), "work"), Outcome.COMMITTED),
        ((ConnectionError("reset, never arrived"),), Outcome.UNKNOWN),
        ((CommitFailedException("409"), CommitFailedException("409"), "work"), Outcome.COMMITTED),
        ((CommitFailedException("409"),), Outcome.FAILED),
        ((ForbiddenError("403"),), Outcome.FAILED),
        (
            (ValueError("Cannot add snapshot with sequence number 4 older than last sequence number 4"), "work"),
            Outcome.COMMITTED,
        ),
        (("lie",), Outcome.UNKNOWN),
    ],
)
def test_outcome_is_what_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: tuple[Any, ...], outcome: Outcome
) -> None:
    table = build(tmp_path)
    expected = oracle.rows(table)
    state, work = planned(table), [replacement(table, live_files(table))]
    before = metadata_files(tmp_path)
    with monkeypatch.context() as patch:
        Answers(table, patch, *answers)
        report = commit_replacements(table, work, state=state)
    assert report.outcome is outcome
    assert outputs_exist(tmp_path, work), "a commit never deletes data files"
    if outcome is Outcome.UNKNOWN:
        assert metadata_files(tmp_path) > before, "nothing is deleted in doubt"
        assert str(report.snapshot_id) in report.detail
        assert "No file was deleted" in report.detail
    else:
        assert metadata_files(tmp_path) == reachable_metadata(table), "what is in no snapshot was cleaned"
    check_after(table, report, expected, tmp_path)


def test_unreachable_catalog_after_the_request_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = build(tmp_path)
    expected = oracle.rows(table)
    state, work = planned(table), [replacement(table, live_files(table))]
    with monkeypatch.context() as patch:

        def cut(point: str, facts: Any) -> None:
            if point == "commit.sent":
                patch.setattr(SqlCatalog, "load_table", lambda *_: (_ for _ in ()).throw(ConnectionError("down")))

        with events.listening(cut):
            report = commit_replacements(table, work, state=state)
    assert report.outcome is Outcome.UNKNOWN
    assert table.catalog.load_table(table.name()).metadata.snapshot_by_id(report.snapshot_id or 0) is not None
    check_after(table, report, expected, tmp_path)


def test_doubt_ends_when_the_branch_has_left_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost request asserts its head: once somebody else moved the branch it can never land."""
    table = build(tmp_path)
    with table.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
    state, work = planned(table), [replacement(table, live_files(table))]
    other = table.catalog.load_table(table.name())
    send = SqlCatalog.commit_table

    def lose(*arguments: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", send)
        append(other, [{"id": 80, "name": "k"}])
        raise ConnectionError("reset, never arrived")

    monkeypatch.setattr(SqlCatalog, "commit_table", lose)
    report = commit_replacements(table, work, state=state)
    assert report.outcome is Outcome.FAILED
    assert metadata_files(tmp_path) == reachable_metadata(table)


@pytest.mark.parametrize("answer", ["success", "409"])
@pytest.mark.parametrize("proof", ["log", "files"])
def test_a_commit_that_landed_and_was_expired_at_once_is_told_as_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, proof: str
) -> None:
    """Another writer commits on top and expires all history: our files are live, our id is gone."""
    table = build(tmp_path)
    expected = oracle.rows(table)
    state, work = planned(table), [replacement(table, live_files(table))]
    other = table.catalog.load_table(table.name())
    send = SqlCatalog.commit_table

    def land_and_expire(*arguments: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", send)
        answered = send(*arguments)
        append(other, [{"id": 90, "name": "k"}])
        head = other.refresh().metadata.current_snapshot_id
        olds = [s.snapshot_id for s in other.metadata.snapshots if s.snapshot_id != head]
        other.maintenance.expire_snapshots().by_ids(olds).commit()
        if proof == "files":
            for entry in other.refresh().metadata.metadata_log:
                Path(entry.metadata_file.removeprefix("file://")).unlink()
        if answer == "409":
            raise CommitFailedException("409 to a repeated request")
        return answered

    monkeypatch.setattr(SqlCatalog, "commit_table", land_and_expire)
    report = commit_replacements(table, work, state=state)
    assert (report.outcome, report.committed) == (Outcome.COMMITTED, (0,))
    assert "was expired meanwhile" in report.detail
    assert [row for row in oracle.rows(table) if row["id"] != 90] == expected
    oracle.assert_readable(table)


@pytest.mark.parametrize("answer", ["success", "409"])
@pytest.mark.parametrize("change", ["drop", "create again", "upgrade"])
def test_a_table_that_goes_or_changes_right_after_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, change: str
) -> None:
    table = build(tmp_path)
    state, work = planned(table), [replacement(table, live_files(table))]
    send = SqlCatalog.commit_table

    def land_and_change(*arguments: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", send)
        answered = send(*arguments)
        if change == "upgrade":
            path = Path(answered.metadata_location.removeprefix("file://"))
            path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 3, "next-row-id": 0}))
        else:
            table.catalog.drop_table(table.name())
        if change == "create again":
            make_table(table.catalog)
        if answer == "409":
            raise CommitFailedException("409 to a repeated request")
        return answered

    monkeypatch.setattr(SqlCatalog, "commit_table", land_and_change)
    if answer == "409" and change != "upgrade":
        with pytest.raises(CommitConflictError, match="was dropped"):
            commit_replacements(table, work, state=state)
    else:
        report = commit_replacements(table, work, state=state)
        assert (report.outcome, report.committed) == (Outcome.COMMITTED, (0,))
    written = {name for name in metadata_files(tmp_path) if name.startswith("snap-")}
    assert len(written) == 4, "the list that landed is still there"
    assert outputs_exist(tmp_path, work)


@pytest.mark.parametrize(
    ("point", "outcome"),
    [
        ("commit.validate", Outcome.FAILED),
        ("commit.write", Outcome.FAILED),
        ("commit.send", Outcome.FAILED),
        ("commit.sent", Outcome.COMMITTED),
    ],
)
def test_ctrl_c_tells_what_is_in_the_table(tmp_path: Path, point: str, outcome: Outcome) -> None:
    table = build(tmp_path)
    expected = oracle.rows(table)
    state, work = planned(table), [replacement(table, live_files(table))]

    def interrupt(reached: str, facts: Any) -> None:
        if reached == point:
            raise KeyboardInterrupt

    with events.listening(interrupt), pytest.raises(CommitInterrupted) as caught:
        commit_replacements(table, work, state=state)
    assert caught.value.report.outcome is outcome
    assert metadata_files(tmp_path) == reachable_metadata(table)
    check_after(table, caught.value.report, expected, tmp_path)


def test_ctrl_c_while_the_request_is_under_way_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = build(tmp_path)
    state, work = planned(table), [replacement(table, live_files(table))]
    before = metadata_files(tmp_path)
    with monkeypatch.context() as patch:
        Answers(table, patch, KeyboardInterrupt("on its way"))
        with pytest.raises(CommitInterrupted) as caught:
            commit_replacements(table, work, state=state)
    assert caught.value.report.outcome is Outcome.UNKNOWN
    assert metadata_files(tmp_path) > before


def test_retries_leave_no_files_of_lost_tries(tmp_path: Path) -> None:
    table = build(tmp_path)
    state, work = planned(table), [replacement(table, live_files(table))]
    other = table.catalog.load_table(table.name())
    turns = itertools.count()

    def race(point: str, facts: Any) -> None:
        if point == "commit.send" and next(turns) < 2:
            append(other, [{"id": 200, "name": "k"}])

    with events.listening(race):
        report = commit_replacements(table, work, state=state)
    assert report.outcome is Outcome.COMMITTED
    assert metadata_files(tmp_path) == reachable_metadata(table)


def test_errors_are_told_without_credentials() -> None:
    text = describe(ConnectionError("postgresql://me:hunter2@host/db token=abc123 s3.secret-access-key: xyz"))
    assert "hunter2" not in text
    assert "abc123" not in text
    assert "xyz" not in text
    assert text.startswith("ConnectionError: postgresql://***@host/db")


def test_only_known_answers_are_certain() -> None:
    assert classify_error(CommitFailedException("x")) is Rejection.RETRY
    assert classify_error(ForbiddenError("x")) is Rejection.FINAL
    assert classify_error(ValueError("anything else")) is Rejection.DOUBT
    assert classify_error(TimeoutError()) is Rejection.DOUBT
