"""Collects the results of tasks and returns one outcome for each group, when all its tasks have ended."""

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

SKIPPED = "not started, because another task of the group had failed"


class GroupResults:
    """The results of the tasks of each group.

    A group fails if one of its tasks failed, or if its tasks did not read exactly the number of rows that the manifests
    give for its files. Its outcome is known when its last task has ended. Then the files of a failed group are removed.
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
        """Paths of the outputs of groups that were returned as rewritten; the caller decides about them."""
        return [output.path for output in self._accepted]

    def add(self, result: RewriteResult | RewriteFailure) -> GroupOutcome | None:
        """Record the result of a task; return its group's outcome if it was the last one.

        A second result for the same task is ignored, and its files are removed.
        """
        group_id = result.group_id
        if result.output_index not in self._waiting[group_id]:
            if isinstance(result, RewriteResult):
                # Safe: another attempt was accepted, and no result or commit names these files.
                remove_files(self._io, (output.path for output in result.outputs))
            return None
        self._waiting[group_id].discard(result.output_index)
        if isinstance(result, RewriteResult):
            self._results[group_id].append(result)
        else:
            self._failures[group_id].append(result)
        return None if self._waiting[group_id] else self._outcome(group_id)

    def abandon(self) -> None:
        """Remove the outputs of every group whose outcome was not returned: they will not be committed."""
        accepted = set(self.accepted_paths)
        all_paths = (output.path for results in self._results.values() for r in results for output in r.outputs)
        remove_files(self._io, (path for path in all_paths if path not in accepted))

    def _outcome(self, group_id: int) -> GroupOutcome:
        results = sorted(self._results[group_id], key=lambda result: result.output_index)
        failures = self._failures[group_id]
        outputs = tuple(output for result in results for output in result.outputs)
        read_rows, expected_rows = sum(result.input_rows for result in results), self._rows_by_group[group_id]
        if failures or read_rows != expected_rows:
            left = remove_files(self._io, (output.path for output in outputs))
            reason = f"its files hold {read_rows} rows, the manifests say {expected_rows}"
            if failures:
                reason = next((failure.reason for failure in failures if failure.reason != SKIPPED), SKIPPED)
            remaining = (path for failure in failures for path in failure.created)
            return GroupFailed(group_id, reason, tuple(dict.fromkeys((*remaining, *left))))
        self._accepted.extend(outputs)
        return GroupRewritten(
            group_id=group_id,
            outputs=outputs,
            live_rows=sum(result.live_rows for result in results),
            copied_row_groups=sum(result.copied_row_groups for result in results),
            copied_bytes=sum(result.copied_bytes for result in results),
            seconds=sum(result.seconds for result in results),
            notes=_distinct(note for result in results for note in result.notes),
            spliced_columns=sum(result.spliced_columns for result in results),
        )


def _distinct(notes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(notes))
