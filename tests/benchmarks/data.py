"""Data for measurements: 11 columns of ids, times, categories, URLs, hex strings and floats, in many files or few.

python -m tests.benchmarks.data d1 FOLDER    200 files of 50,000 rows
python -m tests.benchmarks.data d2 FOLDER    16 files of 1,000,000 rows, one row group each
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DoubleType, LongType, NestedField, StringType, TimestampType

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "user_id", LongType()),
    NestedField(3, "at", TimestampType()),
    NestedField(4, "kind", StringType()),
    NestedField(5, "country", StringType()),
    NestedField(6, "url", StringType()),
    NestedField(7, "session", StringType()),
    NestedField(8, "amount", DoubleType()),
    NestedField(9, "score", DoubleType()),
    NestedField(10, "status", LongType()),
    NestedField(11, "agent", StringType()),
)
KINDS = ["view", "click", "cart", "order", "refund", "search", "login", "logout"]
COUNTRIES = [a + b for a in "ABCDEFGHIJ" for b in "KLMNOPQRST"]
URLS = [f"https://shop.example.com/{k}/item-{n:05d}?ref={n % 37}" for n in range(5_000) for k in ("a", "b")]
AGENTS = [f"Mozilla/5.0 (X11; Linux x86_64; rv:{n}.0) Gecko/20100101 Firefox/{n}.0" for n in range(60, 140)]


# What a stream of events leaves: mostly values that do not repeat.
EVENTS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "user_id", LongType()),
    NestedField(3, "at", TimestampType()),
    NestedField(4, "kind", StringType()),
    NestedField(5, "url", StringType()),
    NestedField(6, "amount", DoubleType()),
    NestedField(7, "quantity", LongType()),
    NestedField(8, "session", StringType()),
    NestedField(9, "score", DoubleType()),
    NestedField(10, "flag", BooleanType()),
)


def arrow_schema(schema: Schema = SCHEMA) -> pa.Schema:
    kinds = {
        LongType: pa.int64(),
        DoubleType: pa.float64(),
        StringType: pa.string(),
        TimestampType: pa.timestamp("us"),
        BooleanType: pa.bool_(),
    }
    return pa.schema(
        [
            pa.field(f.name, kinds[type(f.field_type)], metadata={b"PARQUET:field_id": str(f.field_id).encode()})
            for f in schema.fields
        ]
    )


def rows(seed: int, count: int) -> pa.Table:
    """So many rows, the same for the same seed; some values are null."""
    random = np.random.default_rng(seed)
    hexes = random.integers(0, 2**62, count // 2 + 1)
    sessions = pa.array([f"{value:016x}" for value in hexes])
    columns = [
        pa.array(np.arange(count, dtype=np.int64) + seed * count),
        pa.array(random.zipf(1.3, count) % 1_000_000),
        pa.array(1_700_000_000_000_000 + seed * 10**10 + np.cumsum(random.integers(0, 20_000, count))).cast(
            pa.timestamp("us")
        ),
        pa.array(KINDS).take(pa.array(random.integers(0, len(KINDS), count))),
        pa.array(COUNTRIES).take(pa.array(random.zipf(1.5, count) % len(COUNTRIES))),
        pa.array(URLS).take(pa.array(random.zipf(1.2, count) % len(URLS))),
        sessions.take(pa.array(random.integers(0, len(sessions), count))),
        pa.array(np.round(random.exponential(50.0, count), 2)),
        pa.array(random.random(count), mask=random.random(count) < 0.05),
        pa.array(random.choice([200, 200, 200, 301, 404, 500], count)),
        pa.array(AGENTS).take(pa.array(random.integers(0, len(AGENTS), count))),
    ]
    return pa.Table.from_arrays(columns, schema=arrow_schema())


def event_rows(seed: int, count: int) -> pa.Table:
    """So many events, the same for the same seed."""
    random = np.random.default_rng(seed)
    columns = [
        pa.array(np.arange(count, dtype=np.int64) + seed * count),
        pa.array(random.integers(0, 5_000_000, count)),
        pa.array(1_700_000_000_000_000 + seed * 10**10 + np.cumsum(random.integers(1, 20_000, count))).cast(
            pa.timestamp("us")
        ),
        pa.array(KINDS).take(pa.array(random.integers(0, len(KINDS), count))),
        pa.array(URLS).take(pa.array(random.zipf(1.2, count) % len(URLS))),
        pa.array(np.round(random.exponential(50.0, count), 2)),
        pa.array(random.integers(1, 9, count)),
        pa.array([f"{value:016x}" for value in random.integers(0, 2**62, count)]),
        pa.array(random.random(count)),
        pa.array(random.random(count) < 0.1),
    ]
    return pa.Table.from_arrays(columns, schema=arrow_schema(EVENTS))


def write_files(
    folder: Path, files: int, rows_per_file: int, make: Callable[[int, int], pa.Table] = rows
) -> list[Path]:
    """Files of one row group each, zstd."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for seed in range(files):
        path = folder / f"{seed:05d}.parquet"
        pq.write_table(make(seed, rows_per_file), path, compression="zstd", row_group_size=rows_per_file)
        paths.append(path)
    return paths


SETS = {"d1": (200, 50_000), "d2": (16, 1_000_000)}

if __name__ == "__main__":
    name, target = sys.argv[1:]
    written = write_files(Path(target), *SETS[name])
    print(f"{len(written)} files, {sum(path.stat().st_size for path in written) / 1e6:.0f} MB")
