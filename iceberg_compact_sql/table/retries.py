"""Retries and waits of a commit, from the table's `commit.*` properties."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from iceberg_compact_sql.table.properties import lenient_number


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long to wait: `commit.retry.*` for attempts, `commit.status-check.*` for status checks."""

    max_retries: int
    min_wait_ms: int
    max_wait_ms: int
    total_ms: int

    @classmethod
    def of_retries(cls, properties: Mapping[str, str]) -> RetryPolicy:
        return cls._read(properties, "commit.retry", 4, 100, 60_000)

    @classmethod
    def of_status_checks(cls, properties: Mapping[str, str]) -> RetryPolicy:
        return cls._read(properties, "commit.status-check", 3, 1_000, 60_000)

    @classmethod
    def _read(
        cls, properties: Mapping[str, str], prefix: str, max_retries: int, min_wait: int, max_wait: int
    ) -> RetryPolicy:
        return cls(
            lenient_number(f"{prefix}.num-retries", max_retries).of(properties),
            lenient_number(f"{prefix}.min-wait-ms", min_wait).of(properties),
            lenient_number(f"{prefix}.max-wait-ms", max_wait).of(properties),
            lenient_number(f"{prefix}.total-timeout-ms", 1_800_000).of(properties),
        )

    def waits(self) -> Iterator[bool]:
        """Yield True before each further attempt, after a wait that doubles and is shortened at random.

        The jitter keeps two writers that collided once from colliding again.
        """
        end = time.monotonic() + self.total_ms / 1000
        for retry in range(self.max_retries):
            wait = min(self.max_wait_ms, self.min_wait_ms * 2**retry) / 1000 * random.uniform(0.5, 1.0)
            if time.monotonic() + wait > end:
                return
            time.sleep(wait)
            yield True
