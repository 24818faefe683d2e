"""The simulation: today's files exactly as counting rows would, and predictions near the truth."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.queries.candidates import Asked, Layout, TableSize, Workload, evaluate, layouts, ranked
from iceberg_compact_sql.plan.queries.filters import FilterParser
from iceberg_compact_sql.plan.queries.simulate import Sample, bloom_share, bounds_of_files, meets
from iceberg_compact_sql.rewrite.clustering.curves import hilbert

PARSER = FilterParser(["a", "b", "s"])
SIZE = TableSize(files=64, data_bytes=64 << 30)


@pytest.mark.parametrize("seed", range(20))
def test_todays_files_are_those_whose_bounds_allow_a_row(seed: int) -> None:
    draw = random.Random(seed)
    files = [
        None if draw.random() < 0.1 else tuple(sorted((draw.randrange(20), draw.randrange(20)))) for _ in range(30)
    ]
    bounds, scales = bounds_of_files({"a": files})
    value = draw.randrange(-2, 22)
    holds: dict[str, Any] = {
        f"a = {value}": lambda low, high: low <= value <= high,
        f"a < {value}": lambda low, high: low < value,
        f"a <= {value}": lambda low, high: low <= value,
        f"a > {value}": lambda low, high: high > value,
        f"a >= {value}": lambda low, high: high >= value,
        f"a IN ({value}, {value + 3})": lambda low, high: low <= value <= high or low <= value + 3 <= high,
        "a = 'text'": lambda low, high: True,
        "a IS NULL": lambda low, high: True,
    }
    for text, rule in holds.items():
        expected = [pair is None or rule(*pair) for pair in files]
        assert meets(PARSER.parse(text), bounds, scales, len(files)).tolist() == expected, text


def test_prefixes_of_strings() -> None:
    bounds, scales = bounds_of_files({"s": [("a", "b"), ("ba", "bz"), ("c", "d")]})
    assert meets(PARSER.parse("s LIKE 'b%'"), bounds, scales, 3).tolist() == [True, True, False]


def workload(columns: dict[str, np.ndarray], seed: int = 1) -> Workload:
    draw = np.random.default_rng(seed)
    rows = draw.integers(0, len(columns["a"]), 60)
    asked = [Asked(PARSER.parse(f"a = {columns['a'][row]}"), 1) for row in rows[:30]]
    width = 10**10
    asked += [Asked(PARSER.parse(f"b >= {columns['b'][row]}, b < {columns['b'][row] + width}")) for row in rows[30:]]
    return Workload(asked=asked)


@pytest.mark.parametrize("layout", [Layout("sort", ("a",)), Layout("sort", ("b",)), Layout("hilbert", ("a", "b"))])
def test_a_sample_predicts_what_all_rows_give(layout: Layout) -> None:
    draw = np.random.default_rng(1)
    columns = {"a": draw.zipf(1.3, 100_000) % 100_000, "b": draw.integers(0, 10**12, 100_000)}
    some = draw.choice(100_000, 16_000, replace=False)
    shares = []
    for rows in (some, np.arange(100_000)):
        sample = Sample({name: values[rows].tolist() for name, values in columns.items()}, 100_000)
        outcome = evaluate(layout, workload(columns), sample, [1.0] * 60, SIZE, Prices(), hilbert)
        assert outcome is not None
        shares.append(outcome.share)
    assert shares[0] == pytest.approx(shares[1], rel=0.1)


def test_the_simplest_of_about_equal_candidates_is_the_best() -> None:
    draw = np.random.default_rng(1)
    columns = {"a": draw.integers(0, 1000, 20_000), "b": draw.integers(0, 10**12, 20_000)}
    only_a = Workload(asked=[Asked(PARSER.parse(f"a = {n}"), 10) for n in range(0, 1000, 50)], days=1)
    sample = Sample({name: values.tolist() for name, values in columns.items()}, 20_000)
    found = [evaluate(c, only_a, sample, [1.0] * 20, SIZE, Prices(), hilbert) for c in layouts(only_a, sample)]
    best, *others = ranked([outcome for outcome in found if outcome is not None])
    assert best.layout == Layout("sort", ("a",)) and best.payback_days is not None
    assert best.share < 0.1 and best.saved_bytes_a_day > 0 and {o.layout.kind for o in others} == {"bucket", "bloom"}


def test_a_layout_that_costs_more_than_it_saves_never_pays() -> None:
    sample = Sample({"a": list(range(1000))}, 1000)
    once = Workload(asked=[Asked(PARSER.parse("a = 5"))], days=30)
    size = TableSize(files=10, data_bytes=1 << 30, arriving_bytes_a_day=1 << 40)
    outcome = evaluate(Layout("sort", ("a",)), once, sample, [1.0], size, Prices(), hilbert)
    assert outcome is not None and outcome.payback_days is None and outcome.dollars_a_day > 0


def test_nulls_and_tiny_tables() -> None:
    sample = Sample({"a": [None, 1, 2, None], "b": [None] * 4}, 4)
    for layout in (Layout("sort", ("a",)), Layout("hilbert", ("a", "b"))):
        asked = Workload(asked=[Asked(PARSER.parse("a = 1, b = 2"))])
        assert evaluate(layout, asked, sample, [1.0], TableSize(files=9, data_bytes=9), Prices(), hilbert) is not None


def test_bloom_filters_help_where_few_files_hold_the_value() -> None:
    assert bloom_share(1, 5) == 1
    assert bloom_share(100, 1) == pytest.approx(0.01 + 0.0099, abs=1e-3)
    assert bloom_share(10, 10_000) == pytest.approx(1)
