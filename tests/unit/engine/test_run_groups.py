"""The seam: a strategy of a test's own carries a whole compaction, and what it gives is checked."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_compact_sql.engine.run_groups import rewrite_groups
from iceberg_compact_sql.engine.runner import RewriteRun
from iceberg_compact_sql.engine.strategies import STRATEGIES
from iceberg_compact_sql.errors import RewriteFailedError
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.rewrite.run_task import job_io, run_task
from iceberg_compact_sql.rewrite.slicing import whole_task
from iceberg_compact_sql.rewrite.task import GroupFailed, GroupOutcome, GroupRewritten, RewriteResult
from iceberg_compact_sql.storage.remove_created import remove_files
from tests.support.calls import call
from tests.support.handmade import make_small_table
from tests.support.oracle import assert_readable, entries, rows
from tests.support.plain import PlainLake
from tests.support.rewriting import Bench, in_this_process, numbered_rows

CALL = "CALL compact_table('db.t', sort_order => 'id', min_input_files => 2)"


class OneTaskPerGroup:
    """A strategy in a few lines: each group is one task, in the thread of the caller."""

    def __init__(self, run: RewriteRun) -> None:
        self._job = run.job

    def run(self, groups: Sequence[FileGroup]) -> Generator[GroupOutcome, None, None]:
        for group in groups:
            result = run_task(self._job, whole_task(group, range(len(group.files))))
            if isinstance(result, RewriteResult):
                yield GroupRewritten(group.group_id, result.outputs, result.live_rows, 0, 0, 0.0, ("one task",))
            else:
                yield GroupFailed(group.group_id, result.reason, result.created)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    for number in range(2):
        made.add(numbered_rows(100, first=100 * number))
    return made


def test_every_runner_has_a_name_that_compact_table_accepts() -> None:
    strategy = procedures()["compact_table"].parameter("strategy")
    assert strategy is not None
    assert set(STRATEGIES) <= set(strategy.choices)


def data_files(lake: PlainLake) -> set[Path]:
    return set(lake.folder.rglob("*.parquet"))


def test_a_registered_strategy_carries_a_whole_compaction(
    plain_lake: PlainLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_small_table(plain_lake.catalog)
    expected, files = rows(table), len(entries(table))
    monkeypatch.setitem(STRATEGIES, "sort", OneTaskPerGroup)
    with caplog.at_level("INFO", "iceberg_compact_sql"):
        [result] = call(plain_lake, CALL)
    assert (result["rewritten_data_files_count"], result["added_data_files_count"]) == (files, 1)
    assert "one task" in caplog.text
    table.refresh()
    assert rows(table) == expected
    assert len(entries(table)) == 1
    assert_readable(table)


def test_a_strategy_that_loses_rows_is_not_committed(plain_lake: PlainLake, monkeypatch: pytest.MonkeyPatch) -> None:
    class Losing(OneTaskPerGroup):
        def run(self, groups: Sequence[FileGroup]) -> Generator[GroupOutcome, None, None]:
            for outcome in super().run(groups):
                assert isinstance(outcome, GroupRewritten)
                yield replace(outcome, live_rows=outcome.live_rows + 1)

    table = make_small_table(plain_lake.catalog)
    before, files = table.metadata_location, data_files(plain_lake)
    monkeypatch.setitem(STRATEGIES, "sort", Losing)
    with pytest.raises(RewriteFailedError, match=r"strategy 'sort' read .* live rows and wrote"):
        call(plain_lake, CALL)
    assert table.refresh().metadata_location == before
    assert data_files(plain_lake) == files


def _silent(outcomes: list[GroupOutcome]) -> list[GroupOutcome]:
    return []


def _twice(outcomes: list[GroupOutcome]) -> list[GroupOutcome]:
    return [*outcomes, *outcomes]


def _of_another(outcomes: list[GroupOutcome]) -> list[GroupOutcome]:
    return [replace(outcome, group_id=99) for outcome in outcomes]


def with_outcomes(change: Callable[[list[GroupOutcome]], list[GroupOutcome]]) -> type[OneTaskPerGroup]:
    class Changed(OneTaskPerGroup):
        def run(self, groups: Sequence[FileGroup]) -> Generator[GroupOutcome, None, None]:
            yield from change(list(super().run(groups)))

    return Changed


def test_a_group_without_an_outcome_has_failed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "silent", with_outcomes(_silent))
    job = bench.job()
    (outcome,) = rewrite_groups(in_this_process(job), [bench.group(job)], "silent")
    assert isinstance(outcome, GroupFailed)
    assert "returned no outcome" in outcome.reason


@pytest.mark.parametrize("change", [_twice, _of_another])
def test_an_outcome_that_was_not_asked_for_stops_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, change: Callable[[list[GroupOutcome]], list[GroupOutcome]]
) -> None:
    monkeypatch.setitem(STRATEGIES, "talkative", with_outcomes(change))
    job = bench.job()
    with pytest.raises(AssertionError, match="twice, or a group that is not in the plan"):
        list(rewrite_groups(in_this_process(job), [bench.group(job)], "talkative"))


def test_closing_early_closes_the_runner(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cleaning(OneTaskPerGroup):
        def run(self, groups: Sequence[FileGroup]) -> Generator[GroupOutcome, None, None]:
            (result,) = [run_task(self._job, whole_task(group, range(len(group.files)))) for group in groups]
            try:
                yield GroupFailed(groups[0].group_id, "first")
            finally:
                assert isinstance(result, RewriteResult)
                remove_files(job_io(self._job), [output.path for output in result.outputs])

    monkeypatch.setitem(STRATEGIES, "cleaning", Cleaning)
    job = bench.job()
    outcomes = rewrite_groups(in_this_process(job), [bench.group(job)], "cleaning")
    next(outcomes)
    assert len(bench.written()) == 1
    outcomes.close()
    assert bench.written() == []
