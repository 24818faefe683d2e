"""A job whose storage credentials are renewed while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.rewrite.task import RewriteJob

_log = masked_logger(__name__)
# Vended credentials are valid for at least 15 minutes.
RENEW_AFTER_S = 300.0


class RenewedJob:
    """A job with the current credentials of the storage: vended credentials expire before a long run ends."""

    def __init__(self, job: RewriteJob, renewed_io: Callable[[], Mapping[str, str]] | None) -> None:
        self._job = job
        self._renewed_io = renewed_io
        self._renewed_at = time.monotonic()

    def current(self) -> RewriteJob:
        """Return the job for tasks that start now. Keep the old credentials if new ones cannot be loaded."""
        if self._renewed_io is not None and time.monotonic() - self._renewed_at >= RENEW_AFTER_S:
            self._renewed_at = time.monotonic()
            try:
                self._job = replace(self._job, io_properties=self._renewed_io())
            except Exception as error:
                _log.warning("the storage credentials could not be renewed: %s", type(error).__name__)
        return self._job
