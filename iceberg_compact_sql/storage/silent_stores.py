"""Remembers which stores have stopped answering, so that one error does not wait for the timeout of every request."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Hashable, Iterator

# For this time after a timeout, nothing is asked of a silent store.
_PAUSE_SECONDS = 10.0


class SilentStores:
    """The stores that did not answer a moment ago, by any key that tells them apart.

    A store is silent if a request waited for its whole timeout while no other request was answered. One slow request
    among others that are answered does not count.
    """

    def __init__(self) -> None:
        self._answered: dict[Hashable, float] = {}
        self._silent: dict[Hashable, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def answered(self, store: Hashable) -> None:
        with self._lock:
            self._answered[store] = time.monotonic()
            self._silent.pop(store, None)

    def failed(self, store: Hashable, began: float, answer_seconds: float, error: BaseException) -> bool:
        """Record an operation that failed; return whether the store is silent now.

        `began` is the start of the operation in `time.monotonic`.
        """
        now = time.monotonic()
        with self._lock:
            # A cause with a response is an answer of the server, such as 503.
            unanswered = getattr(error.__cause__, "response", None) is None
            if unanswered and now - began >= answer_seconds and self._answered.get(store, 0.0) < began:
                self._silent[store] = (now + _PAUSE_SECONDS, str(error))
            return now < self._silent.get(store, (0.0, ""))[0]

    def require_answering(self, store: Hashable) -> None:
        """Raise OSError for a store that did not answer a moment ago."""
        with self._lock:
            until, reason = self._silent.get(store, (0.0, ""))
        if time.monotonic() < until:
            raise OSError(f"not tried, because the store did not answer a moment ago: {reason}")


_silent: contextvars.ContextVar[SilentStores | None] = contextvars.ContextVar("silent_stores", default=None)


def silent_stores() -> SilentStores:
    """Return the silent stores of this run; outside a run nothing is remembered."""
    return _silent.get() or SilentStores()


@contextlib.contextmanager
def remembering_silence() -> Iterator[None]:
    """Remember silent stores while the block runs: in the next run the store may be back.

    A block inside another one shares what it knows. The same store is reached through several FileIOs in one run.
    """
    if _silent.get() is not None:
        yield
        return
    token = _silent.set(SilentStores())
    try:
        yield
    finally:
        _silent.reset(token)
