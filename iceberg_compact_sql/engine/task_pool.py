"""The protocol of the pools that run rewrite tasks: threads of this process, or Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from iceberg_compact_sql.rewrite.task import RewriteFailure, RewriteResult

TaskResult = RewriteResult | RewriteFailure
# How often a pool that waits for its tasks checks whether the run was cancelled.
CANCEL_CHECK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class TaskResults:
    """Results of some tasks. `repeated`: an attempt may have left files that no result lists."""

    results: tuple[TaskResult, ...]
    repeated: bool = False


class TaskPool(Protocol):
    """Runs the tasks of a plan and yields exactly one result for each."""

    @property
    def may_have_lost_files(self) -> bool:
        """Whether attempts were killed or repeated: no result lists their files."""
        ...

    def results(self, is_failing: Callable[[int], bool]) -> Iterator[TaskResults]:
        """Yield results as tasks end. A task is not started if another task of its group has failed."""
        ...

    def stop(self) -> None:
        """Cancel running tasks and wait until none of them writes; also called after the last result."""
        ...
