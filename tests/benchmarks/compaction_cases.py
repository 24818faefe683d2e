"""Compaction, ours next to Iceberg's `rewrite_data_files`, on twin tables; a plain rewrite and `cat` as limits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pyiceberg.table import Table

from tests.benchmarks.data import write_files
from tests.benchmarks.measuring import Measurement, measure
from tests.benchmarks.rewriting import cat_files, plain_rewrite
from tests.benchmarks.twins import SIDES, Deletes, data_files, data_mb, fingerprint, make_twins
from tests.support.handmade import add_equality_deletes, add_position_deletes
from tests.support.java import Lake

DELETE_COMMITS = 5
# Below this a run has to show that everything works, not how fast it is.
QUICK_BELOW = 0.2


@dataclass(frozen=True)
class Bench:
    """A place to work in, and how large the work is."""

    lake: Lake
    folder: Path
    scale: float
    say: Callable[[str], None]

    @property
    def quick(self) -> bool:
        """Whether small files and one turn of everything will do."""
        return self.scale < QUICK_BELOW

    @property
    def turns(self) -> int:
        """How often short work is done."""
        return 1 if self.quick else 3

    @property
    def small_rows(self) -> int:
        """Rows of a small file: 1.5 MB, or 0.3 MB."""
        return 10_000 if self.quick else 50_000

    def files(self, name: str, count: int, rows_per_file: int) -> list[Path]:
        """Files of that shape, made once."""
        home = self.folder / "inputs" / f"{name}-{count}x{rows_per_file}"
        if not home.exists():
            self.say(f"making {count} files of {rows_per_file:,} rows")
            write_files(home, count, rows_per_file)
        return sorted(home.glob("*.parquet"))


def call_text(lake: Lake, side: str, identifier: str, more: str = "") -> str:
    """The statement of a side; `more` arguments are for ours."""
    if side == "ours":
        return f"CALL compact_table('{lake.full(identifier)}'{more})"
    return f"CALL {lake.name}.system.rewrite_data_files(table => '{identifier}')"


def run_side(lake: Lake, case: str, side: str, identifier: str, more: str = "") -> Measurement:
    """One side's compaction through `spark.sql`, all in."""
    cost, _ = measure(case, side, lambda: lake.sql(call_text(lake, side, identifier, more)).collect())
    return replace(cost, output_mb=data_mb(lake, identifier), files=len(data_files(lake, identifier)))


def run_twins(bench: Bench, case: str, tables: dict[str, str], more: str = "") -> Iterator[Measurement]:
    """Both sides, judged by Java: the same rows before and after."""
    expected = fingerprint(bench.lake, tables["iceberg"])
    for side in SIDES:
        bench.say(f"{case}: {side}")
        yield run_side(bench.lake, case, side, tables[side], more)
        found = fingerprint(bench.lake, tables[side])
        if found != expected:
            raise SystemExit(f"{case}: {side} changed the rows: {found} instead of {expected}")


def warm_up(bench: Bench) -> None:
    """A call of each side that nobody counts."""
    paths = bench.files("warm", 6, 1_000 if bench.quick else 20_000)
    tables = make_twins(bench.lake, "warm", paths)
    for _ in run_twins(bench, "warm-up", tables):
        pass


def limits(bench: Bench, case: str, paths: Sequence[Path]) -> Iterator[Measurement]:
    """What a plain pyarrow rewrite and `cat` take for the same files."""
    out = bench.folder / "limits"
    limit: tuple[tuple[str, Callable[[list[Path], Path], int]], ...] = (("pyarrow", plain_rewrite), ("cat", cat_files))
    for side, work in limit:
        out.mkdir()
        bench.say(f"{case}: {side}")
        cost, out_bytes = measure(case, side, lambda work=work: work(list(paths), out))  # type: ignore[misc]
        shutil.rmtree(out)
        yield replace(cost, output_mb=round(out_bytes / 1024**2, 1), files=1)


def copy_case(bench: Bench) -> Iterator[Measurement]:
    """Files of about 27 MB, one row group each: whole row groups are copied; in a quick run small ones."""
    if bench.quick:
        paths, more = _small_files(bench, 6), ", copy_min_row_group_size => '64KB'"
    else:
        paths, more = bench.files("copy", max(6, round(16 * bench.scale)), 1_000_000), ""
    yield from run_twins(bench, "copy", make_twins(bench.lake, "copy", paths, untouched=True), more)
    yield from limits(bench, "copy", paths)


def decode_case(bench: Bench) -> Iterator[Measurement]:
    """Files of about 1.7 MB: everything is decoded and encoded."""
    paths = _small_files(bench, round(200 * bench.scale))
    yield from run_twins(bench, "decode", make_twins(bench.lake, "decode", paths, untouched=True))
    yield from limits(bench, "decode", paths)


def deletes_case(bench: Bench) -> Iterator[Measurement]:
    """Small files with 2% of their rows deleted, by position and by key."""
    paths, rows = _small_files(bench, round(80 * bench.scale)), bench.small_rows
    yield from run_twins(bench, "position deletes", make_twins(bench.lake, "position", paths, _positions(rows, 0.02)))
    yield from run_twins(
        bench, "equality deletes", make_twins(bench.lake, "equality", paths, _keys(len(paths) * rows, 0.02))
    )


def streaming_case(bench: Bench) -> Iterator[Measurement]:
    """What a streaming database leaves, scaled down: files of 11 MB, a few percent of their keys deleted again."""
    count, rows = max(5, round(20 * bench.scale)), 20_000 if bench.quick else 400_000
    paths = bench.files("streaming", count, rows)
    tables = make_twins(bench.lake, "streaming", paths, _keys(count * rows, 0.03))
    yield from run_twins(bench, "streaming", tables)


def tiny_case(bench: Bench) -> Iterator[Measurement]:
    """Eight files of a hundred rows, three times (once in a quick run); the middle one counts."""
    paths = bench.files("tiny", 8, 100)
    found: dict[str, list[Measurement]] = {side: [] for side in SIDES}
    for turn in range(bench.turns):
        for cost in run_twins(bench, "tiny", make_twins(bench.lake, f"tiny{turn}", paths)):
            found[cost.side].append(cost)
    for costs in found.values():
        yield sorted(costs, key=lambda cost: cost.wall_s)[len(costs) // 2]


def growth_case(bench: Bench) -> Iterator[Measurement]:
    """The decode work at one, two and four times its size."""
    for times in (1, 2, 4):
        paths = _small_files(bench, max(6, round(20 * bench.scale)) * times)
        yield from run_twins(bench, f"growth {times}x", make_twins(bench.lake, f"growth{times}", paths))


def _small_files(bench: Bench, count: int) -> list[Path]:
    made = bench.files("decode", max(24, round(200 * bench.scale)), bench.small_rows)
    return made[: max(6, count)]


def _positions(rows: int, share: float) -> Deletes:
    def delete(table: Table, paths: Sequence[str]) -> None:
        random = np.random.default_rng(7)
        chosen = {path: random.choice(rows, int(rows * share), replace=False) for path in paths}
        add_position_deletes(table, {path: sorted(positions.tolist()) for path, positions in chosen.items()})

    return delete


def _keys(ids: int, share: float) -> Deletes:
    def delete(table: Table, paths: Sequence[str]) -> None:
        random = np.random.default_rng(11)
        chosen = random.choice(ids, int(ids * share), replace=False)
        for part in np.array_split(chosen, DELETE_COMMITS):
            add_equality_deletes(table, [{"id": int(value)} for value in part], [1])

    return delete
