"""Limits how many requests to stores one run has in flight.

The limit belongs to a context (`contextvars`), like the observer of a run: `events.ThreadPool` gives it to the threads
of the run. Pools use it for their size, and clients that this package controls take a slot for each request.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
import threading
from collections.abc import Iterator

from iceberg_compact_sql.errors import InvalidArgumentError

DEFAULT_REQUESTS = 32
MOST_REQUESTS = 1000


class RequestLimit:
    """At most `requests` slots are taken at the same time; a slot is held for one request only."""

    def __init__(self, requests: int = DEFAULT_REQUESTS) -> None:
        self.requests = requests
        self._slots = threading.BoundedSemaphore(requests)

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Wait for a free slot and hold it while the block runs."""
        with self._slots:
            yield


_default = RequestLimit()
_limit: contextvars.ContextVar[RequestLimit | None] = contextvars.ContextVar("request_limit", default=None)


def request_limit() -> RequestLimit:
    """Return the limit of this context; without one, that of the process."""
    return _limit.get() or _default


@contextlib.contextmanager
def limited_requests(requests: int) -> Iterator[None]:
    """Limit the requests of the block; a block inside another with the same number shares its slots."""
    if request_limit().requests == requests:
        yield
        return
    token = _limit.set(RequestLimit(requests))
    try:
        yield
    finally:
        _limit.reset(token)


def requests_setting(name: str, text: str | None) -> int:
    """Read the setting `requests`: how many requests may be in flight.

    >>> requests_setting("requests", None), requests_setting("requests", " 8 ")
    (32, 8)
    """
    if text is None:
        return DEFAULT_REQUESTS
    # `int` alone also takes '1_0' and digits of other scripts.
    if not re.fullmatch(r"[0-9]{1,4}", text.strip()) or not 1 <= int(text) <= MOST_REQUESTS:
        raise InvalidArgumentError(
            f"setting {name} is {text!r} but must be a whole number from 1 to {MOST_REQUESTS}",
            value=text,
            hint="Give the number of requests to object stores that a run may have in flight in one process.",
        )
    return int(text)
