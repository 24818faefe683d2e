"""The queue: order, joining, keys, one job for each table, recovery; on a real SQLite file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_compact_sql.errors import NotFoundError
from iceberg_compact_sql.service.jobs import JobRequest, Status
from iceberg_compact_sql.service.lease import LEASE_MS, Lease, is_dead, own_name
from iceberg_compact_sql.service.queue import JobQueue, QueueFullError, RequestConflictError
from iceberg_compact_sql.service.store import StateError, Store


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path / 'state.db'}")
    yield opened
    opened.close()


@pytest.fixture
def queue(store: Store, clock: Clock) -> JobQueue:
    return JobQueue(store, owner="me", now_ms=clock, limit=5)


def request(table: str | None = "c.db.t", **arguments: object) -> JobRequest:
    return JobRequest(procedure="compact_table", table=table, arguments=arguments)


def test_one_job_for_each_table_oldest_first_and_others_pass(queue: JobQueue) -> None:
    ids = [queue.submit(request(table, n=n)).job.job_id for n, table in enumerate(("c.a", "c.a", "c.b", "c.a"))]
    first, second = queue.claim(), queue.claim()
    assert first is not None and second is not None
    assert [first.job_id, second.job_id] == [ids[0], ids[2]]
    assert first.run_id and first.run_id != second.run_id
    assert queue.claim() is None
    assert queue.finish(ids[0], Status.SUCCESS)
    third = queue.claim()
    assert third is not None and third.job_id == ids[1]


def test_a_pattern_waits_for_its_tables_and_is_not_overtaken(queue: JobQueue) -> None:
    queue.submit(request("c.db.a"))
    fleet = queue.submit(JobRequest(procedure="maintain_tables", table="c.db.*")).job.job_id
    later = queue.submit(request("c.db.b")).job.job_id
    other = queue.submit(request("c.other.b")).job.job_id
    running, passing = queue.claim(), queue.claim()
    assert running is not None and passing is not None and passing.job_id == other
    assert queue.claim() is None
    queue.finish(running.job_id, Status.SUCCESS)
    started = queue.claim()
    assert started is not None and started.job_id == fleet
    assert queue.claim() is None
    queue.finish(fleet, Status.FAILED, error={"message": "no"})
    last = queue.claim()
    assert last is not None and last.job_id == later


def test_equal_waiting_requests_are_joined_and_running_ones_are_not(queue: JobQueue) -> None:
    first = queue.submit(request(target="1MB", where="a = 1"))
    again = queue.submit(request(where="a = 1", target="1MB"))
    assert again.joined and not first.joined and again.job.job_id == first.job.job_id
    assert not queue.submit(request(target="2MB")).joined
    queue.claim()
    behind = queue.submit(request(target="1MB", where="a = 1"))
    assert not behind.joined and behind.job.job_id != first.job.job_id
    assert queue.submit(request(target="1MB", where="a = 1")).job.job_id == behind.job.job_id


def test_idempotency_keys_live_for_a_day_and_belong_to_a_token(queue: JobQueue, clock: Clock) -> None:
    first = queue.submit(request(), who="a", key="k").job.job_id
    queue.claim()
    queue.finish(first, Status.SUCCESS)
    assert queue.submit(request(), who="a", key="k").job.job_id == first
    with pytest.raises(RequestConflictError, match="was used for another request"):
        queue.submit(request(target="1MB"), who="a", key="k")
    assert queue.submit(request(target="1MB"), who="b", key="k").job.job_id != first
    clock.now += 24 * 3_600_000 + 1
    assert queue.submit(request(), who="a", key="k").job.job_id != first


def test_the_queue_has_a_limit(queue: JobQueue) -> None:
    for n in range(5):
        queue.submit(request(n=n))
    with pytest.raises(QueueFullError, match="5 jobs wait"):
        queue.submit(request(n=6))
    assert queue.submit(request(n=4)).joined


def test_cancel_of_a_waiting_a_running_and_a_finished_job(queue: JobQueue) -> None:
    waiting = queue.submit(request(n=1)).job.job_id
    assert queue.cancel(waiting, who="api:x") is Status.CANCELLED
    with pytest.raises(RequestConflictError, match="is over: its status is cancelled"):
        queue.cancel(waiting, who="api:x")
    running = queue.submit(request(n=2)).job.job_id
    queue.claim()
    assert queue.cancel(running, who="api:x") is Status.CANCELLING
    assert queue.finish(running, Status.CANCELLED)
    with pytest.raises(NotFoundError, match="there is no job 'none'"):
        queue.cancel("none", who="api:x")
    actions = [entry["action"] for entry in queue.store.audit_entries(10)]
    assert actions == ["cancel", "submit", "cancel", "submit"]


def test_a_finished_job_never_changes_again(queue: JobQueue) -> None:
    job_id = queue.submit(request()).job.job_id
    queue.claim()
    assert queue.finish(job_id, Status.SUCCESS)
    assert not queue.finish(job_id, Status.FAILED)
    assert queue.require(job_id).status is Status.SUCCESS


def test_recovery_interrupts_what_ran_and_keeps_what_waited(store: Store, clock: Clock) -> None:
    dead = JobQueue(store, owner="dead", now_ms=clock)
    ran, waited = (dead.submit(request(table)).job.job_id for table in ("c.a", "c.b"))
    dead.claim()
    alive = JobQueue(store, owner="alive", now_ms=clock)
    assert [job.job_id for job in alive.recover()] == [ran]
    assert alive.recover() == []
    assert alive.require(ran).status is Status.INTERRUPTED
    # The old process cannot overwrite what the new one decided.
    assert not dead.finish(ran, Status.SUCCESS)
    claimed = alive.claim()
    assert claimed is not None and claimed.job_id == waited
    alive.set_committed(ran, {"commits": 1, "snapshots": [7], "removed_data_files": 3})
    assert alive.require(ran).as_json()["committed"] == {"commits": 1, "snapshots": [7], "removed_data_files": 3}


def test_a_job_that_waits_for_tomorrow_does_not_block_and_runs_when_it_is_asked_for(
    queue: JobQueue, clock: Clock
) -> None:
    later = JobRequest(procedure="compact_table", table="c.a", not_before_ms=clock.now + 10, note="tomorrow")
    job_id = queue.submit(later).job.job_id
    assert queue.claim() is None
    assert queue.submit(request("c.a")).job.job_id == job_id
    claimed = queue.claim()
    assert claimed is not None and claimed.job_id == job_id


def test_claims_of_many_threads_never_give_a_job_twice(store: Store) -> None:
    queue = JobQueue(store, owner="me")
    for n in range(40):
        queue.submit(request(f"c.t{n}"))
    claimed: list[str] = []

    def work() -> None:
        while (job := queue.claim()) is not None:
            claimed.append(job.job_id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 40


def test_pages_filters_and_patterns_of_the_list(store: Store) -> None:
    queue = JobQueue(store, owner="me")
    ids = [queue.submit(request(f"c.db.t_{n % 3}", n=n)).job.job_id for n in range(7)]
    page, cursor = store.jobs(limit=3)
    assert [job.job_id for job in page] == ids[:-4:-1]
    rest, end = store.jobs(limit=10, before=cursor)
    assert [job.job_id for job in rest] == ids[3::-1] and end is None
    assert len(store.jobs(tables=["c.db.t_1"])[0]) == 2
    assert len(store.jobs(tables=["c.*"])[0]) == 7
    assert store.jobs(tables=["c.db.t?1"])[0] != [] and store.jobs(tables=["c.dbxt_1"])[0] == []
    assert store.jobs(statuses=["running"])[0] == []
    assert len(store.jobs(statuses=["queued", "running"], table="c.db.t_0")[0]) == 3


def test_the_lease_refuses_a_second_process_until_it_ends(store: Store, clock: Clock) -> None:
    first, second = Lease(store, owner="host/boot/1/2/a", now_ms=clock), Lease(store, owner="b/b/b/b/b", now_ms=clock)
    first.require()
    with pytest.raises(StateError, match="another process uses this state: the lease is held by process 1 on host"):
        second.require()
    clock.now += LEASE_MS - 1
    assert first.renew()
    clock.now += LEASE_MS - 1
    assert second.take() is not None
    clock.now += 2
    assert second.take() is None
    assert not first.renew()
    second.release()
    first.require()


def test_a_dead_process_of_this_machine_loses_its_lease_at_once(store: Store) -> None:
    host, boot, pid, start, _ = own_name().split("/")
    assert not is_dead("/".join((host, boot, pid, start, "x")))
    dead = "/".join((host, boot, pid, str(int(start) - 1), "x"))
    assert is_dead(dead)
    assert not is_dead("/".join(("elsewhere", boot, pid, "1", "x")))
    Lease(store, owner=dead).require()
    Lease(store).require()


def test_a_state_of_another_format_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    store = Store(url)
    with store.transaction() as connection:
        connection.exec_driver_sql("UPDATE ics_version SET version = 99")
    store.close()
    with pytest.raises(StateError, match="has format 99, and this version reads format 1"):
        Store(url)
