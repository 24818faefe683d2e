"""CPU, wall time, output size and peak memory of one in-process rewrite, next to `cat` and a plain pyarrow rewrite.

python -m tests.benchmarks.rewriting FOLDER [--threads 2] [--copy never] [--verify rows] [--target-mb 512]
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.rewrite.run_task import run_task
from iceberg_compact_sql.rewrite.slicing import cut_group
from iceberg_compact_sql.rewrite.task import RewriteJob, RewriteResult
from iceberg_compact_sql.table.model import LiveFile
from tests.benchmarks.data import SCHEMA

MB = 1024**2


def job_for(folder: Path, *, threads: int, copy: str, verify: str, target_bytes: int) -> RewriteJob:
    return RewriteJob(
        run_id="bench",
        table_location=folder.as_uri(),
        schema_json=SCHEMA.model_dump_json(),
        specs_json=(UNPARTITIONED_PARTITION_SPEC.model_dump_json(),),
        output_spec_id=0,
        name_mapping_json=None,
        properties={},
        io_properties={},
        target_bytes=target_bytes,
        roll_bytes=int(1.4 * target_bytes),
        copy=copy,
        verify=verify,
        threads=threads,
        min_file_bytes=int(0.75 * target_bytes),
        max_file_bytes=int(1.8 * target_bytes),
    )


def group_of(paths: list[Path], job: RewriteJob) -> FileGroup:
    files = []
    for path in paths:
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(index).column(0) for index in range(metadata.num_row_groups)]
        offsets = tuple(group.dictionary_page_offset or group.data_page_offset for group in groups)
        files.append(
            LiveFile(
                path.as_uri(), "PARQUET", 0, (), path.stat().st_size, metadata.num_rows, 1, 1, split_offsets=offsets
            )
        )
    total_bytes = sum(file.size_bytes for file in files)
    expected = expected_outputs(total_bytes, job)
    return FileGroup(0, 0, 0, (), "", "rewrite", "bench", tuple(files), ((),) * len(files), total_bytes, expected)


def measured(name: str, work: Callable[[], int]) -> None:
    cpu, wall = _cpu_seconds(), time.monotonic()
    out_bytes = work()
    cpu, wall = _cpu_seconds() - cpu, time.monotonic() - wall
    print(f"{name:24} {cpu:6.2f} CPU s {wall:6.2f} s {out_bytes / 1e6:7.1f} MB", flush=True)


def _cpu_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(entry.ru_utime + entry.ru_stime for entry in usage)


def cat_files(paths: list[Path], out: Path) -> int:
    with (out / "cat").open("wb") as sink:
        subprocess.run(["cat", *map(str, paths)], stdout=sink, check=True)
    return (out / "cat").stat().st_size


def plain_rewrite(paths: list[Path], out: Path) -> int:
    target = out / "plain.parquet"
    with pq.ParquetWriter(target, pq.read_schema(paths[0]), compression="zstd") as writer:
        held: list[pa.Table] = []
        for path in paths:
            held.append(pq.read_table(path, use_threads=False))
            if sum(table.num_rows for table in held) >= 1_000_000:
                writer.write_table(pa.concat_tables(held))
                held = []
        if held:
            writer.write_table(pa.concat_tables(held))
    return target.stat().st_size


def _ours(job: RewriteJob, group: FileGroup) -> int:
    out_bytes = 0
    for task in cut_group(group, job):
        result = run_task(job, task)
        if not isinstance(result, RewriteResult):
            raise SystemExit(result.reason)
        sizes = ", ".join(f"{file.size_bytes / 1e6:.1f} in {len(file.split_offsets)}" for file in result.outputs)
        print(f"  task {task.output_index}: {sizes}; {result.copied_row_groups} copied, {result.seconds:.2f} s")
        out_bytes += sum(file.size_bytes for file in result.outputs)
    return out_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--copy", default="auto")
    parser.add_argument("--verify", default="checksum")
    parser.add_argument("--target-mb", type=float, default=512)
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    paths = sorted(given.folder.glob("*.parquet"))
    out = Path(tempfile.mkdtemp(prefix="rewriting-"))
    try:
        job = job_for(
            out,
            threads=given.threads,
            copy=given.copy,
            verify=given.verify,
            target_bytes=int(given.target_mb * MB),
        )
        group = group_of(paths, job)
        print(f"{len(paths)} files, {group.input_bytes / 1e6:.1f} MB, {group.expected_files} outputs expected")
        if not given.only_ours:
            measured("cat", lambda: cat_files(paths, out))
            measured("pyarrow, plain", lambda: plain_rewrite(paths, out))
        for _ in range(given.repeat):
            measured(f"ours, {given.copy}, {given.verify}", lambda: _ours(job, group))
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    finally:
        shutil.rmtree(out)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
