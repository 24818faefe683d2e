"""Groups run in this process: one outcome each, nothing left of those that fail or are given up."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from iceberg_compact_sql import events
from iceberg_compact_sql.engine import in_process, renewed_job
from iceberg_compact_sql.engine.group_results import GroupResults
from iceberg_compact_sql.engine.run_groups import rewrite_groups
from iceberg_compact_sql.engine.runner import RewriteProgress
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.run_task import job_io, run_task
from iceberg_compact_sql.rewrite.sampling import sampled_ratio
from iceberg_compact_sql.rewrite.slicing import cut_group
from iceberg_compact_sql.rewrite.task import (
    GroupFailed,
    GroupRewritten,
    OutputFile,
    RewriteFailure,
    RewriteJob,
    RewriteResult,
    RewriteTask,
)
from iceberg_compact_sql.storage.remove_created import find_lost_files, remove_files
from tests.support.rewriting import KB, Bench, in_this_process, local, numbered_rows

GROUPS = 4


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    for number in range(2 * GROUPS):
        made.add(numbered_rows(1000, first=1000 * number))
    return made


def groups_of(bench: Bench, job: RewriteJob) -> list[FileGroup]:
    whole = bench.group(job)
    parts = []
    for number in range(GROUPS):
        chosen = slice(2 * number, 2 * number + 2)
        files = whole.files[chosen]
        parts.append(
            replace(
                whole,
                group_id=number + 10,
                files=files,
                deletes=whole.deletes[chosen],
                input_bytes=sum(file.size_bytes for file in files),
                expected_files=1,
            )
        )
    return parts


@pytest.mark.parametrize("threads", [1, 3])
def test_each_group_comes_once_with_its_rows(bench: Bench, threads: int) -> None:
    job = bench.job(threads=threads)
    seen: list[RewriteProgress] = []
    outcomes = list(rewrite_groups(in_this_process(job, on_progress=seen.append), groups_of(bench, job)))
    assert sorted(outcome.group_id for outcome in outcomes) == [10, 11, 12, 13]
    for outcome in outcomes:
        assert isinstance(outcome, GroupRewritten)
        assert outcome.live_rows == 2000
        ids = [i for output in outcome.outputs for i in pq.read_table(local(output.path))["id"].to_pylist()]
        first = 2000 * (outcome.group_id - 10)
        assert sorted(ids) == list(range(first, first + 2000))
    assert [progress.tasks_done for progress in seen] == [1, 2, 3, 4]
    assert seen[-1].tasks_total == 4


def test_a_failed_group_leaves_the_others_alone(bench: Bench) -> None:
    bad = bench.files[3].path
    local(bad).write_bytes(b"PAR1 this is no Parquet file PAR1")
    job = bench.job(threads=2)
    outcomes = {o.group_id: o for o in rewrite_groups(in_this_process(job), groups_of(bench, job))}
    failed = outcomes.pop(11)
    assert isinstance(failed, GroupFailed)
    assert bad in failed.reason
    assert failed.created == ()
    kept = {local(f.path) for o in outcomes.values() if isinstance(o, GroupRewritten) for f in o.outputs}
    assert len(kept) == 3
    assert set(bench.written()) == kept


def test_a_group_of_several_tasks_fails_as_a_whole(bench: Bench) -> None:
    total_bytes = sum(file.size_bytes for file in bench.files)
    job = bench.job(target_bytes=total_bytes // 4, copy="never", threads=1)
    group = replace(bench.group(job), expected_files=4)
    local(bench.files[5].path).unlink()
    (outcome,) = rewrite_groups(in_this_process(job), [group])
    assert isinstance(outcome, GroupFailed)
    assert "does not exist" in outcome.reason
    assert bench.written() == []


def test_an_interrupt_keeps_only_what_was_handed_out(bench: Bench) -> None:
    job = bench.job(threads=1)
    closed = []

    def interrupt(point: str, _: Mapping[str, object]) -> None:
        if point == "rewrite.close":
            closed.append(point)
            if len(closed) == 3:
                raise KeyboardInterrupt

    outcomes = []
    with events.listening(interrupt), pytest.raises(KeyboardInterrupt):
        outcomes.extend(_collected(outcomes, job, groups_of(bench, job)))
    kept = {local(f.path) for o in outcomes for f in o.outputs}
    assert len(kept) == 2
    assert set(bench.written()) == kept


def _collected(into: list[GroupRewritten], job: RewriteJob, groups: list[FileGroup]) -> list[GroupRewritten]:
    for outcome in rewrite_groups(in_this_process(job), groups):
        assert isinstance(outcome, GroupRewritten)
        into.append(outcome)
    return []


def test_tasks_get_the_credentials_of_their_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a catalog lends end before a long run does."""
    monkeypatch.setattr(renewed_job, "RENEW_AFTER_S", 0.0)
    seen: list[str] = []

    def run(job: RewriteJob, task: RewriteTask) -> RewriteResult | RewriteFailure:
        seen.append(job.io_properties["s3.session-token"])
        return run_task(job, task)

    monkeypatch.setattr(in_process, "run_task", run)
    lent = (f"token-{number}" for number in itertools.count())
    job = replace(bench.job(), io_properties={"s3.session-token": "first"}, threads=1)
    groups = groups_of(bench, job)
    outcomes = list(rewrite_groups(in_this_process(job, renewed_io=lambda: {"s3.session-token": next(lent)}), groups))
    assert all(isinstance(outcome, GroupRewritten) for outcome in outcomes)
    assert len(seen) == len(set(seen)) == len(groups)
    assert "first" not in seen


