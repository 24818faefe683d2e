"""A time limit for work that cannot be interrupted: it runs in a thread, which is left behind when the time is over."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from iceberg_compact_sql.storage.protocol import UnansweredError
from iceberg_compact_sql.storage.request_limit import request_limit

T = TypeVar("T")
# Set, in the context of the work, when its caller has stopped waiting.
_given_up: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("given_up", default=None)


def within(seconds: float, path: str, work: Callable[[], T]) -> T:
    """Return the result of `work`. It takes a slot of the run's limit of requests.

    Raises UnansweredError if it takes longer. A request that `work` has sent may still be carried out then. Before the
    next one, `work` calls `require_waiting`.
    """
    outcome: list[T] = []
    failure: list[BaseException] = []
    done, given_up = threading.Event(), threading.Event()

    def run() -> None:
        _given_up.set(given_up)
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    context = contextvars.copy_context()
    with request_limit().slot():
        # A daemon: a thread that waits for a dead server must not keep the process alive.
        threading.Thread(target=context.run, args=(run,), name="bounded-request", daemon=True).start()
        if not done.wait(seconds):
            given_up.set()
            raise UnansweredError(f"{path}: the store did not answer within {seconds:g} s")
    if failure:
        raise failure[0]
    return outcome[0]


def require_waiting(path: str) -> None:
    """Raise OSError if the caller has stopped waiting for this work: its next step must not surprise later work."""
    given_up = _given_up.get()
    if given_up is not None and given_up.is_set():
        raise OSError(f"{path}: not continued, because the store answered too late")
