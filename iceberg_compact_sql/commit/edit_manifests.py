"""The one primitive under every change of ours: a head's manifests with files removed and files added.

`edit_manifests` drafts them; `attempts.commit_snapshot` brings a draft into the table. A rewrite of manifests needs
no edit: it drafts `ManifestDraft`s of `existing_entry` records beside the manifests that it keeps.
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

_MERGE_ENABLED = "commit.manifest-merge.enabled"
_MIN_COUNT = "commit.manifest.min-count-to-merge"
_TARGET_BYTES = "commit.manifest.target-size-bytes"


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data or delete file to add; `sequence_number` None: that of the new snapshot."""

    file: DataFile
    sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class EditedManifests:
    """Manifests of the new snapshot, and the delete files that went."""

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

    `removed_data` gives the paths to remove by the manifest that holds them. A touched manifest becomes one with
    tombstones and the carried-over rest; an untouched one is kept by reference; one that held only tombstones of
    earlier snapshots is dropped.
    """
    drafts: list[ManifestFile | ManifestDraft] = list(_added_drafts(added, snapshot_id))
    gone: list[FileFacts] = []
    for manifest in head.manifests:
        if not has_live_files(manifest):
            continue
        victims: Collection[DeleteId] = ()
        if manifest.content == ManifestContent.DATA:
            victims = {(path, None) for path in removed_data.get(manifest.manifest_path, ())}
        elif removed_deletes:
            found = {delete_id(e): e for e in reader.entries(head, manifest) if delete_id(e) in removed_deletes}
            gone.extend(FileFacts.of(entry.data_file) for entry in found.values())
            victims = found.keys()
        drafts.append(_without(head, manifest, frozenset(victims), snapshot_id, reader) if victims else manifest)
    return EditedManifests(_merge_small(head, drafts, reader), gone)


def _without(
    head: Head, manifest: ManifestFile, victims: frozenset[DeleteId], snapshot_id: int, reader: ManifestReader
) -> ManifestDraft:
    """A manifest with some of its files as tombstones and all others carried over."""

    def entries() -> list[ManifestEntry]:
        return [
            deleted_entry(entry, snapshot_id) if _identity(manifest, entry) in victims else existing_entry(entry)
            for entry in reader.entries(head, manifest)
        ]

    return ManifestDraft(
        manifest.content, manifest.partition_spec_id, entries, ("edited", manifest.manifest_path, victims)
    )


def _identity(manifest: ManifestFile, entry: ManifestEntry) -> DeleteId:
    return (entry.data_file.file_path, None) if manifest.content == ManifestContent.DATA else delete_id(entry)


def _added_drafts(added: Sequence[AddedFile], snapshot_id: int) -> list[ManifestDraft]:
    groups: dict[tuple[ManifestContent, int], list[AddedFile]] = defaultdict(list)
    for one in added:
        content = ManifestContent.DATA if one.file.content == DataFileContent.DATA else ManifestContent.DELETES
        groups[content, one.file.spec_id].append(one)
    return [
        ManifestDraft(
            content,
            spec_id,
            [added_entry(one.file, snapshot_id, one.sequence_number) for one in ones],
            ("added", content, spec_id, tuple((one.file.file_path, one.sequence_number) for one in ones)),
        )
        for (content, spec_id), ones in groups.items()
    ]


def _merge_small(
    head: Head, drafts: list[ManifestFile | ManifestDraft], reader: ManifestReader
) -> list[ManifestFile | ManifestDraft]:
    """Join runs of small kept manifests of one spec and content once there are many, as `commit.manifest.*` says.

    Only manifests by reference are joined: the drafts of this commit keep their tombstones and their reuse over tries.
    """
    properties = head.metadata.properties
    if properties.get(_MERGE_ENABLED, "true").lower() != "true":
        return drafts
    min_count, target_bytes = _number(properties, _MIN_COUNT, 100), _number(properties, _TARGET_BYTES, 8 * 1024**2)
    groups: dict[tuple[ManifestContent, int], list[ManifestFile]] = defaultdict(list)
    for one in drafts:
        if isinstance(one, ManifestFile) and one.manifest_length < target_bytes:
            groups[one.content, one.partition_spec_id].append(one)
    replaced: dict[str, ManifestDraft | None] = {}
    for (content, spec_id), manifests in groups.items():
        if len(manifests) < max(2, min_count):
            continue
        for run in _runs(manifests, target_bytes):
            paths = [manifest.manifest_path for manifest in run]
            replaced.update(dict.fromkeys(paths))
            replaced[paths[0]] = ManifestDraft(
                content, spec_id, partial(_carried_over, head, run, reader), ("merged", tuple(paths))
            )
    merged: list[ManifestFile | ManifestDraft] = []
    for one in drafts:
        if isinstance(one, ManifestFile) and one.manifest_path in replaced:
            draft = replaced[one.manifest_path]
            if draft is not None:
                merged.append(draft)
        else:
            merged.append(one)
    return merged


def _carried_over(head: Head, manifests: Sequence[ManifestFile], reader: ManifestReader) -> list[ManifestEntry]:
    return [existing_entry(entry) for manifest in manifests for entry in reader.entries(head, manifest)]


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


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "")
    return int(text) if text.isdigit() else default
