"""The state of the service in a database: jobs, idempotency keys, schedules, the audit, and the lease of the process.

SQLite runs in WAL mode with full synchronisation: what was acknowledged survives kill -9 and a power cut.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from iceberg_compact_sql.errors import IcebergCompactError, MissingDependencyError
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.service.jobs import FINAL, Job, Status

VERSION = 1
_METADATA = sa.MetaData()
JOBS = sa.Table(
    "ics_jobs",
    _METADATA,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("job_id", sa.String(36), nullable=False, unique=True),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("procedure", sa.String(64), nullable=False),
    sa.Column("table_name", sa.Text),
    sa.Column("arguments", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("started_ms", sa.BigInteger),
    sa.Column("finished_ms", sa.BigInteger),
    sa.Column("not_before_ms", sa.BigInteger),
    sa.Column("run_id", sa.String(64)),
    sa.Column("owner", sa.String(200)),
    sa.Column("outcome", sa.String(16)),
    sa.Column("estimated_seconds", sa.Float),
    sa.Column("estimated_bytes", sa.BigInteger),
    sa.Column("estimated_cost", sa.Float),
    # Texts of JSON; the columns above are those that queries use.
    sa.Column("progress", sa.Text),
    sa.Column("result", sa.Text),
    sa.Column("result_truncated", sa.Boolean, nullable=False, default=False),
    sa.Column("error", sa.Text),
    sa.Column("committed", sa.Text),
    sa.Column("steps", sa.Text),
    sa.Column("note", sa.Text),
    sa.Column("figures", sa.Text),
    sa.Column("traceparent", sa.Text),
)
sa.Index("ics_jobs_status", JOBS.c.status, JOBS.c.number)
sa.Index("ics_jobs_table", JOBS.c.table_name, JOBS.c.number)
sa.Index("ics_jobs_waiting", JOBS.c.fingerprint, JOBS.c.status)
KEYS = sa.Table(
    "ics_idempotency",
    _METADATA,
    sa.Column("key", sa.String(300), primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("job_id", sa.String(36), nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
)
AUDIT = sa.Table(
    "ics_audit",
    _METADATA,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("action", sa.String(64), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("address", sa.Text),
)
SCHEDULES = sa.Table(
    "ics_schedules",
    _METADATA,
    sa.Column("name", sa.String(300), primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
)
LEASE = sa.Table(
    "ics_lease",
    _METADATA,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.String(200), nullable=False),
    sa.Column("until_ms", sa.BigInteger, nullable=False),
)
FORMAT = sa.Table("ics_version", _METADATA, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
_JSON = ("arguments", "progress", "result", "error", "committed", "steps", "figures")
_HIDDEN = ("number", "fingerprint", "owner", "estimated_bytes", "estimated_cost")
_COLUMNS = tuple(column for column in JOBS.c if column.name not in _HIDDEN)


class StateError(IcebergCompactError):
    """The state database cannot be used."""

    condition = "ICEBERG_COMPACT_STATE"


class Store:
    """The state database. Every method is one transaction, and safe to call from any thread."""

    def __init__(self, url: str) -> None:
        try:
            self.engine = _open_engine(url)
            with self.transaction() as connection:
                _METADATA.create_all(connection)
                found = connection.execute(sa.select(FORMAT.c.version)).scalar()
                if found is None:
                    connection.execute(FORMAT.insert().values(version=VERSION))
        except ImportError as error:
            raise MissingDependencyError(
                f"the state database needs {error.name}, which is not installed",
                argument="state.url",
                hint="Run: pip install 'iceberg-compact-sql[postgres]'",
            ) from None
        except sa.exc.SQLAlchemyError as error:
            message = f"the state database cannot be opened: {redact(error.args[0] if error.args else error)}"
            raise StateError(message, argument="state.url", hint="Check state.url and state.folder.") from None
        if found not in (None, VERSION):
            self.engine.dispose()
            raise StateError(
                f"the state database has format {found}, and this version reads format {VERSION}",
                argument="state.url",
                hint="Use the version of the package that wrote it, or another database.",
            )

    @property
    def shared(self) -> bool:
        """Whether processes of several machines can use the database: a standby then waits for the lease."""
        return self.engine.dialect.name != "sqlite"

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction that writes; on SQLite it takes the write lock at once, so that it cannot fail later."""
        with _writing(self.engine), self.engine.begin() as connection:
            yield connection

    def close(self) -> None:
        self.engine.dispose()

    def job(self, job_id: str) -> Job | None:
        """The job of this id; None if there is none."""
        with self.engine.connect() as connection:
            row = connection.execute(sa.select(*_COLUMNS).where(JOBS.c.job_id == job_id)).mappings().first()
        return None if row is None else job_of(row)

    def jobs(
        self,
        *,
        statuses: Sequence[str] = (),
        table: str | None = None,
        tables: Sequence[str] | None = None,
        procedure: str | None = None,
        source: str | None = None,
        idle: bool = True,
        limit: int = 50,
        before: int | None = None,
    ) -> tuple[list[Job], int | None]:
        """Jobs that match, newest first, and the cursor of the next page; None at the end.

        `tables` are patterns (`*`, `?`) of which one must match. With `idle` false, runs that found nothing to do are
        left out.
        """
        query = sa.select(JOBS.c.number, *_COLUMNS).order_by(JOBS.c.number.desc()).limit(limit + 1)
        conditions: list[Any] = []
        if statuses:
            conditions.append(JOBS.c.status.in_(statuses))
        if table is not None:
            conditions.append(JOBS.c.table_name == table)
        if tables is not None:
            conditions.append(sa.or_(sa.false(), *(_like(pattern) for pattern in tables)))
        if procedure is not None:
            conditions.append(JOBS.c.procedure == procedure)
        if source is not None:
            conditions.append(JOBS.c.source == source)
        if not idle:
            conditions.append(sa.or_(JOBS.c.outcome.is_(None), JOBS.c.outcome != "nothing_to_do"))
        if before is not None:
            conditions.append(JOBS.c.number < before)
        with self.engine.connect() as connection:
            rows = connection.execute(query.where(*conditions)).mappings().all()
        following = rows[limit - 1]["number"] if len(rows) > limit else None
        return [job_of(row) for row in rows[:limit]], following

    def counts(self) -> dict[str, int]:
        """The number of jobs by status."""
        with self.engine.connect() as connection:
            rows = connection.execute(sa.select(JOBS.c.status, sa.func.count()).group_by(JOBS.c.status))
            return {str(row[0]): int(row[1]) for row in rows}

    def unfinished(self) -> list[tuple[Status, str, dict[str, Any]]]:
        """Status, procedure and arguments of the jobs that wait or run."""
        over = [status.value for status in FINAL]
        query = sa.select(JOBS.c.status, JOBS.c.procedure, JOBS.c.arguments).where(JOBS.c.status.not_in(over))
        with self.engine.connect() as connection:
            return [(Status(row[0]), str(row[1]), json.loads(row[2])) for row in connection.execute(query)]

    def jobs_by_day(self, since_ms: int) -> list[tuple[int, str, int]]:
        """Day (from the epoch), status and count of the jobs that were created since."""
        day = sa.cast(JOBS.c.created_ms / 86_400_000, sa.Integer).label("day")
        query = sa.select(day, JOBS.c.status, sa.func.count()).where(JOBS.c.created_ms >= since_ms)
        with self.engine.connect() as connection:
            return [(int(row[0]), row[1], row[2]) for row in connection.execute(query.group_by(day, JOBS.c.status))]

    def audit(self, at_ms: int, who: str, action: str, detail: Mapping[str, Any], address: str | None = None) -> None:
        """Record a change that somebody asked for, or that a schedule made."""
        with self.transaction() as connection:
            add_audit(connection, at_ms, who, action, detail, address)

    def audit_entries(self, limit: int) -> list[dict[str, Any]]:
        """The newest entries of the audit, newest first."""
        with self.engine.connect() as connection:
            rows = connection.execute(AUDIT.select().order_by(AUDIT.c.number.desc()).limit(limit)).mappings().all()
        return [{**row, "detail": json.loads(row["detail"])} for row in rows]

    def schedule_states(self) -> dict[str, dict[str, Any]]:
        """What is remembered of each schedule by name: paused, last run, trigger state."""
        with self.engine.connect() as connection:
            return {row.name: json.loads(row.state) for row in connection.execute(SCHEDULES.select())}

    def save_schedule(self, name: str, state: Mapping[str, Any]) -> None:
        """Remember the state of a schedule."""
        text = json.dumps(state)
        with self.transaction() as connection:
            changed = connection.execute(SCHEDULES.update().where(SCHEDULES.c.name == name).values(state=text))
            if not changed.rowcount:
                connection.execute(SCHEDULES.insert().values(name=name, state=text))

    def delete_old(self, finished_before_ms: int, keys_before_ms: int) -> int:
        """Delete jobs that finished before a moment, the audit of that time, and old idempotency keys."""
        with self.transaction() as connection:
            old = sa.and_(JOBS.c.finished_ms < finished_before_ms, JOBS.c.status.in_([s.value for s in FINAL]))
            count = connection.execute(JOBS.delete().where(old)).rowcount
            connection.execute(AUDIT.delete().where(AUDIT.c.at_ms < finished_before_ms))
            connection.execute(KEYS.delete().where(KEYS.c.created_ms < keys_before_ms))
        return count


