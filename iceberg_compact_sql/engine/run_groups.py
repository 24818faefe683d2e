"""Rewrites the groups of a plan with the runner of its strategy, and checks the outcomes of the runner."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

from iceberg_compact_sql.engine.runner import RewriteRun
from iceberg_compact_sql.engine.strategies import STRATEGIES
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.run_task import job_io
from iceberg_compact_sql.rewrite.task import GroupFailed, GroupOutcome
from iceberg_compact_sql.storage.remove_created import remove_files


def check_strategy(name: str) -> None:
    """Refuse a strategy that has no runner."""
    if name not in STRATEGIES:
        raise UnsupportedError(
            f"strategy '{name}' is not supported yet",
            argument="strategy",
            value=name,
            hint=f"Supported: {', '.join(STRATEGIES)}.",
        )


def rewrite_groups(
    run: RewriteRun, groups: Sequence[FileGroup], strategy: str = "binpack"
) -> Generator[GroupOutcome, None, None]:
    """Rewrite groups and yield one outcome for each, as soon as it is known. Commits nothing.

    Close the generator to stop early: this cancels running tasks, and removes the files of groups whose outcome was
    not yielded. `GroupRunner` has the full contract.
    """
    check_strategy(strategy)
    waiting = {group.group_id for group in groups}
    with contextlib.closing(STRATEGIES[strategy](run).run(groups)) as outcomes:
        for outcome in outcomes:
            if outcome.group_id not in waiting:
                raise AssertionError(
                    f"strategy '{strategy}' returned group {outcome.group_id} twice, or a group that is not in the plan"
                )
            waiting.discard(outcome.group_id)
            yield _checked(run, strategy, outcome)
    for group_id in sorted(waiting):
        yield GroupFailed(group_id, f"strategy '{strategy}' returned no outcome for it")


def _checked(run: RewriteRun, strategy: str, outcome: GroupOutcome) -> GroupOutcome:
    """Return the outcome if live rows in = rows out; otherwise remove its outputs and return a failure."""
    if isinstance(outcome, GroupFailed):
        return outcome
    written_rows = sum(output.rows for output in outcome.outputs)
    if written_rows == outcome.live_rows:
        return outcome
    # Safe: the outcome was not yielded, so no commit names these files.
    left = remove_files(job_io(run.job), [output.path for output in outcome.outputs])
    reason = f"strategy '{strategy}' read {outcome.live_rows} live rows and wrote {written_rows}"
    return GroupFailed(outcome.group_id, reason, tuple(left))
