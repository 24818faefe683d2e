"""Gives the connections of pyiceberg's catalogs a time limit: they have none of their own, or one of minutes."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from requests import Response, Session

from iceberg_compact_sql.storage.request_timeouts import timeouts_of

# Databases whose drivers have the argument `connect_timeout`.
_DATABASES = frozenset({"postgresql", "mysql", "mariadb"})
# The paths of the REST specification to which changes of tables are sent.
_COMMIT = re.compile(r"/tables/[^/]+$|/transactions/commit$")


def with_time_limit(session: Session, properties: Mapping[str, Any]) -> Session:
    """Make every request of a session end: a request is sent once and may take as long as all attempts together.

    A commit may take longer: after a timeout its outcome is unknown.
    """
    limits = timeouts_of(properties)
    send: Any = session.request

    def request(method: str, url: str, *arguments: Any, **options: Any) -> Response:
        is_commit = method.upper() == "POST" and _COMMIT.search(url.partition("?")[0]) is not None
        answer_seconds = limits.commit_seconds if is_commit else limits.patient_seconds
        options.setdefault("timeout", (limits.connect_seconds, answer_seconds))
        response: Response = send(method, url, *arguments, **options)
        return response

    session.request = request  # type: ignore[method-assign,assignment]
    return session


def require_connection(catalog: Any) -> None:
    """Raise if the database of a SQL catalog cannot be reached, and detect its schema again.

    pyiceberg takes an unreachable database for an empty one, and would use the newer schema for as long as it is open.
    """
    engine = getattr(catalog, "engine", None)
    if engine is not None and engine.dialect.name in _DATABASES:
        with engine.connect():
            pass
        catalog._init_catalog()


def _database(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0]


class _NoAdviceToMigrate(logging.Filter):
    """Drops pyiceberg's advice to migrate a database with a setting that a Spark catalog does not have."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "detected a v0 schema" not in str(record.msg)


logging.getLogger("pyiceberg.catalog.sql").addFilter(_NoAdviceToMigrate())


def with_limited_clients(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a catalog with limits for the clients that take them from there: databases and Glue."""
    limited = dict(properties)
    limits = timeouts_of(properties)
    uri = str(properties.get("uri", ""))
    if _database(uri) in _DATABASES and "connect_timeout=" not in uri:
        seconds = max(1, round(limits.connect_seconds))
        limited["uri"] = f"{uri}{'&' if '?' in uri else '?'}connect_timeout={seconds}"
    if _database(uri) in _DATABASES:
        # A connection that the server closed is replaced before it is used.
        limited.setdefault("pool_pre_ping", "true")
    if str(properties.get("type", "")).lower() == "glue":
        limited.setdefault("glue.max-retries", limits.attempts)
    return limited
