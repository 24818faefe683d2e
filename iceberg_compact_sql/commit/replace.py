"""The REPLACE snapshot: files out, files in, the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.commit.commit_loop import Attempted, commit_snapshot
from iceberg_compact_sql.commit.conflicts import find_conflicts
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
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import new_data_file
from iceberg_compact_sql.rewrite.task import OutputFile
from iceberg_compact_sql.storage.paths import same_file_key
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
    """Commit all replacements that nothing since `state` forbids, in one REPLACE snapshot.

    Each try validates again from the planned snapshot to the head then seen. A replacement in conflict is left out
    and named in the report with the reason; the others go in together. The table object is brought up to date.
    Raises CommitConflictError when the table itself was dropped, or dropped and created again; CommitInterrupted
    on Ctrl-C. Deletes no data file: the caller does, by the report.
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
    attempted = commit_snapshot(table, branch=state.branch, table_uuid=state.table_uuid, build=builder.build)
    report = builder.report(attempted)
    if attempted.interrupted is not None:
        raise CommitInterrupted(report) from attempted.interrupted
    return report


@dataclass(frozen=True, slots=True)
class _Contents:
    """Which replacements a draft holds, and what it forbids the others."""

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
        """The draft on this head, or None when every replacement is in conflict."""
        # What went out on an earlier head stays out: a draft only ever loses replacements from try to try.
        standing = [one for one in self.replacements if one.key not in self.conflicts]
        located = locate_data_files(head, [file for one in standing for file in one.removed], self.reader)
        deletes = _live_deletes(head, self.reader)
        self.conflicts |= find_conflicts(head, self.state, standing, located, self.reader)
        self.conflicts |= _vanished_deletes(standing, deletes, self.conflicts)
        accepted = [one for one in standing if one.key not in self.conflicts]
        if not accepted:
            return None
        metadata = head.metadata
        removed_paths = {file.path for one in accepted for file in one.removed}
        added = [
            AddedFile(_data_file(metadata, output), one.data_sequence_number if metadata.format_version > 1 else None)
            for one in accepted
            for output in one.added
        ]
        going: set[DeleteId] = {(d.path, d.content_offset) for one in accepted for d in one.removed_deletes}
        going |= self._dangling(head, deletes, removed_paths, added, going)
        added += [
            AddedFile(_delete_file(metadata, new), new.sequence_number) for one in accepted for new in one.added_deletes
        ]
        by_manifest: dict[str, set[str]] = defaultdict(set)
        for manifest_path, paths in located.by_manifest.items():
            by_manifest[manifest_path] = paths & removed_paths
        edited = edit_manifests(
            head,
            snapshot_id,
            removed_data=by_manifest,
            removed_deletes=going,
            added=added,
            reader=self.reader,
        )
        return SnapshotDraft(
            edited.manifests,
            added=[FileFacts.of(one.file) for one in added],
            removed=[
                *(found.facts for path in removed_paths for found in located.files[path]),
                *edited.removed_deletes,
            ],
            properties=self._properties(accepted),
            tag=_Contents(
                tuple(one.key for one in accepted),
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
        going: set[DeleteId],
    ) -> set[DeleteId]:
        scopes = [delete_scope(entry, head.metadata) for key, entry in deletes.items() if key not in going]
        if not self.remove_dangling_deletes:
            # A deletion vector belongs to its data file and goes with it in any case.
            gone = {same_file_key(path) for path in removed_paths}
            return {scope.delete_id for scope in scopes if scope.vector and scope.target in gone}
        own_number = head.metadata.next_sequence_number()
        new_files = [
            NewFile(one.file, own_number if one.sequence_number is None else one.sequence_number) for one in added
        ]
        return find_dangling(head, scopes, removed_paths=removed_paths, added=new_files, reader=self.reader)

    def _properties(self, accepted: Sequence[Replacement]) -> dict[str, str]:
        if RUN_ID not in self.summary:
            return self.summary
        fingerprints = [group_fingerprint(file.path for file in one.removed) for one in accepted if one.removed]
        return {**self.summary, **stamp_summary(self.summary[RUN_ID], fingerprints)}

    def report(self, attempted: Attempted) -> CommitReport:
        contents: _Contents | None = attempted.draft.tag if attempted.draft is not None else None
        if attempted.outcome is Outcome.COMMITTED and contents is not None:
            return CommitReport(
                Outcome.COMMITTED,
                attempted.snapshot_id,
                contents.keys,
                contents.conflicts,
                contents.removed_delete_files,
                attempted.detail,
            )
        conflicts = dict(self.conflicts)
        if attempted.outcome is Outcome.FAILED:
            if all(one.key in conflicts for one in self.replacements):
                # Every replacement lost against a change that it met: there was nothing left to commit.
                return CommitReport(Outcome.NOTHING_TO_COMMIT, None, (), conflicts)
            for one in self.replacements:
                conflicts.setdefault(one.key, f"the commit failed: {attempted.detail or 'the catalog refused it'}")
        return CommitReport(attempted.outcome, attempted.snapshot_id, (), conflicts, 0, attempted.detail)


def _live_deletes(head: Head, reader: ManifestReader) -> dict[DeleteId, ManifestEntry]:
    return {
        delete_scope(entry, head.metadata).delete_id: entry
        for manifest in head.of_content(ManifestContent.DELETES)
        if has_live_files(manifest)
        for entry in reader.entries(head, manifest)
    }


def _vanished_deletes(
    standing: Sequence[Replacement], deletes: Mapping[DeleteId, ManifestEntry], conflicts: Mapping[int, str]
) -> dict[int, str]:
    found = {}
    for one in standing:
        for delete in one.removed_deletes:
            entry = deletes.get((delete.path, delete.content_offset))
            if one.key not in conflicts and (entry is None or entry.sequence_number != delete.sequence_number):
                found[one.key] = f"delete file {delete.path} was removed meanwhile"
    return found


def _data_file(metadata: TableMetadata, output: OutputFile) -> DataFile:
    return new_data_file(
        metadata,
        spec_id=output.spec_id,
        partition=output.partition,
        content=DataFileContent.DATA,
        file_path=output.path,
        file_format=FileFormat.PARQUET,
        record_count=output.rows,
        file_size_in_bytes=output.size_bytes,
        column_sizes=dict(output.column_sizes),
        value_counts=dict(output.value_counts),
        null_value_counts=dict(output.null_value_counts),
        nan_value_counts=dict(output.nan_value_counts),
        lower_bounds=dict(output.lower_bounds),
        upper_bounds=dict(output.upper_bounds),
        split_offsets=list(output.split_offsets) or None,
        sort_order_id=output.sort_order_id,
    )


def _delete_file(metadata: TableMetadata, new: NewDelete) -> DataFile:
    return new_data_file(
        metadata,
        spec_id=new.spec_id,
        partition=new.partition,
        content=DataFileContent.POSITION_DELETES,
        file_path=new.path,
        file_format=FileFormat(new.file_format.upper()),
        record_count=new.rows,
        file_size_in_bytes=new.size_bytes,
        column_sizes=dict(new.column_sizes),
        value_counts=dict(new.value_counts),
        null_value_counts=dict(new.null_value_counts),
        lower_bounds=dict(new.lower_bounds),
        upper_bounds=dict(new.upper_bounds),
        split_offsets=list(new.split_offsets) or None,
        referenced_data_file=new.referenced_path,
    )
