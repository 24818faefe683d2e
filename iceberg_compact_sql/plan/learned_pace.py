"""Learns from past runs how long a rewrite takes here, compared with the constants of `plan/cost.py`. Pure.

A past run has the seconds that it took and the seconds that the constants give for its bytes and files. The median of
the quotients is the pace: 2.0 means twice as long as the constants say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

# The newest runs count: machines, stores and data change.
LAST_RUNS = 20
_FEWEST_OWN_RUNS = 3
# A plan cannot tell spliced from encoded: splicing depends on the pages of the files.
_LEARNS_FROM = {"copied": ("copied",), "encoded": ("encoded", "spliced"), "sorted": ("sorted",)}


@dataclass(frozen=True, slots=True)
class PastRun:
    """A compaction that succeeded: how most of it was done, its seconds, and the seconds by the constants."""

    way: str
    seconds: float
    base_seconds: float


@dataclass(frozen=True, slots=True)
class Pace:
    """The factor on the seconds of the constants, and where it comes from."""

    factor: float = 1.0
    source: str = "constants"


@dataclass(frozen=True, slots=True)
class LearnedPaces:
    """The past runs of a table and of other tables, newest first.

    >>> runs = [PastRun("encoded", 3.0, 1.0), PastRun("encoded", 2.0, 1.0), PastRun("encoded", 4.0, 2.0)]
    >>> LearnedPaces(own=runs).of("encoded")
    Pace(factor=2.0, source='median of 3 runs of this table')
    >>> LearnedPaces(own=runs[:2], others=runs).of("encoded").source
    'median of 3 runs of other tables'
    """

    own: Sequence[PastRun] = ()
    others: Sequence[PastRun] = ()

    def of(self, way: str) -> Pace:
        """Return the pace of a way: from this table's runs, from others' where it has fewer than 3, else constant."""
        own = _factors(self.own, way)
        if len(own) >= _FEWEST_OWN_RUNS:
            return Pace(median(own), f"median of {len(own)} runs of this table")
        others = _factors(self.others, way)
        if others:
            runs = "1 run" if len(others) == 1 else f"{len(others)} runs"
            return Pace(median(others), f"median of {runs} of other tables")
        return Pace()


NOTHING_LEARNED = LearnedPaces()


def planned_way(strategy: str, data_bytes: int, copied_bytes: int) -> str:
    """Return how most bytes of a rewrite are expected to be moved."""
    if strategy != "binpack":
        return "sorted"
    return "copied" if copied_bytes * 2 >= data_bytes > 0 else "encoded"


def _factors(runs: Iterable[PastRun], way: str) -> list[float]:
    ways = _LEARNS_FROM[way]
    matching = [run.seconds / run.base_seconds for run in runs if run.way in ways and run.base_seconds > 0]
    return matching[:LAST_RUNS]
