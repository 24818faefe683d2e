"""Proof that a commit landed although its snapshot was expired since: the metadata log, and files that are live."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from iceberg_compact_sql.commit.snapshot_draft import ManifestReader, has_live_files, read_head


def manifest_list_in_log(table: Table, branch: str, snapshot_id: int, *, since: str | None) -> str | None:
    """Return the manifest list of a snapshot that was the head of a branch, from the metadata files after `since`.

    None when no metadata file shows it: they may have left the log, or be deleted.
    """
    log = [entry.metadata_file for entry in table.metadata.metadata_log]
    for location in log[log.index(since) + 1 :] if since in log else log:
        try:
            logged = FromInputFile.table_metadata(table.io.new_input(location))
        except Exception:
            continue
        ref = logged.refs.get(branch)
        snapshot = logged.snapshot_by_id(snapshot_id)
        if logged.table_uuid == table.metadata.table_uuid and snapshot and ref and ref.snapshot_id == snapshot_id:
            return snapshot.manifest_list
    return None


def branch_holds_any(table: Table, branch: str, *, manifests: Collection[str], files: Collection[str]) -> bool | None:
    """Whether the head of a branch has one of these manifests or files; None if it cannot be read."""
    reader = ManifestReader(max_cached_entries=0)
    try:
        head = read_head(table, branch)
        if head is None:
            return None
        if any(manifest.manifest_path in manifests for manifest in head.manifests):
            return True
        return any(
            entry.data_file.file_path in files
            for manifest in head.manifests
            if has_live_files(manifest)
            for entry in reader.entries(head, manifest)
        )
    except Exception:
        return None
