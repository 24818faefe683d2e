"""Writes the metadata files of one commit. Every path is recorded before it is opened."""

from __future__ import annotations

import itertools
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType

from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import TableProperties

from iceberg_compact_sql import events
from iceberg_compact_sql.commit.snapshot_draft import Head, ManifestDraft
from iceberg_compact_sql.pyiceberg_internals.manifest_lists import write_list
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import WrittenManifest, write_manifest_entries
from iceberg_compact_sql.storage.request_limit import request_limit

# Encoded manifests in memory; one has 8 MB by default.
_FILES_UNDER_WAY = 16


@dataclass(frozen=True, slots=True)
class WrittenList:
    """A manifest list on storage, and how many row ids it assigns (format version 3)."""

    path: str
    assigned_row_ids: int


class MetadataWriter:
    """Writes manifests and manifest lists for all attempts of one commit; equal drafts are written once.

    `created` holds every path that may exist on storage because of this commit.
    """

    def __init__(self, snapshot_id: int) -> None:
        self.snapshot_id = snapshot_id
        self.created: list[str] = []
        self._commit_id = uuid.uuid4()
        self._numbers = itertools.count()
        self._attempts = itertools.count()
        self._written: dict[Hashable, WrittenManifest] = {}

    def write(self, head: Head, manifests: Sequence[ManifestFile | ManifestDraft], sequence_number: int) -> WrittenList:
        """Write the manifests that are not written yet and a list of all.

        Manifests are encoded one after another and stored at the same time. The list is written when all are stored.
        """
        with _Uploads() as uploads:
            records = [
                self._write_manifest(head, manifest, uploads).listed(self.snapshot_id, sequence_number)
                if isinstance(manifest, ManifestDraft)
                else manifest
                for manifest in manifests
            ]
        path = self._new_path(head, f"snap-{self.snapshot_id}-{next(self._attempts)}-{self._commit_id}.avro")
        assigned = write_list(
            head.table.io.new_output(path),
            records,
            metadata=head.metadata,
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=head.snapshot.snapshot_id,
            sequence_number=sequence_number,
            compression=_compression(head),
        )
        return WrittenList(path, assigned)

    def _write_manifest(self, head: Head, draft: ManifestDraft, uploads: _Uploads) -> WrittenManifest:
        # The format version is part of the key: after a concurrent upgrade the manifest must be written again.
        key = (head.metadata.format_version, draft.reuse_key)
        known = self._written.get(key) if draft.reuse_key is not None else None
        if known is not None:
            return known
        path = self._new_path(head, f"{self._commit_id}-m{next(self._numbers)}.avro")
        written = write_manifest_entries(
            uploads.output(head.table.io.new_output(path)),
            draft.entries() if callable(draft.entries) else draft.entries,
            metadata=head.metadata,
            content=draft.content,
            spec_id=draft.spec_id,
            compression=_compression(head),
        )
        if draft.reuse_key is not None:
            uploads.when_stored(lambda: self._written.update({key: written}))
        return written

    def _new_path(self, head: Head, name: str) -> str:
        path = head.table.location_provider().new_metadata_location(name)
        self.created.append(path)
        events.reach("commit.write", path=path)
        return path


class _Uploads:
    """Stores files in threads. Leaving the block waits until all of them are stored, and raises the first error."""

    def __init__(self) -> None:
        self._pool: events.ThreadPool | None = None
        self._under_way: deque[Future[None]] = deque()
        self._when_stored: list[Callable[[], None]] = []

    def output(self, target: OutputFile) -> OutputFile:
        """Return an output file that is encoded in memory and stored at `target` when it is closed."""
        return _InMemory(target, self)

    def store(self, target: OutputFile, content: bytes) -> None:
        if self._pool is None:
            self._pool = events.ThreadPool(min(_FILES_UNDER_WAY, request_limit().requests), "manifests")
        self._under_way.append(self._pool.submit(_store, target, content))
        while len(self._under_way) > _FILES_UNDER_WAY:
            self._under_way.popleft().result()

    def when_stored(self, then: Callable[[], None]) -> None:
        """Call `then` when all files are stored; never if one of them failed."""
        self._when_stored.append(then)

    def __enter__(self) -> _Uploads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            # Also after an error: a file that arrives after the clean-up would stay.
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if kind is None:
            while self._under_way:
                self._under_way.popleft().result()
            for then in self._when_stored:
                then()


def _store(target: OutputFile, content: bytes) -> None:
    with target.create(overwrite=True) as stream:
        stream.write(content)


class _InMemory(OutputFile):
    """An output file whose content is complete before it is stored."""

    def __init__(self, target: OutputFile, uploads: _Uploads) -> None:
        super().__init__(target.location)
        self._target = target
        self._uploads = uploads

    def __len__(self) -> int:
        return len(self._target)

    def exists(self) -> bool:
        return self._target.exists()

    def to_input_file(self) -> InputFile:
        return self._target.to_input_file()

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Encoded(self._store)

    def _store(self, content: bytes) -> None:
        self._uploads.store(self._target, content)


class _Encoded:
    """A stream into memory; `close` hands over what was written."""

    def __init__(self, store: Callable[[bytes], None]) -> None:
        self._store = store
        self._content = bytearray()
        self._closed = False

    def write(self, data: bytes) -> int:
        self._content += data
        return len(data)

    def tell(self) -> int:
        return len(self._content)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._store(bytes(self._content))

    def __enter__(self) -> _Encoded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _compression(head: Head) -> str:
    return str(
        head.metadata.properties.get(
            TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
        )
    )
