"""Draft the manifests of a new snapshot: those of the head, with files removed and files added.

`edit_manifests` drafts them; `commit_snapshot` commits a draft. A rewrite of manifests does not need it: it drafts
`ManifestDraft`s of `existing_entry` records beside the manifests that it keeps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile

from iceberg_compact_sql.commit.delete_scope import DeleteId, delete_id
from iceberg_compact_sql.commit.snapshot_draft import (
    FileFacts,
    Head,
    ManifestDraft,
    ManifestReader,
    added_entry,
    deleted_entry,
    existing_entry,
    has_live_files,
)
from iceberg_compact_sql.table.properties import (
    MANIFEST_MERGE_ENABLED,
    MANIFEST_MIN_COUNT_TO_MERGE,
    MANIFEST_TARGET_BYTES,
)


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data or delete file to add; `sequence_number` None: that of the new snapshot."""

    file: DataFile
    sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class EditedManifests:
    """Manifests of the new snapshot, and the delete files that it removes."""

    manifests: list[ManifestFile | ManifestDraft]
    removed_deletes: list[FileFacts]


def edit_manifests(
    head: Head,
    snapshot_id: int,
    *,
    removed_data: Mapping[str, Collection[str]],
    removed_deletes: Collection[DeleteId],
    added: Sequence[AddedFile],
    reader: ManifestReader,
) -> EditedManifests:
    """Draft the manifests of a snapshot that adds and removes files of any spec.

    `removed_data` gives the paths to remove by the manifest that holds them. A changed manifest is
    rewritten with DELETED entries and EXISTING ones for the rest. Others are kept by reference. A manifest that holds
    only DELETED entries of earlier snapshots is dropped.
    """
    drafts: list[ManifestFile | ManifestDraft] = list(_added_drafts(added, snapshot_id))
    dropped: list[FileFacts] = []
    for manifest in head.manifests:
        if not has_live_files(manifest):
            continue
        removed_ids: Collection[DeleteId] = ()
        if manifest.content == ManifestContent.DATA:
            removed_ids = {(path, None) for path in removed_data.get(manifest.manifest_path, ())}
        elif removed_deletes:
            matches = {delete_id(e): e for e in reader.entries(head, manifest) if delete_id(e) in removed_deletes}
            dropped.extend(FileFacts.of(entry.data_file) for entry in matches.values())
            removed_ids = matches.keys()
        drafts.append(
            _with_deleted_entries(head, manifest, frozenset(removed_ids), snapshot_id, reader)
            if removed_ids
            else manifest
        )
    return EditedManifests(_merge_small(head, drafts, reader), dropped)


def _with_deleted_entries(
    head: Head, manifest: ManifestFile, removed_ids: frozenset[DeleteId], snapshot_id: int, reader: ManifestReader
) -> ManifestDraft:
    """Return a manifest with DELETED entries for some of its files and EXISTING ones for the others."""

    def entries() -> list[ManifestEntry]:
        return [
            deleted_entry(entry, snapshot_id) if _file_id(manifest, entry) in removed_ids else existing_entry(entry)
            for entry in reader.entries(head, manifest)
        ]

    return ManifestDraft(
        manifest.content, manifest.partition_spec_id, entries, ("edited", manifest.manifest_path, removed_ids)
    )


def _file_id(manifest: ManifestFile, entry: ManifestEntry) -> DeleteId:
    return (entry.data_file.file_path, None) if manifest.content == ManifestContent.DATA else delete_id(entry)


def _added_drafts(added: Sequence[AddedFile], snapshot_id: int) -> list[ManifestDraft]:
    groups: dict[tuple[ManifestContent, int], list[AddedFile]] = defaultdict(list)
    for new in added:
        content = ManifestContent.DATA if new.file.content == DataFileContent.DATA else ManifestContent.DELETES
        groups[content, new.file.spec_id].append(new)
    return [
        ManifestDraft(
            content,
            spec_id,
            [added_entry(new.file, snapshot_id, new.sequence_number) for new in group],
            ("added", content, spec_id, tuple((new.file.file_path, new.sequence_number) for new in group)),
        )
        for (content, spec_id), group in groups.items()
    ]


def _merge_small(
    head: Head, drafts: list[ManifestFile | ManifestDraft], reader: ManifestReader
) -> list[ManifestFile | ManifestDraft]:
    """Merge small kept manifests of one spec and content when there are many, as `commit.manifest.*` says.

    Only manifests kept by reference are merged: drafts keep their DELETED entries and are reused by later attempts.
    """
    properties = head.metadata.properties
    if not MANIFEST_MERGE_ENABLED.of(properties):
        return drafts
    min_count, target_bytes = MANIFEST_MIN_COUNT_TO_MERGE.of(properties), MANIFEST_TARGET_BYTES.of(properties)
    groups: dict[tuple[ManifestContent, int], list[ManifestFile]] = defaultdict(list)
    for manifest in drafts:
        if isinstance(manifest, ManifestFile) and manifest.manifest_length < target_bytes:
            groups[manifest.content, manifest.partition_spec_id].append(manifest)
    replaced: dict[str, ManifestDraft | None] = {}
    for (content, spec_id), manifests in groups.items():
        if len(manifests) < max(2, min_count):
            continue
        for run in _runs(manifests, target_bytes):
            paths = [manifest.manifest_path for manifest in run]
            replaced.update(dict.fromkeys(paths))
            replaced[paths[0]] = ManifestDraft(
                content, spec_id, partial(_existing_entries, head, run, reader), ("merged", tuple(paths))
            )
    merged: list[ManifestFile | ManifestDraft] = []
    for manifest in drafts:
        if isinstance(manifest, ManifestFile) and manifest.manifest_path in replaced:
            draft = replaced[manifest.manifest_path]
            if draft is not None:
                merged.append(draft)
        else:
            merged.append(manifest)
    return merged


def _existing_entries(head: Head, manifests: Sequence[ManifestFile], reader: ManifestReader) -> list[ManifestEntry]:
    return [existing_entry(entry) for _, entries in reader.all_entries(head, manifests) for entry in entries]


def _runs(manifests: Sequence[ManifestFile], target_bytes: int) -> list[list[ManifestFile]]:
    runs: list[list[ManifestFile]] = []
    size = 0
    for manifest in manifests:
        if not runs or size + manifest.manifest_length > target_bytes:
            runs.append([])
            size = 0
        runs[-1].append(manifest)
        size += manifest.manifest_length
    return [run for run in runs if len(run) > 1]
