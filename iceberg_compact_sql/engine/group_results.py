"""Task results come in, group outcomes go out: each group exactly once, and never half of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.io import FileIO

from iceberg_compact_sql.rewrite.task import (
    GroupFailed,
    GroupOutcome,
    GroupRewritten,
    OutputFile,
    RewriteFailure,
    RewriteResult,
    RewriteTask,
)
from iceberg_compact_sql.storage.remove_created import remove_files

SKIPPED = "not started, because another part of the group had failed"


class GroupAccounts:
    """Knows which tasks make up which group, and which of them are in.

    A group with a failure is failed when its last task is in; what its other tasks wrote is removed then. So is one
    whose tasks did not read exactly the rows that the manifests count in its files.
    """

    def __init__(
        self, io: FileIO, tasks: Mapping[int, Sequence[RewriteTask]], rows_by_group: Mapping[int, int]
    ) -> None:
        self._io = io
        self._rows_by_group = rows_by_group
        self._waiting = {group_id: {task.output_index for task in group} for group_id, group in tasks.items()}
        self._results: dict[int, list[RewriteResult]] = {group_id: [] for group_id in tasks}
        self._failures: dict[int, list[RewriteFailure]] = {group_id: [] for group_id in tasks}
        self._accepted: list[OutputFile] = []

    def is_failing(self, group_id: int) -> bool:
        return bool(self._failures[group_id])

    @property
    def accepted_paths(self) -> list[str]:
        """Outputs of the groups that were handed on as rewritten: theirs is the caller's decision."""
        return [output.path for output in self._accepted]

    def take(self, result: RewriteResult | RewriteFailure) -> GroupOutcome | None:
        """Book a task; its group's outcome if this was the last one. A second result for a task is a loser."""
        group_id = result.group_id
        if result.output_index not in self._waiting[group_id]:
            if isinstance(result, RewriteResult):
                # Another attempt was accepted; nothing names these files.
                remove_files(self._io, (output.path for output in result.outputs))
            return None
        self._waiting[group_id].discard(result.output_index)
        if isinstance(result, RewriteResult):
            self._results[group_id].append(result)
        else:
            self._failures[group_id].append(result)
        return None if self._waiting[group_id] else self._outcome(group_id)

    def abandon(self) -> None:
        """Remove the outputs of every group that was not handed on: nobody will commit them."""
        accepted = set(self.accepted_paths)
        known = (output.path for results in self._results.values() for r in results for output in r.outputs)
        remove_files(self._io, (path for path in known if path not in accepted))

    def _outcome(self, group_id: int) -> GroupOutcome:
        results = sorted(self._results[group_id], key=lambda result: result.output_index)
        failures = self._failures[group_id]
        outputs = tuple(output for result in results for output in result.outputs)
        read_rows, expected_rows = sum(result.input_rows for result in results), self._rows_by_group[group_id]
        if failures or read_rows != expected_rows:
            left = remove_files(self._io, (output.path for output in outputs))
            told = f"its files hold {read_rows} rows, the manifests say {expected_rows}"
            if failures:
                told = next((failure.reason for failure in failures if failure.reason != SKIPPED), SKIPPED)
            remaining = (path for failure in failures for path in failure.created)
            return GroupFailed(group_id, told, tuple(dict.fromkeys((*remaining, *left))))
        self._accepted.extend(outputs)
        return GroupRewritten(
            group_id=group_id,
            outputs=outputs,
            live_rows=sum(result.live_rows for result in results),
            copied_row_groups=sum(result.copied_row_groups for result in results),
            copied_bytes=sum(result.copied_bytes for result in results),
            seconds=sum(result.seconds for result in results),
            notes=_distinct(note for result in results for note in result.notes),
        )


def _distinct(notes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(notes))