def add_audit(
    connection: sa.Connection, at_ms: int, who: str, action: str, detail: Mapping[str, Any], address: str | None = None
) -> None:
    """Record an entry of the audit in a transaction of the caller."""
    text = json.dumps(detail, default=str)
    connection.execute(AUDIT.insert().values(at_ms=at_ms, who=who, action=action, detail=text, address=address))


def job_of(row: sa.RowMapping) -> Job:
    """The job of a row of the database."""
    values: dict[str, Any] = {str(name): row[name] for name in row}
    for name in ("number", "table_name", "status"):
        values.pop(name, None)
    for name in _JSON:
        values[name] = None if values[name] is None else json.loads(values[name])
    return Job(status=Status(row["status"]), table=row["table_name"], **values)


def columns_of(**values: Any) -> dict[str, Any]:
    """Values of a job's columns with the JSON ones as text."""
    return {name: json.dumps(value) if name in _JSON and value is not None else value for name, value in values.items()}


def _like(pattern: str) -> Any:
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return JOBS.c.table_name.like(escaped.replace("*", "%").replace("?", "_"), escape="\\")


_locks: dict[int, threading.RLock] = {}


@contextmanager
def _writing(engine: sa.Engine) -> Iterator[None]:
    """One writer at a time in this process: SQLite has one, and waiting here is cheaper than its busy loop."""
    with _locks.setdefault(id(engine), threading.RLock()):
        yield


def _open_engine(url: str) -> sa.Engine:
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_pre_ping=True)
    engine = sa.create_engine(url, connect_args={"timeout": 30})

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        # The driver's own transactions begin late and would let a second writer fail in the middle.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if _locks_held(engine) else "BEGIN")

    return engine


def _locks_held(engine: sa.Engine) -> bool:
    """Whether this thread is inside `transaction`: only then the write lock of SQLite is taken."""
    lock = _locks.get(id(engine))
    return lock is not None and lock._is_owned()  # type: ignore[attr-defined]
