"""The Spark session of the service: started behind HTTP, watched, and started again when it ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from iceberg_compact_sql.redaction import masked_logger, redact

_log = masked_logger(__name__)
_CHECK_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 60.0


class Engine:
    """Holds the session. `state` is `starting`, `ok` or `failing`; `session` is None unless it is `ok`."""

    def __init__(
        self,
        start: Callable[[], Any],
        forget: Callable[[], None],
        *,
        lives: Callable[[Any], bool],
        on_ready: Callable[[Any], None],
    ) -> None:
        self._start = start
        self._lives = lives
        self._forget = forget
        self._on_ready = on_ready
        self._stopped = threading.Event()
        self._look = threading.Event()
        self.state = "starting"
        self.message = ""
        self.session: Any = None
        self.starts = 0
        self._thread = threading.Thread(target=self._watch, name="engine", daemon=True)

    def open(self) -> None:
        self._thread.start()

    def look_now(self) -> bool:
        """Ask the session whether it lives; returns true when it has ended. Used after a job failed."""
        session = self.session
        if session is not None and not self._lives(session):
            self._lost()
        return self.session is None

    def close(self) -> None:
        """Stop the session; called once."""
        self._stopped.set()
        self._look.set()
        session, self.session = self.session, None
        if session is not None:
            with contextlib.suppress(Exception):
                session.stop()

    def _watch(self) -> None:
        pause = 1.0
        while not self._stopped.is_set():
            if self.session is None:
                pause = 1.0 if self._started() else min(pause * 2, _LONGEST_PAUSE_SECONDS)
            elif not self._lives(self.session):
                self._lost()
                continue
            self._look.wait(_CHECK_SECONDS if self.session is not None else pause)

    def _started(self) -> bool:
        begun = time.monotonic()
        try:
            session = self._start()
            self._on_ready(session)
        except Exception as error:
            self.state, self.message = "failing", redact(error).split("\n\nJVM stacktrace")[0][:500]
            _log.error("Spark could not be started: %s", self.message)
            with contextlib.suppress(Exception):
                self._forget()
            return False
        self.session, self.state, self.message = session, "ok", ""
        self.starts += 1
        _log.info("Spark is ready after %.1f s", time.monotonic() - begun)
        if self._stopped.is_set():
            self.close()
        return True

    def _lost(self) -> None:
        _log.error("Spark has ended; it is started again")
        self.session, self.state, self.message = None, "failing", "Spark has ended; it is started again"
        with contextlib.suppress(Exception):
            self._forget()
