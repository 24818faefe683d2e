"""How often a commit is tried, and how long it is waited for: the table's own `commit.*` properties."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long to wait: `commit.retry.*` for tries, `commit.status-check.*` for looking again."""

    times: int
    min_wait_ms: int
    max_wait_ms: int
    total_ms: int

    @classmethod
    def of_retries(cls, properties: Mapping[str, str]) -> Patience:
        return cls._read(properties, "commit.retry", 4, 100, 60_000)

    @classmethod
    def of_status_checks(cls, properties: Mapping[str, str]) -> Patience:
        return cls._read(properties, "commit.status-check", 3, 1_000, 60_000)

    @classmethod
    def _read(cls, properties: Mapping[str, str], prefix: str, times: int, min_wait: int, max_wait: int) -> Patience:
        def number(name: str, default: int) -> int:
            text = properties.get(f"{prefix}.{name}", "")
            return int(text) if text.isdigit() else default

        return cls(
            number("num-retries", times),
            number("min-wait-ms", min_wait),
            number("max-wait-ms", max_wait),
            number("total-timeout-ms", 1_800_000),
        )

    def waits(self) -> Iterator[bool]:
        """Yields True once before each further try, after a wait that doubles and is shortened at random.

        The jitter keeps two writers that collided once from colliding again.
        """
        end = time.monotonic() + self.total_ms / 1000
        for turn in range(self.times):
            wait = min(self.max_wait_ms, self.min_wait_ms * 2**turn) / 1000 * random.uniform(0.5, 1.0)
            if time.monotonic() + wait > end:
                return
            time.sleep(wait)
            yield True
