"""Events of a run, the listeners that receive them, and the observer through which a run is watched and cancelled.

`EVENTS` declares every event with its fields and their units. Progress and logs are listeners; tests use listeners to
stop a run at a point. Listeners and observers belong to a context (`contextvars`): two runs in one process do not see
each other's events. Threads that a run starts get its context from `ThreadPool`.

>>> seen = []
>>> with listening(lambda event, facts: seen.append((event, dict(facts)))), observed(Observer(run_id="r1")):
...     reach("inventory.read", files=3, deletes=0)
>>> seen
[('inventory.read', {'files': 3, 'deletes': 0, 'run_id': 'r1'})]
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

Listener = Callable[[str, Mapping[str, object]], None]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Event:
    """One declared event. `fields` maps each field to its meaning, with the unit.

    With `stops` the event is a point at which a cancelled run ends. No event inside a commit is one.
    """

    name: str
    meaning: str
    fields: Mapping[str, str]
    stops: bool = False


def _event(name: str, meaning: str, *, stops: bool = False, **fields: str) -> Event:
    return Event(name, meaning, fields, stops)


EVENTS: Mapping[str, Event] = {
    event.name: event
    for event in (
        # A call and its table
        _event("bridge.run", "a CALL came in through the JVM door", stops=True, sql="text of the statement"),
        _event("table.load", "a table is about to be loaded", catalog="catalog name", table="name in the catalog"),
        _event(
            "action.start", "an action begins to change a table", procedure="its procedure", table="full table name"
        ),
        _event(
            "action.done",
            "an action has ended, also by a failure or a cancel",
            procedure="its procedure",
            table="full table name",
            outcome="the fields of a report.action_outcome.ActionOutcome, as a dict",
        ),
        # Reading the state of a table
        _event(
            "inventory.head",
            "the head of a branch is known",
            stops=True,
            branch="branch name",
            snapshot_id="snapshot id, None for an empty table",
        ),
        _event(
            "inventory.read",
            "all manifests of the head are read",
            stops=True,
            files="count of live data files",
            deletes="count of live delete files",
        ),
        # Planning
        _event(
            "plan.decided",
            "the planner has formed its groups",
            groups="count of groups, skipped ones included",
            rewrites="count of groups to rewrite",
            filtered="whether a where was given",
        ),
        _event(
            "plan.done",
            "a compaction is planned",
            stops=True,
            table="full table name",
            groups="count of groups to rewrite",
            partitions="count of their partitions",
            files="count of their data files",
            input_bytes="bytes of their data files",
        ),
        # Compaction
        _event(
            "compact.start",
            "the groups of a plan are about to be rewritten; raised again for groups that are planned again",
            stops=True,
            table="full table name",
            groups="count of groups",
            files="count of input data files",
            input_bytes="bytes of input data files",
            attempt="1 for the first plan, then one more for each plan after a conflict",
        ),
        _event(
            "compact.progress",
            "a task is done",
            input_bytes="bytes of input that this task stands for; all tasks of a start add up to its input_bytes",
        ),
        _event(
            "compact.group",
            "a group is rewritten and waits for its commit",
            table="full table name",
            group_id="number of the group in its plan",
            partition="partition path, empty when unpartitioned",
            files="count of input data files",
            input_bytes="bytes of input data files",
            outputs="count of files written",
            written_bytes="bytes written",
            notes="remarks of the writer, a tuple of texts",
        ),
        _event(
            "compact.group_failed",
            "a group ends without a commit; its files stay as they are",
            table="full table name",
            group_id="number of the group in its plan",
            partition="partition path, empty when unpartitioned",
            files="count of its data files, all counted as failed",
            reason="what went wrong",
        ),
        _event(
            "compact.committing",
            "rewritten groups are about to be committed",
            stops=True,
            table="full table name",
            groups="count of groups in the commit",
        ),
        _event(
            "compact.committed",
            "a commit of rewritten groups is in the table",
            table="full table name",
            snapshot_id="id of the new snapshot",
            groups="count of groups in the commit",
            files="count of data files that the commit removed",
            outputs="count of data files that the commit added",
            output_bytes="bytes of each data file that the commit added, a tuple",
        ),
        _event(
            "compact.commit_failed",
            "a commit was refused; its groups count as failed",
            table="full table name",
            groups="count of groups",
            reason="what the catalog said",
        ),
        _event(
            "compact.conflict",
            "some groups conflict with concurrent changes; they are planned again",
            stops=True,
            table="full table name",
            groups="count of groups in conflict",
            attempt="number of this new plan, from 1",
            reason="the first group's conflict",
        ),
        _event(
            "compact.left",
            "groups are left for another run because the time budget is used up",
            table="full table name",
            groups="count of groups",
        ),
        _event("clean.outputs", "outputs that were not committed are removed", paths="their paths"),
        # Rewrite tasks
        _event(
            "rewrite.start",
            "tasks are about to run",
            stops=True,
            tasks="count of tasks",
            input_bytes="bytes of input data files",
        ),
        _event("rewrite.job", "a Spark job of tasks is about to run", tasks="count of tasks"),
        _event("rewrite.result", "a task has ended", stops=True, group_id="number of its group"),
        _event("rewrite.open", "a data file is about to be opened", stops=True, path="path of the file"),
        _event(
            "rewrite.deletes",
            "the deletes of a task are about to be loaded",
            stops=True,
            group="number of the group",
            output="number of the task in its group",
        ),
        _event(
            "rewrite.read",
            "a row group is about to be decoded",
            stops=True,
            path="path of the data file",
            row_group="index of the row group",
        ),
        _event(
            "rewrite.read_lineage",
            "a stored column of row lineage is about to be decoded, for a row group that is copied or spliced",
            stops=True,
            path="path of the data file",
            row_group="index of the row group",
            column="name of the column",
        ),
        _event("rewrite.copy", "row groups are about to be copied", stops=True, row_groups="count of row groups"),
        _event(
            "rewrite.splice",
            "a row group is about to be made of column chunks of many row groups",
            stops=True,
            row_groups="count of row groups",
            rows="count of rows",
        ),
        _event("rewrite.encode", "rows are about to be encoded", stops=True, rows="count of rows"),
        _event("rewrite.verify", "an encoded row group is about to be read back", stops=True, rows="count of rows"),
        _event("rewrite.verify_file", "the checksums of a written file are about to be compared", path="path"),
        _event("rewrite.write", "an output file is about to be created", path="path of the file"),
        _event("rewrite.close", "an output file is about to be closed", path="path of the file"),
        _event("rewrite.clean", "files that a run created are about to be removed", paths="their paths"),
        _event("write.deletes", "a position delete file is about to be created", stops=True, path="path of the file"),
        # Commits
        _event("commit.write", "a metadata file is about to be written", path="path of the file"),
        _event("commit.validate", "a commit is about to be validated", snapshot_id="id of the current head"),
        _event("commit.send", "a commit is about to be sent to the catalog", snapshot_id="id of the new snapshot"),
        _event("commit.sent", "the catalog has answered", snapshot_id="id of the new snapshot"),
        _event("commit.confirm", "the table is about to be asked for the snapshot", snapshot_id="id of the new one"),
        _event("hadoop.commit", "a hadoop table's version file is about to be made", table="table name", version="n"),
        # Expiry
        _event(
            "expire.planned",
            "expiry is planned",
            stops=True,
            expired="count of snapshots to expire",
            files="count of files to delete",
        ),
        _event("expire.validate", "an expiry is about to be checked against the newest state", attempt="from 1"),
        _event("expire.commit", "the catalog has answered an expiry", metadata="location of the new metadata"),
        _event("expire.committed", "an expiry is in the table", expired="count of expired snapshots"),
        _event("expire.delete", "expired files are about to be deleted", files="count of files"),
        _event("reclaim.read_manifests", "manifests are about to be read", stops=True, count="count of manifests"),
        _event(
            "reclaim.other_tables",
            "the other tables of the catalog are about to be asked for the files that they name",
            stops=True,
            count="count of tables and views",
        ),
        _event(
            "reclaim.read_other_table",
            "all files that another table names are about to be read",
            stops=True,
            table="its name",
        ),
        _event("reclaim.delete", "a batch of files is about to be deleted", paths="their paths"),
        _event("reclaim.move", "a file is about to be moved aside or back", path="its original path"),
        _event("reclaim.moved", "all files of a run were moved aside", files="count of files"),
        _event("restore.journals_closed", "journals are closed, files are about to come back", files="count of files"),
        # Orphans
        _event(
            "orphans.listed",
            "the table's folders are listed",
            stops=True,
            listed="count of files",
            candidates="count of files old enough",
        ),
        _event("orphans.valid", "the files that the table needs are known", stops=True, files="count of files"),
        _event("orphans.check", "a batch of orphans is about to be checked again", stops=True, files="count of files"),
        _event("orphans.delete", "a batch of orphans is about to be deleted", files="count of files"),
        # Maintenance
        _event("maintain.table", "a table of maintain_tables is about to be maintained", stops=True, table="full name"),
        _event("maintain.step", "a step of maintain_table is about to run", stops=True, step="name of the step"),
    )
}


class RunCancelled(BaseException):
    """Ends a cancelled run from the inside, as KeyboardInterrupt does; actions turn it into RunCancelledError."""


class Observer:
    """The outside view of one run: its id, the listeners of its events, and a way to cancel it.

    `cancel` may be called from any thread. The run ends at its next event that `stops`, between two manifests or
    between two batches of rows, and never in a commit.
    """

    def __init__(self, *listeners: Listener, run_id: str | None = None) -> None:
        self.run_id = run_id or uuid.uuid4().hex[:16]
        self._listeners = listeners
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def receive(self, event: str, facts: Mapping[str, object]) -> None:
        for listener in self._listeners:
            listener(event, facts)


# Innermost last. Tuples, so that a context that was copied for a thread never changes under it.
_listeners: contextvars.ContextVar[tuple[Listener, ...]] = contextvars.ContextVar("listeners", default=())
_observers: contextvars.ContextVar[tuple[Observer, ...]] = contextvars.ContextVar("observers", default=())
_uninterrupted: contextvars.ContextVar[bool] = contextvars.ContextVar("uninterrupted", default=False)


def reach(name: str, **facts: object) -> None:
    """Give an event to every listener of this context, with the id of the run; exceptions of listeners are raised.

    Raises ValueError for an event or fields that are not declared, and RunCancelled when the run was cancelled
    and the event is a point at which it may stop.
    """
    event = EVENTS.get(name)
    if event is None or facts.keys() != event.fields.keys():
        raise ValueError(f"event {name!r} with the fields {sorted(facts)} is not declared in events.EVENTS")
    listeners, observers = _listeners.get(), _observers.get()
    if not listeners and not observers:
        return
    facts["run_id"] = observers[-1].run_id if observers else None
    for listener in listeners:
        listener(name, facts)
    for observer in observers:
        observer.receive(name, facts)
    if event.stops:
        stop_if_cancelled()


def stop_if_cancelled() -> None:
    """Raise RunCancelled when the run of this context was cancelled, unless a commit is under way."""
    if is_cancelled() and not _uninterrupted.get():
        raise RunCancelled


def is_cancelled() -> bool:
    """Whether the run of this context was cancelled."""
    return any(observer.cancelled() for observer in _observers.get())


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have `listener` called at every event of this context until the block ends."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextlib.contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Make the block part of the observer's run; blocks of one observer may be nested."""
    if observer in _observers.get():
        yield
        return
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Do not cancel the run inside the block: for commits, whose outcome must be known."""
    token = _uninterrupted.set(True)
    try:
        yield
    finally:
        _uninterrupted.reset(token)


class ThreadPool(ThreadPoolExecutor):
    """A thread pool whose work belongs to the run that submitted it: the same listeners, the same observer."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        context: Any = contextvars.copy_context()
        return super().submit(context.run, fn, *args, **kwargs)
