"""Sort and curves, ours beside Iceberg 1.12 warm in the same session: time, size, and files that a point filter meets.

python -m tests.benchmarks.clustering                 30 files of 50,000 rows, 46 MB
python -m tests.benchmarks.clustering --files 260     400 MB
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import iceberg_compact_sql
from tests.benchmarks.data import write_files
from tests.benchmarks.measuring import Measurement, measure
from tests.benchmarks.twins import data_files, data_mb, fingerprint, table_of
from tests.support.java import Lake, open_lake, start_session

COLUMNS = ("user_id", "at")
# Case, side, and the order that the side is given.
RUNS = (
    ("sort", "iceberg", "user_id, at"),
    ("sort", "ours", "user_id, at"),
    ("sort", "ours on Spark tasks", "user_id, at"),
    ("curve", "iceberg", "zorder(user_id, at)"),
    ("curve", "ours", "hilbert(user_id, at)"),
    ("curve", "ours on Spark tasks", "hilbert(user_id, at)"),
)


@dataclass(frozen=True)
class Clustered:
    """The cost of one side, and the files that a point filter on each column meets, by bounds."""

    cost: Measurement
    met: tuple[float, ...]

    @property
    def line(self) -> str:
        cost = self.cost
        met = ", ".join(f"{column} {share:.1f}" for column, share in zip(COLUMNS, self.met, strict=True))
        return (
            f"| {cost.case} | {cost.side} | {cost.wall_s:.1f} s | {cost.cpu_s:.1f} CPU s | {cost.output_mb} MB "
            f"| {met} of {cost.files} |"
        )


def met_by_points(paths: list[Path]) -> tuple[float, ...]:
    """How many files hold a value of a random row between their bounds, for each column."""
    found = []
    for column in COLUMNS:
        values = [np.asarray(pq.read_table(path, columns=[column]).column(0).drop_null()) for path in paths]
        low, high = np.array([part.min() for part in values]), np.array([part.max() for part in values])
        points = np.random.default_rng(3).choice(np.concatenate(values), 500)[:, None]
        found.append(float(((low <= points) & (points <= high)).sum(axis=1).mean()))
    return tuple(found)


def statement(lake: Lake, side: str, identifier: str, order: str, target_bytes: int) -> str:
    if side == "iceberg":
        options = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{target_bytes}')"
        return f"CALL {lake.name}.system.rewrite_data_files('{identifier}', 'sort', '{order}', {options})"
    name = lake.full(identifier)
    return f"CALL compact_table('{name}', sort_order => '{order}', target => {target_bytes}, rewrite_all => true)"


def run(lake: Lake, paths: list[Path], target_bytes: int, name: str) -> Iterator[Clustered]:
    """Every side once on a table of its own, judged by Java: the same rows before and after."""
    for number, (case, side, order) in enumerate(RUNS):
        identifier = table_of(lake, f"db.{name}{number}", paths)
        expected = fingerprint(lake, identifier)
        lake.spark.conf.set("spark.iceberg_compact_sql.driver_bytes", "0" if "Spark" in side else "10g")
        text = statement(lake, side, identifier, order, target_bytes)
        cost, _ = measure(case, side, lambda text=text: lake.sql(text).collect())  # type: ignore[misc]
        files = data_files(lake, identifier)
        if fingerprint(lake, identifier) != expected:
            raise SystemExit(f"{case}: {side} changed the rows")
        yield Clustered(replace(cost, output_mb=data_mb(lake, identifier), files=len(files)), met_by_points(files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--target-mb", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="clustering-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        inputs = scratch / "inputs"
        write_files(inputs, arguments.files, arguments.rows)
        paths = sorted(inputs.glob("*.parquet"))
        spark = start_session(scratch, {"spark.driver.memory": "2g"})
        iceberg_compact_sql.register(spark)
        lake = open_lake(spark, scratch / "lake")
        target_bytes = arguments.target_mb * 1024**2
        for _ in run(lake, paths[: max(4, arguments.files // 6)], target_bytes, "warm"):
            pass
        print("| work | side | wall | CPU | output | files that a point meets |\n|---|---|---|---|---|---|")
        for clustered in run(lake, paths, target_bytes, "t"):
            print(clustered.line, flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