def test_old_credentials_serve_while_no_new_ones_can_be_had(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renewed_job, "RENEW_AFTER_S", 0.0)

    def refuse() -> Mapping[str, str]:
        raise ConnectionError("token=secret")

    job = bench.job()
    outcomes = list(rewrite_groups(in_this_process(job, renewed_io=refuse), groups_of(bench, job)))
    assert all(isinstance(outcome, GroupRewritten) for outcome in outcomes)
    assert "could not be renewed: ConnectionError" in caplog.text
    assert "secret" not in caplog.text


def test_closing_early_removes_what_nobody_took(bench: Bench) -> None:
    job = bench.job(threads=2)
    outcomes = rewrite_groups(in_this_process(job), groups_of(bench, job))
    first = next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert isinstance(first, GroupRewritten)
    assert [str(path) for path in bench.written()] == [str(local(output.path)) for output in first.outputs]


def test_a_second_result_of_a_task_is_a_loser(bench: Bench, tmp_path: Path) -> None:
    job = bench.job()
    group = groups_of(bench, job)[0]
    group_results = GroupResults(job_io(job), {10: cut_group(group, job)}, {10: 1})
    paths = [tmp_path / "winner.parquet", tmp_path / "loser.parquet"]
    for path in paths:
        path.write_bytes(b"x")
    outcomes = [group_results.add(_result(path)) for path in paths]
    assert isinstance(outcomes[0], GroupRewritten)
    assert outcomes[1] is None
    assert [path.exists() for path in paths] == [True, False]


def _result(path: Path) -> RewriteResult:
    output = OutputFile(path.as_uri(), 1, 1, 0, (), {}, {}, {}, {}, {}, {}, ())
    return RewriteResult(10, 0, (output,), live_rows=1, input_rows=1)


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_group_whose_files_hold_other_rows_than_the_manifests_count_fails(bench: Bench, off_by: int) -> None:
    job = bench.job()
    whole, *others = groups_of(bench, job)
    first, *more = whole.files
    counted_otherwise = replace(whole, files=(replace(first, rows=first.rows + off_by), *more))
    outcomes = {o.group_id: o for o in rewrite_groups(in_this_process(job), [counted_otherwise, *others])}
    failed = outcomes.pop(whole.group_id)
    assert isinstance(failed, GroupFailed)
    assert "rows, the manifests say" in failed.reason
    assert all(isinstance(outcome, GroupRewritten) for outcome in outcomes.values())
    kept = [output.path for outcome in outcomes.values() for output in outcome.outputs]  # type: ignore[union-attr]
    assert sorted(str(path) for path in bench.written()) == sorted(str(local(path)) for path in kept)


def test_lost_files_are_those_of_the_run_only(bench: Bench, tmp_path: Path) -> None:
    io = job_io(bench.job())
    folder = tmp_path / "data"
    folder.mkdir()
    names = ["00000-0-run1-a.parquet", "00001-0-run1-b.parquet", "00000-0-run2-c.parquet", "run1.parquet"]
    for name in names:
        (folder / name).write_bytes(b"x")
    kept = [f"{folder.as_uri()}/{names[0]}"]
    lost = find_lost_files(io, "run1", [folder.as_uri()], kept, deep=False)
    assert lost == [f"{folder.as_uri()}/{names[1]}"]
    assert remove_files(io, lost) == []
    assert sorted(path.name for path in folder.iterdir()) == sorted([names[0], names[2], names[3]])


@pytest.mark.parametrize("name", ["a#b.parquet", "a?b.parquet", "a%20b.parquet", "a b.parquet", "ü;x.parquet"])
def test_exactly_the_named_file_is_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_bytes(b"another object")
    (tmp_path / "a b.parquet").write_bytes(b"x")
    (tmp_path / name).write_bytes(b"x")
    io = job_io(Bench(tmp_path).job())
    before = set(tmp_path.iterdir())
    assert remove_files(io, [f"file://{tmp_path}/{name}", f"file://{tmp_path}/gone.parquet"]) == []
    assert before - set(tmp_path.iterdir()) == {tmp_path / name}


def test_files_that_cannot_be_removed_are_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    io = job_io(Bench(tmp_path).job())
    path = f"file://{tmp_path}/folder"
    assert remove_files(io, [path]) == [path]


def test_outputs_of_shrinking_groups_stay_above_the_minimum(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(60):
        bench.add(numbered_rows(400, first=400 * number))
    total_bytes = sum(file.size_bytes for file in bench.files)
    job = bench.job(target_bytes=total_bytes // 6, copy_min_row_group_bytes=8 * KB * KB)
    group = bench.group(job)
    assert group.expected_files == 6
    assert sampled_ratio(job, group, job_io(job)) < 0.8
    (outcome,) = rewrite_groups(in_this_process(job), [group])
    assert isinstance(outcome, GroupRewritten)
    sizes = [output.size_bytes for output in outcome.outputs]
    assert sum(size < job.min_file_bytes for size in sizes) <= 1
    assert max(sizes) <= job.max_file_bytes


def test_a_later_call_of_the_same_run_leaves_earlier_files_alone(bench: Bench) -> None:
    job = bench.job(threads=1)
    first, second, *_ = groups_of(bench, job)
    (done,) = rewrite_groups(in_this_process(job), [first])
    assert isinstance(done, GroupRewritten)

    def interrupt(point: str, _: Mapping[str, object]) -> None:
        if point == "rewrite.close":
            raise KeyboardInterrupt

    with events.listening(interrupt), pytest.raises(KeyboardInterrupt):
        list(rewrite_groups(in_this_process(job), [second]))
    assert bench.written() == [local(output.path) for output in done.outputs]
