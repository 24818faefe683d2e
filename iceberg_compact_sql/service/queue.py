"""The queue of jobs: order, joining of equal requests, one job for each table at a time, and recovery."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import sqlalchemy as sa

from iceberg_compact_sql.errors import IcebergCompactError, NotFoundError
from iceberg_compact_sql.service.jobs import ACTIVE, FINAL, Job, JobRequest, Status
from iceberg_compact_sql.service.store import JOBS, KEYS, Store, add_audit, columns_of

KEY_LIFE_MS = 24 * 3_600_000
# What makes a name a pattern.
WILDCARDS = frozenset("*?[")
_ACTIVE = [status.value for status in ACTIVE]


class QueueFullError(IcebergCompactError):
    """No more jobs are taken until some have run."""

    condition = "ICEBERG_COMPACT_QUEUE_FULL"


class RequestConflictError(IcebergCompactError):
    """The request contradicts an earlier one: its idempotency key, or a job that is over."""

    condition = "ICEBERG_COMPACT_REQUEST_CONFLICT"


@dataclass(frozen=True)
class Submitted:
    """An accepted request: its job, and whether it was joined to one that waited already."""

    job: Job
    joined: bool = False


class JobQueue:
    """Jobs in the store. Every change is one transaction, so a job is in exactly one state after any crash."""

    def __init__(self, store: Store, *, owner: str, limit: int = 1000, now_ms: Callable[[], int] | None = None) -> None:
        self.store = store
        self.owner = owner
        self.limit = limit
        self.now_ms = now_ms or (lambda: int(time.time() * 1000))

    def submit(
        self, request: JobRequest, *, who: str | None = None, key: str | None = None, address: str | None = None
    ) -> Submitted:
        """Accept a request; the job is stored when this returns.

        An equal request that waits is joined. A key gives the same job for the same request for 24 h. Raises
        RequestConflictError for the key of another request and QueueFullError when the queue is full.
        """
        now_ms = self.now_ms()
        fingerprint = request.fingerprint
        scoped_key = None if key is None else f"{who or ''}:{key}"
        with self.store.transaction() as connection:
            known = self._job_of_key(connection, scoped_key, fingerprint, now_ms)
            job_id = known or self._waiting(connection, request, fingerprint)
            joined = job_id is not None
            if job_id is None:
                job_id = self._insert(connection, request, fingerprint, now_ms)
            if scoped_key is not None and known is None:
                connection.execute(
                    KEYS.insert().values(key=scoped_key, fingerprint=fingerprint, job_id=job_id, created_ms=now_ms)
                )
            detail = {"job_id": job_id, "procedure": request.procedure, "table": request.table, "joined": joined}
            if request.note is not None:
                detail["note"] = request.note
            add_audit(connection, now_ms, who or request.source, "submit", detail, address)
        return Submitted(self.require(job_id), joined)

    def require(self, job_id: str) -> Job:
        """The job of this id; raises NotFoundError."""
        job = self.store.job(job_id)
        if job is None:
            raise NotFoundError(f"there is no job {job_id!r}", argument="job_id", value=job_id)
        return job

    def claim(self) -> Job | None:
        """Start the oldest job whose table is free and return it; None when all wait.

        A job also waits for an older waiting job of its table. Jobs of other tables pass by.
        """
        now_ms = self.now_ms()
        run_id = uuid.uuid4().hex[:16]
        with self.store.transaction() as connection:
            active = sa.select(JOBS.c.table_name).where(JOBS.c.status.in_(_ACTIVE), JOBS.c.table_name.is_not(None))
            taken: list[str] = list(connection.execute(active).scalars())
            ready = sa.or_(JOBS.c.not_before_ms.is_(None), JOBS.c.not_before_ms <= now_ms)
            waiting = (
                sa.select(JOBS.c.job_id, JOBS.c.table_name)
                .where(JOBS.c.status == Status.QUEUED.value, ready)
                .order_by(JOBS.c.number)
            )
            for job_id, table in _pairs(connection.execute(waiting)):
                if table is None or not any(_same_table(table, other) for other in taken):
                    started = {"status": Status.RUNNING.value, "started_ms": now_ms, "run_id": run_id}
                    update = JOBS.update().where(JOBS.c.job_id == job_id)
                    # Why it waited is of the past; why it was started stays.
                    note = sa.case((JOBS.c.not_before_ms.is_(None), JOBS.c.note), else_=None)
                    connection.execute(update.values(owner=self.owner, note=note, **started))
                    break
                taken.append(table)
            else:
                return None
        return self.require(job_id)

    def put_back(self, job_id: str) -> None:
        """Return a claimed job that has not started to work to its place in the queue."""
        waiting: dict[str, Any] = {"status": Status.QUEUED.value, "started_ms": None, "run_id": None, "owner": None}
        with self.store.transaction() as connection:
            mine = sa.and_(JOBS.c.job_id == job_id, JOBS.c.owner == self.owner)
            running = JOBS.c.status == Status.RUNNING.value
            connection.execute(JOBS.update().where(mine, running).values(**waiting))
            # A job whose cancel came first has not changed anything.
            cancelled = {"status": Status.CANCELLED.value, "finished_ms": self.now_ms()}
            cancelling = JOBS.c.status == Status.CANCELLING.value
            connection.execute(JOBS.update().where(mine, cancelling).values(**cancelled))

    def save_progress(self, job_id: str, progress: dict[str, Any], committed: dict[str, Any] | None) -> None:
        """Store the progress of a running job."""
        with self.store.transaction() as connection:
            mine = sa.and_(JOBS.c.job_id == job_id, JOBS.c.owner == self.owner, JOBS.c.status.in_(_ACTIVE))
            connection.execute(JOBS.update().where(mine).values(columns_of(progress=progress, committed=committed)))

    def finish(self, job_id: str, status: Status, **values: Any) -> bool:
        """Give a running job its final state; false if this process no longer owns it."""
        assert status in FINAL
        final = columns_of(status=status.value, finished_ms=self.now_ms(), **values)
        with self.store.transaction() as connection:
            mine = sa.and_(JOBS.c.job_id == job_id, JOBS.c.owner == self.owner, JOBS.c.status.in_(_ACTIVE))
            return bool(connection.execute(JOBS.update().where(mine).values(**final)).rowcount)

    def set_committed(self, job_id: str, committed: dict[str, Any]) -> None:
        """Record what an interrupted job had committed, when its table was read."""
        with self.store.transaction() as connection:
            job = sa.and_(JOBS.c.job_id == job_id, JOBS.c.status == Status.INTERRUPTED.value)
            changed = {"outcome": "changed"} if committed["commits"] else {}
            connection.execute(JOBS.update().where(job).values(**columns_of(committed=committed), **changed))

    def cancel(self, job_id: str, *, who: str, address: str | None = None) -> Status:
        """Cancel a job: `cancelled` if it waited, `cancelling` if it runs. Raises when it is over."""
        now_ms = self.now_ms()
        with self.store.transaction() as connection:
            job = JOBS.c.job_id == job_id
            waited = JOBS.update().where(job, JOBS.c.status == Status.QUEUED.value)
            running = JOBS.update().where(job, JOBS.c.status.in_(_ACTIVE))
            if connection.execute(waited.values(status=Status.CANCELLED.value, finished_ms=now_ms)).rowcount:
                status = Status.CANCELLED
            elif connection.execute(running.values(status=Status.CANCELLING.value)).rowcount:
                status = Status.CANCELLING
            else:
                state = connection.execute(sa.select(JOBS.c.status).where(job)).scalar()
                if state is None:
                    raise NotFoundError(f"there is no job {job_id!r}", argument="job_id", value=job_id)
                raise RequestConflictError(
                    f"job {job_id} is over: its status is {state}", argument="job_id", value=job_id
                )
            add_audit(connection, now_ms, who, "cancel", {"job_id": job_id, "status": status.value}, address)
        return status

    def recover(self) -> list[Job]:
        """Mark the jobs that an ended process left running as interrupted; returns them. Waiting jobs stay."""
        error = {
            "code": "ICEBERG_COMPACT_INTERRUPTED",
            "message": "the process ended while the job ran",
            "hint": "What it committed is under `committed`. The next equal job does the rest.",
        }
        final = columns_of(status=Status.INTERRUPTED.value, finished_ms=self.now_ms(), error=error)
        with self.store.transaction() as connection:
            left = sa.and_(JOBS.c.status.in_(_ACTIVE), sa.or_(JOBS.c.owner.is_(None), JOBS.c.owner != self.owner))
            ids: list[str] = list(connection.execute(sa.select(JOBS.c.job_id).where(left)).scalars())
            connection.execute(JOBS.update().where(JOBS.c.job_id.in_(ids)).values(**final))
            for job_id in ids:
                add_audit(connection, self.now_ms(), "service", "interrupted", {"job_id": job_id})
        return [self.require(job_id) for job_id in ids]

    def used_since(self, moment_ms: int) -> tuple[float, int]:
        """Estimated dollars and bytes of the jobs of schedules and triggers that started since a moment or may start.

        Jobs that wait for another day do not count.
        """
        scheduled = sa.or_(JOBS.c.source.like("schedule:%"), JOBS.c.source.like("trigger:%"))
        cost, size = sa.func.sum(JOBS.c.estimated_cost), sa.func.sum(JOBS.c.estimated_bytes)
        with self.store.engine.connect() as connection:
            today = sa.or_(JOBS.c.not_before_ms.is_(None), JOBS.c.not_before_ms <= self.now_ms())
            # Many schedules may fire at once: what waits for a free runner is spent already.
            waiting = sa.and_(JOBS.c.status == Status.QUEUED.value, today)
            counted = sa.or_(JOBS.c.started_ms >= moment_ms, waiting)
            row = connection.execute(sa.select(cost, size).where(scheduled, counted)).one()
        return float(row[0] or 0), int(row[1] or 0)

    def _job_of_key(self, connection: sa.Connection, key: str | None, fingerprint: str, now_ms: int) -> str | None:
        if key is None:
            return None
        connection.execute(KEYS.delete().where(KEYS.c.created_ms <= now_ms - KEY_LIFE_MS))
        row = connection.execute(KEYS.select().where(KEYS.c.key == key)).first()
        if row is None:
            return None
        if row.fingerprint != fingerprint:
            raise RequestConflictError(
                "this Idempotency-Key was used for another request in the last 24 hours",
                argument="Idempotency-Key",
                hint="Use a new key for a new request.",
            )
        return str(row.job_id)

    def _waiting(self, connection: sa.Connection, request: JobRequest, fingerprint: str) -> str | None:
        equal = sa.and_(JOBS.c.fingerprint == fingerprint, JOBS.c.status == Status.QUEUED.value)
        job_id = connection.execute(sa.select(JOBS.c.job_id).where(equal).order_by(JOBS.c.number)).scalar()
        if job_id is not None and request.not_before_ms is None:
            # A job that waits for tomorrow's budget runs now when somebody asks for it.
            update = JOBS.update().where(JOBS.c.job_id == job_id)
            connection.execute(update.values(not_before_ms=None, note=None))
        return job_id

    def _insert(self, connection: sa.Connection, request: JobRequest, fingerprint: str, now_ms: int) -> str:
        queued = sa.select(sa.func.count()).where(JOBS.c.status == Status.QUEUED.value)
        if connection.execute(queued).scalar_one() >= self.limit:
            raise QueueFullError(
                f"the queue is full: {self.limit} jobs wait", hint="Submit it again when some of them have run."
            )
        job_id = str(uuid.uuid4())
        connection.execute(
            JOBS.insert().values(
                **columns_of(
                    job_id=job_id,
                    status=Status.QUEUED.value,
                    procedure=request.procedure,
                    table_name=request.table,
                    arguments=dict(request.arguments),
                    fingerprint=fingerprint,
                    source=request.source,
                    created_ms=now_ms,
                    not_before_ms=request.not_before_ms,
                    estimated_seconds=request.estimated_seconds,
                    estimated_bytes=request.estimated_bytes,
                    estimated_cost=request.estimated_cost,
                    note=request.note,
                    figures=None if request.figures is None else dict(request.figures),
                    traceparent=request.traceparent,
                )
            )
        )
        return job_id


def _pairs(rows: Any) -> list[tuple[str, str | None]]:
    return [(str(job_id), table) for job_id, table in rows]


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns matches the full name of a table."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _same_table(first: str, second: str) -> bool:
    """Whether two jobs may work on one table: equal names, or a pattern that matches the other name."""
    if first == second:
        return True
    patterns = [not WILDCARDS.isdisjoint(name) for name in (first, second)]
    if all(patterns):
        # Two patterns may match the same tables, and telling exactly would gain little.
        return True
    return fnmatchcase(second, first) if patterns[0] else fnmatchcase(first, second)
