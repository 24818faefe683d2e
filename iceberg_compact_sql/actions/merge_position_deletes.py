"""The work of `rewrite_position_deletes`: plan on one head, write, commit, and clean what was not committed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.writable import settled, writable_table
from iceberg_compact_sql.call.declaration import Arguments, Row
from iceberg_compact_sql.catalogs.open_table import OpenTable
from iceberg_compact_sql.commit.model import CommitInterrupted, NewDelete, Outcome, Replacement
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.commit.run_stamps import stamp_summary
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.plan.options import size_limits, target_file_bytes
from iceberg_compact_sql.plan.position_deletes import (
    DeleteGroup,
    DeleteOptions,
    Place,
    place_of,
    plan_delete_groups,
    sequences_by_place,
)
from iceberg_compact_sql.rewrite.write.position_deletes import (
    PositionFile,
    live_positions,
    one_per_data_file,
    write_position_files,
)
from iceberg_compact_sql.storage.remove_created import remove_files
from iceberg_compact_sql.table.inventory import TableInventory, read_inventory

_TARGET_PROPERTY = "write.delete.target-file-size-bytes"
_TARGET_BYTES = 64 * 1024**2
_GROUP_TARGETS = 8


@dataclass
class DeleteMerge:
    """One call on one table."""

    context: Context
    arguments: Arguments
    opened: OpenTable
    options: DeleteOptions
    inventory: TableInventory
    sequences: Mapping[Place, Mapping[str, int]]
    created: list[str] = field(default_factory=list)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])

    @classmethod
    def prepare(cls, context: Context, arguments: Arguments) -> DeleteMerge:
        """Open the table, check the arguments and read the head's files and deletes."""
        opened = writable_table(context, arguments["table"])
        options = _options(arguments, opened.table.metadata.properties)
        inventory = read_inventory(opened.table, arguments["branch"])
        return cls(context, arguments, opened, options, inventory, sequences_by_place(inventory.files))

    def plan(self) -> tuple[DeleteGroup, ...]:
        """Which delete files are merged; reads manifests only."""
        places = None
        where = self.context.read_where(self.arguments["where"], self.opened.table)
        if where is not None:
            matching = read_inventory(self.opened.table, self.arguments["branch"], where)
            places = {place_of(file.spec_id, file.partition) for file in matching.files}
        return plan_delete_groups(self.inventory.deletes, self.options, sequences=self.sequences, places=places)

    def planned_row(self, groups: Sequence[DeleteGroup]) -> Row:
        """What a run would take, and at most write."""
        files = sum(len(group.deletes) for group in groups)
        outputs = sum(self._outputs(group) for group in groups)
        return (files, outputs, sum(group.input_bytes for group in groups), 0, None)

    def execute(self, groups: Sequence[DeleteGroup]) -> Row:
        """Write merged files and commit them all in one snapshot; a failure before the commit leaves nothing behind."""
        try:
            replacements = [self._replacement(group) for group in groups]
        except BaseException:
            # Safe: these paths are this run's own and were handed to no commit.
            remove_files(self.opened.table.io, self.created)
            raise
        try:
            report = commit_replacements(
                self.opened.table,
                replacements,
                state=self.inventory.state,
                remove_dangling_deletes=False,
                summary=stamp_summary(self.run_id, []),
            )
        except CommitInterrupted as interrupt:
            if interrupt.report.outcome not in (Outcome.UNKNOWN, Outcome.COMMITTED):
                # Safe: the table was asked, and nothing of this commit is in it.
                remove_files(self.opened.table.io, self.created)
            raise
        except IcebergCompactError:
            # Safe: the commit refuses in this way only when nothing of it can be in the table.
            remove_files(self.opened.table.io, self.created)
            raise
        if report.outcome is not Outcome.UNKNOWN:
            # Safe: the report says for certain that these replacements are in no snapshot.
            lost = [one for one in replacements if one.key not in report.committed]
            remove_files(self.opened.table.io, [new.path for one in lost for new in one.added_deletes])
        snapshot_id = settled(report.outcome, report.snapshot_id, report.detail)
        if snapshot_id is not None:
            self.context.refresh(self.opened)
        done = [one for one in replacements if one.key in report.committed]
        added = [new for one in done for new in one.added_deletes]
        removed = [delete for one in done for delete in one.removed_deletes]
        return (
            len(removed),
            len(added),
            sum(delete.size_bytes for delete in removed),
            sum(new.size_bytes for new in added),
            snapshot_id,
        )

    def _replacement(self, group: DeleteGroup) -> Replacement:
        table = self.opened.table
        place = place_of(group.spec_id, group.partition)
        rows: pa.Table = live_positions(table.io, group, self.sequences.get(place, {}))
        files = write_position_files(
            table.io,
            group,
            rows,
            table_location=table.location(),
            properties=table.metadata.properties,
            schema=table.schema(),
            spec=table.metadata.specs()[group.spec_id],
            run_id=self.run_id,
            outputs=self._outputs(group),
            created=self.created,
        )
        return Replacement(
            key=group.group_id,
            removed=(),
            added=(),
            data_sequence_number=None,
            removed_deletes=group.deletes,
            added_deletes=tuple(_new_delete(group, file) for file in files),
        )

    def _outputs(self, group: DeleteGroup) -> int:
        return max(1, round(group.input_bytes / self.options.target_bytes))


def _new_delete(group: DeleteGroup, file: PositionFile) -> NewDelete:
    return NewDelete(
        path=file.path,
        size_bytes=file.size_bytes,
        rows=file.rows,
        spec_id=group.spec_id,
        partition=group.partition,
        sequence_number=group.sequence_number,
        referenced_path=file.referenced_path,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
    )


def _options(arguments: Arguments, properties: Mapping[str, Any]) -> DeleteOptions:
    target = target_file_bytes(arguments["target"], properties, _TARGET_PROPERTY, _TARGET_BYTES)
    smallest, largest = size_limits(target, arguments["min_file_size"], arguments["max_file_size"])
    return DeleteOptions(
        target,
        smallest,
        largest,
        arguments["min_input_files"],
        arguments["max_group_size"] or _GROUP_TARGETS * target,
        arguments["rewrite_all"],
        one_per_data_file(properties),
    )
