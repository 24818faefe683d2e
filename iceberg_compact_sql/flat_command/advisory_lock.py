"""A lock on a table in PostgreSQL, which jobs and writers of the table can share.

Its key is `hashtextextended('<namespace>.<table>', 0)`: a writer takes the same lock with

    SELECT pg_advisory_lock(hashtextextended('db.events', 0));

The lock belongs to the connection: PostgreSQL frees it when the process dies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from iceberg_compact_sql.errors import IcebergCompactError, MissingDependencyError
from iceberg_compact_sql.events import listening
from iceberg_compact_sql.redaction import redact, remember_secrets

_CONNECT_SECONDS = 30
_WAIT = "1h"
# The last events before something is changed that cannot be taken back.
_BEFORE_CHANGES = frozenset({"compact.committing", "expire.validate", "orphans.delete"})
_KEY = "hashtextextended(%s, 0)"


class TableLocks:
    """Locks on tables in one database. Raises on creation when the database cannot be used for locks."""

    def __init__(self, dsn: str) -> None:
        remember_secrets({"postgres.dsn": dsn, "postgres.password": _password(dsn)})
        self._dsn = dsn.replace("postgresql+psycopg://", "postgresql://", 1)
        with self._connected() as connection:
            standby, read_only = connection.execute(
                "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"
            ).fetchone()
        if standby or read_only:
            raise IcebergCompactError(
                "postgres.dsn names a read-only server (a standby), which cannot hold the lock; nothing was done",
                hint="Name the primary server.",
            )

    @contextlib.contextmanager
    def held(self, table: str) -> Iterator[None]:
        """Hold the lock of a table (`namespace.table`) while the block runs; wait for it up to an hour."""
        with self._connected() as connection:
            try:
                connection.execute(f"SET lock_timeout = '{_WAIT}'")
                connection.execute(f"SELECT pg_advisory_lock({_KEY})", (table,))
            except Exception as error:
                raise IcebergCompactError(
                    f"the lock of {table} was not free within {_WAIT}: {_text(error)}",
                    hint="Another job or writer holds it: see pg_locks. Nothing was done.",
                ) from None

            def check(event: str, facts: Mapping[str, Any]) -> None:
                if event in _BEFORE_CHANGES:
                    self._require_held(connection, table)

            with listening(check):
                yield

    @staticmethod
    def _require_held(connection: Any, table: str) -> None:
        """Raise when the connection is lost: PostgreSQL has freed the lock then."""
        try:
            connection.execute("SELECT 1")
        except Exception as error:
            raise IcebergCompactError(
                f"the lock of {table} is lost, because the connection to PostgreSQL is: {_text(error)}",
                hint="What was committed before stays. Run it again.",
            ) from None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            # Imported late: it is an extra.
            import psycopg
        except ImportError:
            raise MissingDependencyError(
                "postgres.dsn needs psycopg, which is not installed",
                hint="Run: pip install 'iceberg-compact-sql[postgres]'",
            ) from None
        try:
            connection = psycopg.connect(self._dsn, autocommit=True, connect_timeout=_CONNECT_SECONDS)
        except psycopg.Error as error:
            raise IcebergCompactError(
                f"the database of postgres.dsn cannot be reached: {_text(error)}",
                hint="Check postgres.dsn and that the server is up. Nothing was done.",
            ) from None
        try:
            yield connection
        finally:
            connection.close()


def _password(dsn: str) -> str:
    """Return the password of a URL or of `key=value` text; empty where there is none."""
    if "://" in dsn:
        return dsn.partition("://")[2].rpartition("@")[0].partition(":")[2]
    words = (word.partition("=") for word in dsn.split())
    return next((value for key, _, value in words if key == "password"), "")


def _text(error: Exception) -> str:
    return " ".join(redact(error).split())
