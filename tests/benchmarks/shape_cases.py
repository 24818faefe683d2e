"""Compaction of wide, nested and long rows: ours next to Iceberg's, and to plain rewriters from packages.

The other shapes are cases of their own: events and shop by two writers (`splice`), few large files (`copy`), thousands
of tiny files (`splice`), 2% of the rows deleted (`deletes`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import DoubleType, ListType, LongType, MapType, NestedField, StringType, StructType

from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from tests.benchmarks.compaction_cases import Bench, run_twins
from tests.benchmarks.data import KINDS, URLS, write_files
from tests.benchmarks.measuring import Measurement, measure
from tests.benchmarks.rewriting import plain_rewrite
from tests.benchmarks.twins import make_twins

_BASE = (
    NestedField(1, "id", LongType()),
    NestedField(2, "amount", DoubleType()),
    NestedField(3, "kind", StringType()),
)
_WIDE_TYPES = (LongType(), DoubleType(), StringType())
WIDE = Schema(*_BASE, *(NestedField(4 + n, f"c{n:03d}", _WIDE_TYPES[n % 3]) for n in range(297)))
_ITEM = StructType(NestedField(6, "sku", StringType()), NestedField(7, "price", DoubleType()))
# The ids that the catalog gives to a new table, and that the files then have.
NESTED = assign_fresh_schema_ids(
    Schema(
        *_BASE,
        NestedField(4, "items", ListType(5, _ITEM, element_required=False)),
        NestedField(8, "attributes", MapType(9, StringType(), 10, StringType(), value_required=False)),
        NestedField(
            11, "device", StructType(NestedField(12, "os", StringType()), NestedField(13, "width", LongType()))
        ),
    )
)
LONG = Schema(*_BASE, NestedField(4, "body", StringType()), NestedField(5, "title", StringType()))


@dataclass(frozen=True)
class Shape:
    """A kind of rows, how many files there are, and how many rows a file has."""

    schema: Schema
    make: Callable[[int, int], pa.Table]
    files: int
    rows_per_file: int


def wide_rows(seed: int, count: int) -> pa.Table:
    """Return rows of 300 columns: numbers, floats with nulls and categories in turns."""
    random = np.random.default_rng(seed)
    columns = _base_columns(random, seed, count)
    for number in range(297):
        if number % 3 == 0:
            columns.append(pa.array(random.integers(0, 10 ** (number % 9 + 1), count)))
        elif number % 3 == 1:
            columns.append(pa.array(random.random(count), mask=random.random(count) < 0.1))
        else:
            columns.append(pa.array(URLS).take(pa.array(random.integers(0, 20 + number, count))))
    return pa.Table.from_arrays(columns, schema=arrow_schema(WIDE))


def nested_rows(seed: int, count: int) -> pa.Table:
    """Return rows with a list of structs, a map and a struct; some lists and maps are null or empty."""
    random = np.random.default_rng(seed)
    lengths, prices = random.integers(-1, 5, count), np.round(random.exponential(20.0, count), 2).tolist()
    items = [
        None if length < 0 else [{"sku": f"sku-{n % 5000}-{i}", "price": prices[n - i]} for i in range(length)]
        for n, length in enumerate(lengths.tolist())
    ]
    attributes = [
        None if n % 7 == 0 else [(KINDS[(n + i) % 8], f"v{n % 100}") for i in range(n % 3)] for n in range(count)
    ]
    device = [{"os": KINDS[n % 8], "width": n % 4000} for n in range(count)]
    schema = arrow_schema(NESTED)
    nested = [
        pa.array(values, schema.field(name).type)
        for name, values in (("items", items), ("attributes", attributes), ("device", device))
    ]
    return pa.Table.from_arrays([*_base_columns(random, seed, count), *nested], schema=schema)


def long_rows(seed: int, count: int) -> pa.Table:
    """Return rows with texts of about 2 KB, none of which repeats."""
    random = np.random.default_rng(seed)
    words = np.array(KINDS + [url.rsplit("/", 1)[-1] for url in URLS[:2000]])
    bodies = [" ".join(words[random.integers(0, len(words), 100)]) for _ in range(count)]
    titles = [body[:60] for body in bodies]
    columns = [*_base_columns(random, seed, count), pa.array(bodies), pa.array(titles)]
    return pa.Table.from_arrays(columns, schema=arrow_schema(LONG))


SHAPES = {
    "wide": Shape(WIDE, wide_rows, 30, 4_000),
    "nested": Shape(NESTED, nested_rows, 40, 30_000),
    "long strings": Shape(LONG, long_rows, 30, 3_000),
}


def shapes_case(bench: Bench) -> Iterator[Measurement]:
    """Small files of each shape into one, judged by Java; then what DuckDB, polars, DataFusion and pyarrow take."""
    for name, shape in SHAPES.items():
        files, per_file = (6, shape.rows_per_file // 20) if bench.quick else (shape.files, shape.rows_per_file)
        bench.say(f"making {files} files of {per_file:,} rows: {name}")
        paths = write_files(bench.folder / "inputs" / name.replace(" ", "-"), files, per_file, shape.make)
        yield from run_twins(bench, name, make_twins(bench.lake, name.replace(" ", "_"), paths, schema=shape.schema))
        yield from _package_rewrites(bench, name, paths)


def _package_rewrites(bench: Bench, case: str, paths: Sequence[Path]) -> Iterator[Measurement]:
    """Measure plain rewriters: they know no table, no deletes and no proof."""
    out = bench.folder / "packages"
    for side, work in _REWRITERS.items():
        out.mkdir()
        bench.say(f"{case}: {side}")
        cost, out_bytes = measure(case, side, lambda work=work: work(list(paths), out))  # type: ignore[misc]
        shutil.rmtree(out)
        yield replace(cost, output_mb=round(out_bytes / 1024**2, 1), files=1)


def _with_duckdb(paths: list[Path], out: Path) -> int:
    target = out / "duckdb.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        source = f"read_parquet({[str(path) for path in paths]!r})"
        connection.execute(f"COPY (SELECT * FROM {source}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
    return target.stat().st_size


def _with_polars(paths: list[Path], out: Path) -> int:
    target = out / "polars.parquet"
    polars.scan_parquet(paths).sink_parquet(target, compression="zstd")
    return target.stat().st_size


def _with_datafusion(paths: list[Path], out: Path) -> int:
    context = SessionContext(SessionConfig().with_target_partitions(2))
    folder = paths[0].parent
    context.register_parquet("inputs", str(folder))
    context.sql("SELECT * FROM inputs").write_parquet(str(out / "datafusion"), compression="zstd", compression_level=3)
    return sum(path.stat().st_size for path in (out / "datafusion").rglob("*.parquet"))


_REWRITERS: dict[str, Callable[[list[Path], Path], int]] = {
    "pyarrow": plain_rewrite,
    "duckdb": _with_duckdb,
    "polars": _with_polars,
    "datafusion": _with_datafusion,
}


def _base_columns(random: np.random.Generator, seed: int, count: int) -> list[pa.Array]:
    return [
        pa.array(np.arange(count, dtype=np.int64) + seed * count),
        pa.array(np.round(random.exponential(50.0, count), 2)),
        pa.array(KINDS).take(pa.array(random.integers(0, len(KINDS), count))),
    ]
