"""The protocol between a plan and the code that rewrites its groups.

A strategy is a `GroupRunner`: it takes groups of files and yields one outcome for each group. `strategies` maps the
name of a strategy to the factory of its runner. The planner, the action and the commit know only this
protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.task import GroupOutcome, RewriteJob


@dataclass(frozen=True, slots=True)
class RewriteProgress:
    """How many tasks are done; reported after every task, or after every Spark job of tasks."""

    tasks_done: int
    tasks_total: int


@dataclass(frozen=True, slots=True)
class RewriteRun:
    """The inputs of a runner besides its groups.

    `spark` is None without a session: then all tasks run in this process, unless `start_spark` can start one for a
    plan that is too large for it. `driver_bytes` is the largest input that the driver rewrites itself; None lets the
    runner choose. `shuffle_bytes` is the largest input of a group that one Spark task sorts; None lets the runner
    choose. `renewed_io` returns new storage properties for runs that take longer than the vended credentials are valid.
    """

    spark: Any
    job: RewriteJob
    description: str
    driver_bytes: int | None = None
    shuffle_bytes: int | None = None
    max_concurrent_groups: int | None = None
    on_progress: Callable[[RewriteProgress], None] | None = None
    renewed_io: Callable[[], Mapping[str, str]] | None = None
    start_spark: Callable[[], Any] | None = None


class GroupRunner(Protocol):
    """One way to rewrite groups.

    - Every group has exactly one outcome: all its outputs are verified and closed, or it failed. Outcomes may come
      in any order. Nothing is committed.
    - The files of a failed group are removed before its outcome is yielded, except those that `created` lists.
    - The files of a rewritten group belong to the caller as soon as the outcome is yielded.
    - When the generator is closed early, or raises (a cancelled run, Ctrl-C), the runner stops its tasks and
      Spark jobs, waits until they have stopped writing, and removes every file of groups whose outcome was not yielded.
    - A runner deletes only files that it created itself.
    """

    def run(self, groups: Sequence[FileGroup]) -> Generator[GroupOutcome, None, None]:
        """Rewrite the groups and yield each outcome as soon as it is known."""
        ...


RunnerFactory = Callable[[RewriteRun], GroupRunner]
