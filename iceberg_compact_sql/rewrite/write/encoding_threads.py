"""Threads that encode for one task, and end with it."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from iceberg_compact_sql.events import ThreadPool
from iceberg_compact_sql.rewrite.task import RewriteJob

T = TypeVar("T", bound="EncodingThreads")


class EncodingThreads:
    """The base of what encodes in threads: `_pool` is None for a job with one thread. Use it in a `with` statement."""

    def __init__(self, job: RewriteJob, name: str) -> None:
        self._pool = ThreadPool(job.threads, name) if job.threads > 1 else None

    def close(self) -> None:
        """Wait for running work and drop the rest."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
