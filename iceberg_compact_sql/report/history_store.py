"""The history database: one row for each action that changed a table or failed, in SQLite or PostgreSQL.

    record(url, entry)              write a row
    read(url, table="lake.db.t")    the newest rows first

The setting `spark.iceberg_compact_sql.history` names the database by a SQLAlchemy URL.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError, MissingDependencyError
from iceberg_compact_sql.redaction import mask_remembered, redact, remember_secrets
from iceberg_compact_sql.report.action_outcome import ActionOutcome

SETTING = "spark.iceberg_compact_sql.history"
_DRIVERS = ("sqlite", "postgresql+psycopg")
_RULE = "Write sqlite:///folder/history.db or postgresql+psycopg://user:password@host/database."
# Another process may hold the one write lock of a SQLite file.
_BUSY_SECONDS = 30
_LONGEST_ERROR = 4000


@dataclass(frozen=True, kw_only=True)
class HistoryEntry(ActionOutcome):
    """An ended action, with the run that it belongs to, who asked for it, and the arguments without credentials."""

    run_id: str
    user: str | None = None
    arguments: Mapping[str, Any] | None = None

    @property
    def finished_ms(self) -> int:
        return self.started_ms + self.elapsed_ms


_metadata = sa.MetaData()
_history = sa.Table(
    "ics_history",
    _metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(64), nullable=False, index=True),
    sa.Column("procedure", sa.String(64), nullable=False),
    sa.Column("table", sa.String(2000), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("started_ms", sa.BigInteger, nullable=False),
    sa.Column("elapsed_ms", sa.BigInteger, nullable=False),
    sa.Column("finished_ms", sa.BigInteger, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("strategy", sa.String(32)),
    # JSON text: a snapshot id does not fit into the numbers of every JSON reader.
    sa.Column("snapshot_ids", sa.Text, nullable=False),
    *(
        sa.Column(name, sa.BigInteger, nullable=False)
        for name in (
            "removed_data_files",
            "added_data_files",
            "removed_delete_files",
            "added_delete_files",
            "removed_bytes",
            "added_bytes",
            "rows",
            "expired_snapshots",
            "deleted_files",
            "freed_bytes",
        )
    ),
    *(sa.Column(name, sa.Float(53)) for name in ("cost", "estimated_seconds", "estimated_cost", "base_seconds")),
    sa.Column("way", sa.String(16)),
    sa.Column("user", sa.String(256)),
    sa.Column("arguments", sa.Text),
    sa.Index("ics_history_table", "table", "finished_ms"),
)
_FIELDS = tuple(field.name for field in fields(HistoryEntry))


def require_writable(url: str) -> None:
    """Raise when the database cannot be opened or written to; creates its tables where they are missing."""
    with _connected(url, "written to") as connection:
        _create_tables(connection)
        # A row that is rolled back shows read-only files, standby servers and missing rights alike.
        probe = HistoryEntry(procedure="", table="", status="", started_ms=0, elapsed_ms=0, run_id="")
        connection.execute(sa.insert(_history), _row(probe))
        connection.rollback()


def record(url: str, entry: HistoryEntry) -> None:
    """Write one entry and commit it; raises an IcebergCompactError when that fails."""
    with _connected(url, "written to") as connection:
        _create_tables(connection)
        connection.execute(sa.insert(_history), _row(entry))
        connection.commit()


def read(
    url: str,
    *,
    table: str | None = None,
    run_id: str | None = None,
    procedure: str | None = None,
    status: str | None = None,
    other_than_table: str | None = None,
    limit: int | None = 100,
) -> list[HistoryEntry]:
    """Return the entries that match, newest first; nothing is created. A database without our tables has none."""
    file = _sqlite_file(_parsed(url))
    if file is not None and not file.exists():
        return []
    wanted = {"table": table, "run_id": run_id, "procedure": procedure, "status": status}
    query = sa.select(*(_history.c[name] for name in _FIELDS))
    for name, value in wanted.items():
        if value is not None:
            query = query.where(_history.c[name] == value)
    if other_than_table is not None:
        query = query.where(_history.c.table != other_than_table)
    query = query.order_by(_history.c.finished_ms.desc(), _history.c.id.desc()).limit(limit)
    with _connected(url, "read") as connection:
        if not sa.inspect(connection).has_table(_history.name):
            return []
        return [_entry(row._asdict()) for row in connection.execute(query)]


def _row(entry: HistoryEntry) -> dict[str, Any]:
    row = asdict(entry) | {"finished_ms": entry.finished_ms}
    row["snapshot_ids"] = json.dumps(list(entry.snapshot_ids))
    row["arguments"] = None if entry.arguments is None else mask_remembered(json.dumps(entry.arguments, default=str))
    if entry.error is not None:
        row["error"] = mask_remembered(entry.error)[:_LONGEST_ERROR]
    return row


def _entry(row: Mapping[str, Any]) -> HistoryEntry:
    values = dict(row)
    values["snapshot_ids"] = tuple(json.loads(values["snapshot_ids"]))
    values["arguments"] = None if values["arguments"] is None else json.loads(values["arguments"])
    return HistoryEntry(**values)


def _parsed(url: str) -> sa.URL:
    remember_secrets({"history.uri": url})
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is not None and parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed is None or parsed.drivername not in _DRIVERS:
        shown = redact(url)
        raise InvalidArgumentError(f"setting {SETTING} is {shown!r}, which is not a database URL", hint=_RULE)
    remember_secrets({"history.password": parsed.password or ""})
    return parsed


def _sqlite_file(url: sa.URL) -> Path | None:
    """Return the file of a SQLite database; None for other databases and for URIs, which have rules of their own."""
    name = url.database or ""
    if not url.drivername.startswith("sqlite") or name in ("", ":memory:") or name.startswith("file:"):
        return None
    return Path(name)


@contextlib.contextmanager
def _connected(url: str, purpose: str) -> Iterator[sa.Connection]:
    """Open a connection for the block; errors of the driver become one sentence without credentials."""
    parsed = _parsed(url)
    shown = parsed.render_as_string(hide_password=True)
    file = _sqlite_file(parsed)
    if parsed.drivername == "sqlite" and file is None and (parsed.database or ":memory:") == ":memory:":
        raise InvalidArgumentError(f"setting {SETTING} is {shown!r}, which keeps nothing", hint=_RULE)
    if file is not None and not file.absolute().parent.is_dir():
        raise InvalidArgumentError(
            f"setting {SETTING} is {shown!r}, and the folder {str(file.parent)!r} does not exist",
            hint="Create the folder, or name another file.",
        )
    waiting = {"timeout": _BUSY_SECONDS} if parsed.drivername == "sqlite" else {"connect_timeout": _BUSY_SECONDS}
    try:
        # No pool: a connection that is kept would outlive a restart of the server, and a fork.
        engine = sa.create_engine(parsed, poolclass=sa.NullPool, connect_args=waiting)
    except (ImportError, NoSuchModuleError):
        raise MissingDependencyError(
            f"setting {SETTING} is {shown!r}, which needs psycopg, and it is not installed",
            hint="Run: pip install 'iceberg-compact-sql[postgres]'",
        ) from None
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        reason = " ".join(redact(error.orig).split())
        raise IcebergCompactError(
            f"the history database {shown} cannot be {purpose}: {reason}",
            hint=f"Correct {SETTING}, or unset it to work without a history.",
        ) from None
    finally:
        engine.dispose()


def _create_tables(connection: sa.Connection) -> None:
    if sa.inspect(connection).has_table(_history.name):
        return
    try:
        _metadata.create_all(connection)
        connection.commit()
    except DBAPIError:
        connection.rollback()
        # Another process created them at the same moment, or it is not allowed.
        if not sa.inspect(connection).has_table(_history.name):
            raise
