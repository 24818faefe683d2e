"""NaN counts of outputs: exact or absent, whatever is copied, spliced, decoded, deleted, or missing in a manifest."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, ListType, LongType, NestedField, StructType

from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from tests.support.rewriting import Bench, local, outputs

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "value", DoubleType()),
    NestedField(3, "inner", StructType(NestedField(4, "x", FloatType()), NestedField(5, "y", DoubleType()))),
    NestedField(6, "many", ListType(7, DoubleType(), element_required=False)),
)
COUNTED = {2: ("value",), 4: ("inner", "x"), 5: ("inner", "y")}
NAN = float("nan")


def _value(rng: random.Random, nan_share: float) -> float | None:
    draw = rng.random()
    return NAN if draw < nan_share else None if draw < nan_share + 0.1 else rng.randrange(1000) / 4


def _rows(rng: random.Random, first: int, count: int) -> list[dict[str, Any]]:
    share = rng.choice([0.0, 0.0, 0.02, 0.5])
    return [
        {
            "id": first + n,
            "value": _value(rng, share),
            "inner": None if rng.random() < 0.1 else {"x": _value(rng, share), "y": _value(rng, share)},
            "many": [_value(rng, share) for _ in range(rng.randrange(3))],
        }
        for n in range(count)
    ]


def _counts(rows: list[dict[str, Any]]) -> dict[int, int]:
    counts: Counter[int] = Counter(dict.fromkeys(COUNTED, 0))
    for row in rows:
        for field_id, path in COUNTED.items():
            value: Any = row
            for part in path:
                value = None if value is None else value[part]
            counts[field_id] += value is not None and math.isnan(value)
    return dict(counts)


def _add_file(bench: Bench, rng: random.Random, first: int) -> None:
    """Add a file of one or more row groups, whose manifest has the counts of all floats, of some, or of none."""
    rows = _rows(rng, first, rng.choice([40, 200]))
    schema = arrow_schema(SCHEMA)
    known = rng.choice([tuple(COUNTED), tuple(COUNTED), (2,), ()])
    if rng.random() < 0.15:
        # Written before `value` was promoted to double.
        schema = arrow_schema(Schema(NestedField(1, "id", LongType()), NestedField(2, "value", FloatType())))
        rows = [{"id": row["id"], "value": row["value"]} for row in rows]
        known = tuple(field_id for field_id in known if field_id == 2)
    elif rng.random() < 0.15:
        # Written before the nested floats were added.
        schema = arrow_schema(Schema(*SCHEMA.fields[:2]))
        rows = [{"id": row["id"], "value": row["value"]} for row in rows]
        known = tuple(field_id for field_id in known if field_id == 2)
    whole = [{"inner": None, **row} for row in rows]
    counts = {field_id: count for field_id, count in _counts(whole).items() if field_id in known}
    bench.add(
        pa.Table.from_pylist(rows, schema=schema),
        row_group_size=rng.choice([30, 1000]),
        use_dictionary=rng.choice([True, False]),
        nan_counts=tuple(counts.items()),
    )
    if rng.random() < 0.2:
        bench.delete(len(bench.files) - 1, sorted(rng.sample(range(len(rows)), 3)))


@pytest.mark.parametrize("seed", range(24))
def test_counts_are_exact_or_absent_and_bounds_need_a_count(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with_lineage = seed % 3 == 2
    bench = Bench(tmp_path, schema=SCHEMA)
    for number in range(rng.randrange(2, 7)):
        _add_file(bench, rng, 1000 * number)
        if with_lineage:
            bench.files[-1] = replace(bench.files[-1], first_row_id=1000 * number)
    size_bytes = sum(file.size_bytes for file in bench.files)
    results = bench.rewrite(
        bench.job(
            target_bytes=rng.choice([size_bytes, max(1, size_bytes // 3)]),
            # Copied, spliced or encoded column by column, or some of each.
            copy_min_row_group_bytes=rng.choice([1, 3000, 2**40]),
        )
    )
    for output in outputs(results):
        rows = pq.ParquetFile(local(output.path)).read().to_pylist()
        truth = _counts([{"inner": None, **row} for row in rows])
        assert output.nan_value_counts.items() <= truth.items()
        assert (set(output.lower_bounds) | set(output.upper_bounds)) & set(COUNTED) <= set(output.nan_value_counts)


def test_known_counts_of_every_input_reach_the_output(tmp_path: Path) -> None:
    bench = Bench(tmp_path, schema=SCHEMA)
    expected: Counter[int] = Counter()
    for seed in range(4):
        rows = _rows(random.Random(seed + 100), 1000 * seed, 50)
        expected.update(_counts(rows))
        bench.add(pa.Table.from_pylist(rows, schema=arrow_schema(SCHEMA)), nan_counts=tuple(_counts(rows).items()))
    results = bench.rewrite(bench.job())
    assert results[0].copied_row_groups == 4
    (output,) = outputs(results)
    assert output.nan_value_counts == {field_id: expected[field_id] for field_id in COUNTED}
