"""Where the metadata files of one commit are written: every path is noted before it is opened."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Hashable, Sequence

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import TableProperties

from iceberg_compact_sql import events
from iceberg_compact_sql.commit.snapshot_draft import Head, ManifestDraft
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import (
    WrittenManifest,
    write_list,
    write_manifest_entries,
)


class Workshop:
    """Writes manifests and manifest lists for all tries of one commit; equal drafts are written once.

    `created` holds every path that may exist on storage because of this commit.
    """

    def __init__(self, snapshot_id: int) -> None:
        self.snapshot_id = snapshot_id
        self.created: list[str] = []
        self._commit_id = uuid.uuid4()
        self._numbers = itertools.count()
        self._attempts = itertools.count()
        self._written: dict[Hashable, WrittenManifest] = {}

    def write(self, head: Head, manifests: Sequence[ManifestFile | ManifestDraft], sequence_number: int) -> str:
        """Write what is not written yet and the list that names all; gives the path of the list."""
        records = [
            self._manifest(head, one).listed(self.snapshot_id, sequence_number)
            if isinstance(one, ManifestDraft)
            else one
            for one in manifests
        ]
        path = self._new_path(head, f"snap-{self.snapshot_id}-{next(self._attempts)}-{self._commit_id}.avro")
        write_list(
            head.table.io.new_output(path),
            records,
            metadata=head.metadata,
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=head.snapshot.snapshot_id,
            sequence_number=sequence_number,
            compression=_compression(head),
        )
        return path

    def _manifest(self, head: Head, draft: ManifestDraft) -> WrittenManifest:
        # A concurrent upgrade of the format changes how a manifest is written: it is then another file.
        key = (head.metadata.format_version, draft.reuse_key)
        known = self._written.get(key) if draft.reuse_key is not None else None
        if known is not None:
            return known
        path = self._new_path(head, f"{self._commit_id}-m{next(self._numbers)}.avro")
        written = write_manifest_entries(
            head.table.io.new_output(path),
            draft.entries() if callable(draft.entries) else draft.entries,
            metadata=head.metadata,
            content=draft.content,
            spec_id=draft.spec_id,
            compression=_compression(head),
        )
        if draft.reuse_key is not None:
            self._written[key] = written
        return written

    def _new_path(self, head: Head, name: str) -> str:
        path = head.table.location_provider().new_metadata_location(name)
        self.created.append(path)
        events.reach("commit.write", path=path)
        return path


def _compression(head: Head) -> str:
    return str(
        head.metadata.properties.get(
            TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
        )
    )
