"""Rewriting on an object store: the same rows, multipart uploads, exact deletes, odd names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.run_groups import rewrite_groups
from iceberg_compact_sql.rewrite.run_task import job_io
from iceberg_compact_sql.rewrite.task import GroupFailed, GroupRewritten, RewriteJob
from iceberg_compact_sql.storage.stores import stores_of
from tests.support.rewriting import Bench, in_this_process, local, numbered_rows
from tests.support.s3 import S3Server


@pytest.fixture
def on_s3(tmp_path: Path, s3_server: S3Server) -> tuple[Bench, RewriteJob]:
    """Inputs written locally and uploaded under a prefix with a `#`, which pyiceberg would cut."""
    bench = Bench(tmp_path)
    location = f"s3://{s3_server.bucket}/{tmp_path.name}/a#b"
    job = bench.job(table_location=location, io_properties=s3_server.properties, threads=2)
    io = job_io(job)
    assert isinstance(io, PyArrowFileIO)
    for number in range(4):
        file = bench.add(numbered_rows(2000, first=2000 * number))
        target = f"{location}/data/{local(file.path).name}"
        stores_of(io).write(target, local(file.path).read_bytes())
        object.__setattr__(file, "path", target)
    return bench, job


@pytest.mark.parametrize("copy", ["auto", "never"])
def test_rows_survive_the_way_through_an_object_store(on_s3: tuple[Bench, RewriteJob], copy: str) -> None:
    bench, job = on_s3
    object.__setattr__(job, "copy", copy)
    (outcome,) = rewrite_groups(in_this_process(job), [bench.group(job)])
    assert isinstance(outcome, GroupRewritten), outcome
    (output,) = outcome.outputs
    with stores_of(job_io(job)).open_input(output.path) as file:
        assert sorted(pq.read_table(file)["id"].to_pylist()) == list(range(8000))
    assert outcome.copied_row_groups == (4 if copy == "auto" else 0)


def test_a_failure_leaves_no_object_and_takes_none_of_others(on_s3: tuple[Bench, RewriteJob]) -> None:
    bench, job = on_s3
    io = job_io(job)
    folder = f"{job.table_location}/data"
    before = sorted(file.path for file in stores_of(io).walk(folder))

    def fail(point: str, facts: Mapping[str, object]) -> None:
        if point == "rewrite.verify_file":
            raise OSError("connection reset")

    with events.listening(fail):
        (outcome,) = rewrite_groups(in_this_process(job), [bench.group(job)])
    assert isinstance(outcome, GroupFailed)
    assert "connection reset" in outcome.reason
    assert outcome.created == ()
    assert sorted(file.path for file in stores_of(io).walk(folder)) == before
    assert len(before) == 4
