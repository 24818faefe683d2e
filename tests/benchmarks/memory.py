"""Peak resident memory of rewrite tasks on large groups: `python -m tests.benchmarks.memory`.

Each case makes its files in a temporary folder, about 2 GB of them, decodes and encodes the whole group in a process of
its own, as a Spark worker would task by task, and looks at that process's resident memory all the while.

--only a,b     some cases: groups (one file of 1.5 GB in row groups of 128 MB, and small files), huge (one row group of
               700 MB), wide (rows of 4 KB in one row group), keys (as groups, with 10 million equality deletes)
--threads N    threads of a task, 2 by default; a Spark task has as many as spark.task.cpus
--scale N      that many times the data
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_compact_sql.parquet.footer import read_footer
from iceberg_compact_sql.parquet.joiner import RowGroupJoiner
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.run_task import run_task
from iceberg_compact_sql.rewrite.slicing import cut_group
from iceberg_compact_sql.rewrite.task import RewriteResult
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete
from tests.benchmarks.data import arrow_schema, rows
from tests.benchmarks.rewriting import group_of, job_for

MB = 1024**2
TARGET_BYTES = 512 * MB
SMALL_FILES = 20
ROWS = 1_000_000
KEYS = 10_000_000
DELETE_FILES = 4
_SAMPLE_EVERY_S = 0.02


@dataclass(frozen=True)
class Peak:
    """What the process that did the work took at most, and what Arrow held of that at most."""

    resident_mb: float
    arrow_mb: float
    seconds: float
    cpu_s: float


def groups_case(folder: Path, scale: float) -> None:
    """A file of 1.5 GB in 12 row groups of 128 MB, and 0.5 GB in small files."""
    base = folder / "base"
    pq.write_table(_repeated(5), base, compression="zstd", row_group_size=5 * ROWS)
    _joined(base, folder / "large.parquet", max(1, round(12 * scale)))
    base.unlink()
    _small_files(folder, scale)


def huge_case(folder: Path, scale: float) -> None:
    """A file of one row group of 700 MB, another one like it, and small files."""
    times = max(1, round(27 * scale))
    pq.write_table(_repeated(times), folder / "huge.parquet", compression="zstd", row_group_size=times * ROWS)
    os.link(folder / "huge.parquet", folder / "second.parquet")
    _small_files(folder, scale)


def wide_case(folder: Path, scale: float) -> None:
    """Rows of 4 KB that do not compress: the file has one row group of 1.5 GB."""
    count = max(100, round(380_000 * scale))
    block = rows(0, 1000)
    random = np.random.default_rng(5)
    texts = [random.integers(33, 126, 4096, np.uint8).tobytes().decode() for _ in range(len(block))]
    block = block.set_column(6, arrow_schema().field("session"), pa.array(texts))
    table = pa.concat_tables([block] * (count // len(block) + 1))
    # Far from each other, equal rows are not found by the codec.
    pq.write_table(table, folder / "wide.parquet", compression="snappy", row_group_size=len(table))
    _small_files(folder, scale)


def keys_case(folder: Path, scale: float) -> None:
    """The files of `groups`, and delete files with 10 million keys, of which some hit."""
    groups_case(folder, scale)
    keys = np.random.default_rng(3).choice(round(10 * KEYS * scale), round(KEYS * scale), replace=False)
    field = arrow_schema().field("id")
    for number, part in enumerate(np.array_split(keys, DELETE_FILES)):
        pq.write_table(pa.table([pa.array(part)], schema=pa.schema([field])), folder / f"keys-{number}.deletes")


CASES: dict[str, Callable[[Path, float], None]] = {
    "groups": groups_case,
    "huge": huge_case,
    "wide": wide_case,
    "keys": keys_case,
}


def _repeated(times: int) -> pa.Table:
    """A million rows again and again: a codec does not look back so far, and memory holds them once."""
    return pa.concat_tables([rows(0, ROWS)] * times)


def _small_files(folder: Path, scale: float) -> None:
    first = folder / "small-00.parquet"
    pq.write_table(rows(1, ROWS), first, compression="zstd")
    for number in range(1, max(2, round(SMALL_FILES * scale))):
        os.link(first, folder / f"small-{number:02d}.parquet")


def _joined(source: Path, target: Path, times: int) -> None:
    """The one row group of a file, so many times."""
    with pa.OSFile(str(source)) as file, target.open("wb") as sink:
        footer = read_footer(file)
        joiner = RowGroupJoiner(sink, footer)
        for _ in range(times):
            joiner.copy(file, footer, [0])
        joiner.finish()


def _with_deletes(group: FileGroup, folder: Path) -> FileGroup:
    """Every delete file that is there applies to every data file."""
    deletes = tuple(
        LiveDelete(
            path=path.as_uri(),
            file_format="PARQUET",
            kind=DeleteKind.EQUALITY,
            spec_id=0,
            partition=(),
            size_bytes=path.stat().st_size,
            rows=pq.read_metadata(path).num_rows,
            sequence_number=2,
            equality_ids=(1,),
        )
        for path in sorted(folder.glob("*.deletes"))
    )
    return replace(group, deletes=(deletes,) * len(group.files))


def work(folder: Path, threads: int) -> None:
    """The process that is looked at: all tasks of the group, one after the other."""
    out = folder / "out"
    out.mkdir()
    job = job_for(out, threads=threads, copy="never", verify="checksum", target_bytes=TARGET_BYTES)
    group = _with_deletes(group_of(sorted(folder.glob("*.parquet")), job), folder)
    live_rows = outputs = 0
    for task in cut_group(group, job):
        result = run_task(job, task)
        if not isinstance(result, RewriteResult):
            raise SystemExit(result.reason)
        live_rows += result.live_rows
        outputs += len(result.outputs)
    facts = {"rows": live_rows, "outputs": outputs, "arrow_mb": pa.default_memory_pool().max_memory() / MB}
    print(json.dumps(facts), flush=True)


def looked_at(command: Sequence[str]) -> tuple[Peak, dict[str, float]]:
    """Run a process; the most that was resident of it, and the facts in its last line."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watched = psutil.Process(process.pid)
    highest, cpu_s = 0, 0.0

    def watch() -> None:
        nonlocal highest, cpu_s
        while process.poll() is None:
            try:
                highest = max(highest, watched.memory_info().rss)
                times = watched.cpu_times()
            except psutil.Error:
                return
            cpu_s = times.user + times.system
            time.sleep(_SAMPLE_EVERY_S)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    if process.wait():
        raise SystemExit("\n".join(lines))
    watcher.join()
    facts = json.loads(lines[-1])
    return Peak(highest / MB, facts["arrow_mb"], time.monotonic() - started, cpu_s), facts


def measure(name: str, threads: int, scale: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="memory-"))
    try:
        CASES[name](folder, scale)
        sizes = [path.stat().st_size / MB for path in folder.glob("*.parquet")]
        command = [sys.executable, "-m", "tests.benchmarks.memory", "--work", str(folder), "--threads", str(threads)]
        peak, facts = looked_at(command)
        given = f"{sum(sizes):.0f} MB in {len(sizes)} files, the largest {max(sizes):.0f} MB, {threads} threads"
        taken = (
            f"peak {peak.resident_mb:.0f} MB (Arrow {peak.arrow_mb:.0f}), {peak.seconds:.0f} s, {peak.cpu_s:.0f} CPU s"
        )
        print(f"{name}: {given}: {taken}, {facts['rows']:,} rows in {facts['outputs']} files", flush=True)
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.memory", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES), help="cases with commas between: %(default)s")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.threads)
        return
    names = given.only.split(",")
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"unknown case {', '.join(unknown)}; known are {', '.join(CASES)}")
    for name in names:
        measure(name, given.threads, given.scale)


if __name__ == "__main__":
    main()
