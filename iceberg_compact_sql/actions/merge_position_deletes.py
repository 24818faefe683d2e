"""The work of `rewrite_position_deletes`: plan on one head, write, commit, and remove files that were not committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.reporting import reported, snapshot_ids
from iceberg_compact_sql.actions.writable import committed_snapshot, writable_table
from iceberg_compact_sql.catalogs.open_table import OpenTable
from iceberg_compact_sql.commit.model import CommitInterrupted, NewDelete, Outcome, Replacement
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.commit.run_stamps import stamp_summary
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.format_versions import rules_of
from iceberg_compact_sql.plan.options import size_limits, target_file_bytes
from iceberg_compact_sql.plan.position_deletes import (
    DeleteGroup,
    DeleteOptions,
    PartitionKey,
    partition_key,
    plan_delete_groups,
    plan_vector_groups,
    sequences_by_partition,
)
from iceberg_compact_sql.rewrite.deletes.vectors import read_vector
from iceberg_compact_sql.rewrite.write.position_deletes import (
    PositionFile,
    live_positions,
    one_per_data_file,
    positions_by_file,
    write_position_files,
)
from iceberg_compact_sql.rewrite.write.vectors import write_vectors
from iceberg_compact_sql.storage.remove_created import remove_files
from iceberg_compact_sql.table.inventory import TableInventory, read_inventory
from iceberg_compact_sql.table.model import DeleteKind
from iceberg_compact_sql.table.properties import DELETE_TARGET_FILE_BYTES
from iceberg_compact_sql.table.pruning import FilePruner

_GROUP_TARGETS = 8


@dataclass(frozen=True, kw_only=True)
class PositionDeletesRequest:
    """One merge of the position delete files of one table. None means the default.

    `where` selects partitions with data files that may match. With `where_by_partition` only the values of a partition
    decide, as in Iceberg: conditions on other columns are ignored.
    """

    table: str
    branch: str = "main"
    where: str | None = None
    target_bytes: int | None = None
    min_file_bytes: int | None = None
    max_file_bytes: int | None = None
    min_input_files: int = 5
    max_group_bytes: int | None = None
    max_group_files: int | None = None
    rewrite_all: bool = False
    where_by_partition: bool = False


@dataclass(frozen=True, kw_only=True)
class PositionDeletesResult:
    """What was merged, or at most would be; `snapshot_id` is None if nothing was committed."""

    rewritten_delete_files: int = 0
    added_delete_files: int = 0
    rewritten_bytes: int = 0
    added_bytes: int = 0
    snapshot_id: int | None = None


def plan_position_deletes(request: PositionDeletesRequest, context: Context) -> PositionDeletesResult:
    """Return what `rewrite_position_deletes` would merge now, and at most write; reads only manifests."""
    with context.run(lambda: (None, "Nothing was changed.")):
        merge = _DeleteMerge.prepare(request, context)
        return merge.planned(merge.plan())


def rewrite_position_deletes(request: PositionDeletesRequest, context: Context) -> PositionDeletesResult:
    """Commit a REPLACE snapshot in which the same rows are deleted by fewer files; a no-op if there is nothing to do.

    A cancelled run commits nothing and removes what it wrote.
    """
    result = PositionDeletesResult()

    def facts() -> dict[str, Any]:
        return {
            "snapshot_ids": snapshot_ids(result.snapshot_id),
            "removed_delete_files": result.rewritten_delete_files,
            "added_delete_files": result.added_delete_files,
            "removed_bytes": result.rewritten_bytes,
            "added_bytes": result.added_bytes,
        }

    with (
        reported(context, "rewrite_position_deletes", request.table, facts),
        context.run(lambda: (PositionDeletesResult(), "Nothing was committed; the table is as it was.")),
    ):
        merge = _DeleteMerge.prepare(request, context)
        groups = merge.plan()
        if groups:
            result = merge.execute(groups)
    return result


@dataclass
class _DeleteMerge:
    """One merge on one table."""

    context: Context
    request: PositionDeletesRequest
    opened: OpenTable
    options: DeleteOptions
    inventory: TableInventory
    sequences: Mapping[PartitionKey, Mapping[str, int]]
    created: list[str] = field(default_factory=list)

    @classmethod
    def prepare(cls, request: PositionDeletesRequest, context: Context) -> _DeleteMerge:
        """Open the table, check the arguments and read the head's files and deletes."""
        opened = writable_table(context, request.table)
        options = _options(request, opened.table.metadata.properties)
        inventory = read_inventory(opened.table, request.branch)
        return cls(context, request, opened, options, inventory, sequences_by_partition(inventory.files))

    def plan(self) -> tuple[DeleteGroup, ...]:
        """Return which delete files are merged; reads only manifests."""
        partitions: set[PartitionKey] | None = None
        where = self.context.read_where(self.request.where, self.opened.table)
        if where is not None and self.request.where_by_partition:
            metadata = self.opened.table.metadata
            pruner = FilePruner(where, metadata.schema(), metadata.specs())
            partitions = {
                partition_key(delete.spec_id, delete.partition)
                for delete in self.inventory.deletes
                if pruner.partition_may_match(delete.spec_id, delete.partition)
            }
        elif where is not None:
            matching = read_inventory(self.opened.table, self.request.branch, where)
            partitions = {partition_key(file.spec_id, file.partition) for file in matching.files}
        inventory = self.inventory
        if self._writes_vectors:
            return plan_vector_groups(inventory.deletes, self.options, files=inventory.files, partitions=partitions)
        return plan_delete_groups(inventory.deletes, self.options, sequences=self.sequences, partitions=partitions)

    def planned(self, groups: Sequence[DeleteGroup]) -> PositionDeletesResult:
        """Return what a run would merge, and at most write."""
        return PositionDeletesResult(
            rewritten_delete_files=sum(len(group.deletes) for group in groups),
            added_delete_files=sum(self._outputs(group) for group in groups),
            rewritten_bytes=sum(group.input_bytes for group in groups),
        )

    def execute(self, groups: Sequence[DeleteGroup]) -> PositionDeletesResult:
        """Write merged files and commit them all in one snapshot; a failure before the commit leaves no files."""
        try:
            replacements = [self._replacement(group) for group in groups]
        except BaseException:
            # Safe: this run created these paths, and they were never part of a commit.
            remove_files(self.opened.table.io, self.created)
            raise
        try:
            with events.uninterrupted():
                report = commit_replacements(
                    self.opened.table,
                    replacements,
                    state=self.inventory.state,
                    remove_dangling_deletes=False,
                    summary={**self.context.engine_summary, **stamp_summary(self.context.observer.run_id, [])},
                )
        except CommitInterrupted as interrupt:
            if interrupt.report.outcome not in (Outcome.UNKNOWN, Outcome.COMMITTED):
                # Safe: the table was checked, and nothing of this commit is in it.
                remove_files(self.opened.table.io, self.created)
            raise
        except IcebergCompactError:
            # Safe: the commit raises this only if it is certainly not in the table.
            remove_files(self.opened.table.io, self.created)
            raise
        if report.outcome is not Outcome.UNKNOWN:
            # Safe: the report says for certain that these replacements are in no snapshot.
            lost = [replacement for replacement in replacements if replacement.key not in report.committed]
            remove_files(self.opened.table.io, [new.path for replacement in lost for new in replacement.added_deletes])
        snapshot_id = committed_snapshot(report.outcome, report.snapshot_id, report.detail)
        if snapshot_id is not None:
            self.context.refresh(self.opened)
        done = [replacement for replacement in replacements if replacement.key in report.committed]
        added = [new for replacement in done for new in replacement.added_deletes]
        removed = [delete for replacement in done for delete in replacement.removed_deletes]
        return PositionDeletesResult(
            rewritten_delete_files=len(removed),
            added_delete_files=len(added),
            rewritten_bytes=sum(delete.own_bytes for delete in removed),
            added_bytes=sum(new.own_bytes for new in added),
            snapshot_id=snapshot_id,
        )

    def _replacement(self, group: DeleteGroup) -> Replacement:
        write = self._vectors if self._writes_vectors else self._position_files
        return Replacement(
            key=group.group_id,
            removed=(),
            added=(),
            data_sequence_number=None,
            removed_deletes=group.deletes,
            added_deletes=write(group),
        )

    def _position_files(self, group: DeleteGroup) -> tuple[NewDelete, ...]:
        files = write_position_files(
            self.opened.table.io,
            group,
            live_positions(self.opened.table.io, group, self._sequences_of(group)),
            outputs=self._outputs(group),
            **self._writing(group),
        )
        return tuple(_new_delete(group, file) for file in files)

    def _vectors(self, group: DeleteGroup) -> tuple[NewDelete, ...]:
        io = self.opened.table.io
        moved = {delete.referenced_path: delete for delete in group.deletes if delete.kind is DeleteKind.VECTOR}
        # A data file with a vector keeps exactly that one: readers ignore its position deletes already.
        hidden = {delete.referenced_path for delete in self.inventory.deletes if delete.kind is DeleteKind.VECTOR}
        merged = live_positions(io, group, self._sequences_of(group))
        positions = {path: rows for path, rows in positions_by_file(merged) if path not in hidden}
        # Rows that spell the path of a live file in another way delete nothing, and no vector can hold them.
        positions = {path: rows for path, rows in positions.items() if path in self._sequences_of(group)}
        positions |= {path: read_vector(io, delete) for path, delete in moved.items() if path is not None}
        written = write_vectors(io, group, positions, **self._writing(group))
        return tuple(
            NewDelete(
                path=vector.path,
                size_bytes=vector.size_bytes,
                rows=vector.rows,
                spec_id=group.spec_id,
                partition=group.partition,
                sequence_number=(
                    moved[vector.referenced_path].sequence_number
                    if vector.referenced_path in moved
                    else group.sequence_number
                ),
                referenced_path=vector.referenced_path,
                file_format="PUFFIN",
                content_offset=vector.content_offset,
                content_size_bytes=vector.content_size_bytes,
            )
            for vector in written
        )

    @property
    def _writes_vectors(self) -> bool:
        return rules_of(self.opened.table.metadata.format_version).deletion_vectors

    def _sequences_of(self, group: DeleteGroup) -> Mapping[str, int]:
        return self.sequences.get(partition_key(group.spec_id, group.partition), {})

    def _writing(self, group: DeleteGroup) -> dict[str, Any]:
        """Return where new delete files of a group are written, and with which settings."""
        table = self.opened.table
        return {
            "table_location": table.location(),
            "properties": table.metadata.properties,
            "schema": table.schema(),
            "spec": table.metadata.specs()[group.spec_id],
            "run_id": self.context.observer.run_id,
            "created": self.created,
        }

    def _outputs(self, group: DeleteGroup) -> int:
        if self._writes_vectors:
            # At most one for each data file of the partition.
            return max(1, len(self._sequences_of(group)))
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


def _options(request: PositionDeletesRequest, properties: Mapping[str, Any]) -> DeleteOptions:
    target = target_file_bytes(request.target_bytes, properties, DELETE_TARGET_FILE_BYTES)
    smallest, largest = size_limits(target, request.min_file_bytes, request.max_file_bytes)
    return DeleteOptions(
        target,
        smallest,
        largest,
        request.min_input_files,
        request.max_group_bytes or _GROUP_TARGETS * target,
        request.rewrite_all,
        one_per_data_file(properties),
        request.max_group_files,
    )
