"""Gives the connections of pyiceberg's catalogs a time limit: they have none of their own, or one of minutes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from requests import Session

from iceberg_compact_sql.storage.request_timeouts import timeouts_of

# Databases whose drivers have the argument `connect_timeout`.
_DATABASES = frozenset({"postgresql", "mysql", "mariadb"})


def with_time_limit(session: Session, properties: Mapping[str, Any]) -> Session:
    """Make every request of a session end: a request is sent once and may take as long as all attempts together."""
    limits = timeouts_of(properties)
    send: Any = session.request
    session.request = functools.partial(send, timeout=(limits.connect_seconds, limits.patient_seconds))  # type: ignore[method-assign]
    return session


def with_limited_clients(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a catalog with limits for the clients that take them from there: databases and Glue."""
    limited = dict(properties)
    limits = timeouts_of(properties)
    uri = str(properties.get("uri", ""))
    if uri.partition(":")[0].partition("+")[0] in _DATABASES and "connect_timeout=" not in uri:
        seconds = max(1, round(limits.connect_seconds))
        limited["uri"] = f"{uri}{'&' if '?' in uri else '?'}connect_timeout={seconds}"
    if str(properties.get("type", "")).lower() == "glue":
        limited.setdefault("glue.max-retries", limits.attempts)
    return limited
