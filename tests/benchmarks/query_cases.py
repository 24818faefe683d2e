"""What compaction is for: how long DuckDB and Spark scan a table before, after ours and after Iceberg's."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from tests.benchmarks.compaction_cases import Bench
from tests.benchmarks.twins import data_files, data_mb

Answer = list[tuple[Any, ...]]
STATES = ("before", "ours", "iceberg")
SCAN = (
    "SELECT kind, count(*), sum(amount), max(url), min(session), avg(score) FROM {source} GROUP BY kind ORDER BY kind"
)
FILTER = "SELECT count(*), sum(amount) FROM {source} WHERE id BETWEEN 1000 AND 3000"


@dataclass(frozen=True)
class QueryTime:
    """The middle of some runs of one query by one engine on one state of a table."""

    case: str
    engine: str
    query: str
    state: str
    seconds: float
    files: int
    size_mb: float


def query_times(bench: Bench, case: str) -> Iterator[QueryTime]:
    """Every engine and query on the three states that a compaction case left; answers must be the same."""
    engines: tuple[tuple[str, Callable[[Bench, str, str], Answer]], ...] = (("duckdb", _duckdb), ("spark", _spark))
    for engine, ask in engines:
        for query, text in (("scan", SCAN), ("filter", FILTER)):
            seconds: dict[str, list[float]] = {state: [] for state in STATES}
            answers: list[Answer] = []
            bench.say(f"{case}: {engine} {query}")
            # The states take turns, so that none of them has the warm engine for itself.
            for _ in range(2 if bench.quick else 3):
                for state in STATES:
                    start = time.perf_counter()
                    answer = ask(bench, f"db.{case}_{state}", text)
                    seconds[state].append(time.perf_counter() - start)
                    answers.append(answer)
            if not all(_same(answer, answers[0]) for answer in answers):
                raise SystemExit(f"{engine} gets different answers from the three states of {case}: {answers[:3]}")
            for state in STATES:
                identifier = f"db.{case}_{state}"
                files = len(data_files(bench.lake, identifier))
                middle = round(statistics.median(seconds[state][1:]), 3)
                yield QueryTime(case, engine, query, state, middle, files, data_mb(bench.lake, identifier))


def _duckdb(bench: Bench, identifier: str, text: str) -> Answer:
    paths = [str(path) for path in data_files(bench.lake, identifier)]
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        return connection.execute(text.format(source=f"read_parquet({paths!r})")).fetchall()


def _spark(bench: Bench, identifier: str, text: str) -> Answer:
    return [tuple(row) for row in bench.lake.sql(text.format(source=bench.lake.full(identifier))).collect()]


def _same(one: Answer, other: Answer) -> bool:
    """Equal but for the last digits of sums of floats, which depend on the order of the rows."""
    cells = [cell for row in one for cell in row], [cell for row in other for cell in row]
    return len(cells[0]) == len(cells[1]) and all(
        math.isclose(a, b, rel_tol=1e-9) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(*cells, strict=True)
    )
