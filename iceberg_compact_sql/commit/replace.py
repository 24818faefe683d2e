"""Commit a REPLACE snapshot: it removes files and adds others with the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.commit.commit_snapshot import SnapshotCommitResult, commit_snapshot
from iceberg_compact_sql.commit.conflicts import find_conflicts, find_vector_conflicts
from iceberg_compact_sql.commit.dangling_deletes import NewFile, find_dangling
from iceberg_compact_sql.commit.delete_scope import DeleteId, delete_scope
from iceberg_compact_sql.commit.edit_manifests import AddedFile, edit_manifests
from iceberg_compact_sql.commit.find_files import locate_data_files
from iceberg_compact_sql.commit.model import (
    CommitInterrupted,
    CommitReport,
    NewDelete,
    Outcome,
    Replacement,
)
from iceberg_compact_sql.commit.run_stamps import group_fingerprint, stamp_summary
from iceberg_compact_sql.commit.snapshot_draft import FileFacts, Head, ManifestReader, SnapshotDraft, has_live_files
from iceberg_compact_sql.errors import CommitConflictError
from iceberg_compact_sql.format_versions import rules_of
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import new_data_file
from iceberg_compact_sql.rewrite.task import OutputFile
from iceberg_compact_sql.table.model import PlannedState
from iceberg_compact_sql.table.summary_keys import RUN_ID


def commit_replacements(
    table: Table,
    replacements: Sequence[Replacement],
    *,
    state: PlannedState,
    remove_dangling_deletes: bool = True,
    summary: Mapping[str, str] | None = None,
) -> CommitReport:
    """Commit, in one REPLACE snapshot, all replacements that do not conflict with commits since `state`.

    Each attempt validates again, from the planned snapshot to the current head. A replacement in conflict is left out
    and reported with the reason; the others are committed together. The table object is refreshed.
    Raises CommitConflictError when the table itself was dropped, or dropped and created again; CommitInterrupted
    on Ctrl-C. Deletes no data file: the caller does, as the report says.
    """
    if not replacements:
        return CommitReport(Outcome.NOTHING_TO_COMMIT)
    keys = [replacement.key for replacement in replacements]
    if len(set(keys)) != len(keys):
        raise ValueError(f"replacement keys are not unique: {keys}")
    for replacement in replacements:
        number = replacement.data_sequence_number
        if number is not None and number > state.sequence_number:
            raise ValueError(f"data sequence number {number} is beyond the planned {state.sequence_number}")
    if str(table.metadata.table_uuid) != state.table_uuid:
        raise CommitConflictError(f"table {'.'.join(table.name())} is not the table that was planned on")
    builder = _Builder(tuple(replacements), state, remove_dangling_deletes, dict(summary or {}))
    result = commit_snapshot(table, branch=state.branch, table_uuid=state.table_uuid, build=builder.build)
    report = builder.report(result)
    if result.interrupted is not None:
        raise CommitInterrupted(report) from result.interrupted
    return report


@dataclass(frozen=True, slots=True)
class _Contents:
    """Which replacements a draft holds, and why it leaves others out."""

    keys: tuple[int, ...]
    conflicts: Mapping[int, str]
    removed_delete_files: int


@dataclass(slots=True)
class _Builder:
    replacements: tuple[Replacement, ...]
    state: PlannedState
    remove_dangling_deletes: bool
    summary: dict[str, str]
    conflicts: dict[int, str] = field(default_factory=dict)
    reader: ManifestReader = field(default_factory=ManifestReader)

    def build(self, head: Head, snapshot_id: int) -> SnapshotDraft | None:
        """Return the draft on this head, or None when every replacement is in conflict."""
        # A replacement that conflicted on an earlier head stays out: later attempts never add one.
        candidates = [replacement for replacement in self.replacements if replacement.key not in self.conflicts]
        located = locate_data_files(
            head, [file for replacement in candidates for file in replacement.removed], self.reader
        )
        deletes = _live_deletes(head, self.reader)
        self.conflicts |= find_conflicts(head, self.state, candidates, located, self.reader)
        self.conflicts |= _vanished_deletes(candidates, deletes, self.conflicts)
        self.conflicts |= find_vector_conflicts(head, candidates, deletes.values(), self.conflicts, self.reader)
        accepted = [replacement for replacement in candidates if replacement.key not in self.conflicts]
        if not accepted:
            return None
        metadata = head.metadata
        removed_paths = {file.path for replacement in accepted for file in replacement.removed}
        added = [
            AddedFile(
                _data_file(metadata, output),
                replacement.data_sequence_number if rules_of(metadata.format_version).sequence_numbers else None,
            )
            for replacement in accepted
            for output in replacement.added
        ]
        removed_deletes: set[DeleteId] = {
            (delete.path, delete.content_offset) for replacement in accepted for delete in replacement.removed_deletes
        }
        removed_deletes |= self._dangling(head, deletes, removed_paths, added, removed_deletes)
        added += [
            AddedFile(_delete_file(metadata, delete), delete.sequence_number)
            for replacement in accepted
            for delete in replacement.added_deletes
        ]
        by_manifest: dict[str, set[str]] = defaultdict(set)
        for manifest_path, paths in located.by_manifest.items():
            by_manifest[manifest_path] = paths & removed_paths
        edited = edit_manifests(
            head,
            snapshot_id,
            removed_data=by_manifest,
            removed_deletes=removed_deletes,
            added=added,
            reader=self.reader,
        )
        return SnapshotDraft(
            edited.manifests,
            added=[FileFacts.of(file.file) for file in added],
            removed=[
                *(entry.facts for path in removed_paths for entry in located.files[path]),
                *edited.removed_deletes,
            ],
            properties=self._properties(accepted),
            tag=_Contents(
                tuple(replacement.key for replacement in accepted),
                dict(self.conflicts),
                len(edited.removed_deletes),
            ),
        )

    def _dangling(
        self,
        head: Head,
        deletes: Mapping[DeleteId, ManifestEntry],
        removed_paths: set[str],
        added: Sequence[AddedFile],
        already_removed: set[DeleteId],
    ) -> set[DeleteId]:
        scopes = [delete_scope(entry, head.metadata) for key, entry in deletes.items() if key not in already_removed]
        if not self.remove_dangling_deletes:
            # A deletion vector belongs to its data file and is always removed with it.
            return {scope.delete_id for scope in scopes if scope.vector and scope.target in removed_paths}
        own_number = head.metadata.next_sequence_number()
        new_files = [
            NewFile(file.file, own_number if file.sequence_number is None else file.sequence_number) for file in added
        ]
        return find_dangling(head, scopes, removed_paths=removed_paths, added=new_files, reader=self.reader)

    def _properties(self, accepted: Sequence[Replacement]) -> dict[str, str]:
        if RUN_ID not in self.summary:
            return self.summary
        fingerprints = [
            group_fingerprint(file.path for file in replacement.removed)
            for replacement in accepted
            if replacement.removed
        ]
        return {**self.summary, **stamp_summary(self.summary[RUN_ID], fingerprints)}

    def report(self, result: SnapshotCommitResult) -> CommitReport:
        contents: _Contents | None = result.draft.tag if result.draft is not None else None
        if result.outcome is Outcome.COMMITTED and contents is not None:
            return CommitReport(
                Outcome.COMMITTED,
                result.snapshot_id,
                contents.keys,
                contents.conflicts,
                contents.removed_delete_files,
                result.detail,
            )
        conflicts = dict(self.conflicts)
        if result.outcome is Outcome.FAILED:
            if all(replacement.key in conflicts for replacement in self.replacements):
                # Every replacement conflicts with a concurrent commit: nothing is left to commit.
                return CommitReport(Outcome.NOTHING_TO_COMMIT, None, (), conflicts)
            for replacement in self.replacements:
                reason = f"the commit failed: {result.detail or 'the catalog refused it'}"
                conflicts.setdefault(replacement.key, reason)
        return CommitReport(result.outcome, result.snapshot_id, (), conflicts, 0, result.detail)


def _live_deletes(head: Head, reader: ManifestReader) -> dict[DeleteId, ManifestEntry]:
    manifests = [manifest for manifest in head.of_content(ManifestContent.DELETES) if has_live_files(manifest)]
    return {
        delete_scope(entry, head.metadata).delete_id: entry
        for _, entries in reader.all_entries(head, manifests)
        for entry in entries
    }


def _vanished_deletes(
    replacements: Sequence[Replacement], deletes: Mapping[DeleteId, ManifestEntry], conflicts: Mapping[int, str]
) -> dict[int, str]:
    vanished = {}
    for replacement in replacements:
        for delete in replacement.removed_deletes:
            entry = deletes.get((delete.path, delete.content_offset))
            removed = entry is None or entry.sequence_number != delete.sequence_number
            if removed and replacement.key not in conflicts:
                vanished[replacement.key] = f"delete file {delete.path} was removed meanwhile"
    return vanished


def _data_file(metadata: TableMetadata, output: OutputFile) -> DataFile:
    return _new_file(
        metadata,
        output,
        content=DataFileContent.DATA,
        file_format=FileFormat.PARQUET,
        nan_value_counts=dict(output.nan_value_counts),
        sort_order_id=output.sort_order_id,
    )


def _delete_file(metadata: TableMetadata, new: NewDelete) -> DataFile:
    return _new_file(
        metadata,
        new,
        content=DataFileContent.POSITION_DELETES,
        file_format=FileFormat(new.file_format.upper()),
        referenced_data_file=new.referenced_path,
        content_offset=new.content_offset,
        content_size_in_bytes=new.content_size_bytes,
    )


def _new_file(metadata: TableMetadata, file: OutputFile | NewDelete, **fields: Any) -> DataFile:
    """Return the manifest's description of a written file; `fields` are those that its kind has alone."""
    return new_data_file(
        metadata,
        spec_id=file.spec_id,
        partition=file.partition,
        file_path=file.path,
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        column_sizes=dict(file.column_sizes),
        value_counts=dict(file.value_counts),
        null_value_counts=dict(file.null_value_counts),
        lower_bounds=dict(file.lower_bounds),
        upper_bounds=dict(file.upper_bounds),
        split_offsets=list(file.split_offsets) or None,
        **fields,
    )
