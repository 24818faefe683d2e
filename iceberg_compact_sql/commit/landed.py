"""What a commit leaves in a table even when its snapshot is gone again: metadata files of the log, live files."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table

from iceberg_compact_sql.commit.snapshot_draft import ManifestReader, has_live_files, read_head


def list_in_log(seen: Table, branch: str, snapshot_id: int, *, since: str | None) -> str | None:
    """The manifest list with which a snapshot was the head of a branch, from the metadata files after `since`.

    None where they do not tell: they may have left the log, or be gone.
    """
    log = [entry.metadata_file for entry in seen.metadata.metadata_log]
    for location in log[log.index(since) + 1 :] if since in log else log:
        try:
            then = FromInputFile.table_metadata(seen.io.new_input(location))
        except Exception:
            continue
        ref = then.refs.get(branch)
        found = then.snapshot_by_id(snapshot_id)
        if then.table_uuid == seen.metadata.table_uuid and found and ref and ref.snapshot_id == snapshot_id:
            return found.manifest_list
    return None


def holds_any(seen: Table, branch: str, *, manifests: Collection[str], files: Collection[str]) -> bool | None:
    """Whether the head of a branch names one of these manifests, or has one of these files; None if nobody can say."""
    reader = ManifestReader(max_kept_entries=0)
    try:
        head = read_head(seen, branch)
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
