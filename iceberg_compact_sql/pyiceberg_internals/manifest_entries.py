"""Reads manifest entries with the fields of all format versions."""

from __future__ import annotations

import io
from collections.abc import Iterable

from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)

from iceberg_compact_sql.pyiceberg_internals.avro.doubles import AvroFile
from iceberg_compact_sql.pyiceberg_internals.manifest_lists import first_row_id

# Positions in the record of a data file read with the v3 schema; pyiceberg has no properties for these.
FIRST_ROW_ID = 16
REFERENCED_DATA_FILE = 17
CONTENT_OFFSET = 18
CONTENT_SIZE = 19


def read_entries(manifest: ManifestFile, source: FileIO | bytes, *, live_only: bool = True) -> list[ManifestEntry]:
    """Return the entries of a manifest, with inherited sequence numbers and row ids.

    `source` opens the manifest, or is its content.

    pyiceberg's own `fetch_manifest_entry` reads with the v2 schema and so drops `referenced_data_file`,
    `content_offset`, `content_size_in_bytes` and `first_row_id`; the v3 schema is a superset of v1 and v2.
    """
    path = manifest.manifest_path
    with AvroFile[ManifestEntry](
        _Content(path, source) if isinstance(source, bytes) else source.new_input(path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        entries = [
            _inherit_from_manifest(entry, manifest)
            for entry in reader
            if not live_only or entry.status != ManifestEntryStatus.DELETED
        ]
    if manifest.content == ManifestContent.DATA:
        _inherit_row_ids(entries, first_row_id(manifest))
    return entries


def _inherit_row_ids(entries: Iterable[ManifestEntry], following: int | None) -> None:
    """Give live files without a first row id theirs: the manifest's, plus the rows of such files before them.

    If the list gives the manifest none, no file of it has one, as in Iceberg's Java.
    """
    for entry in entries:
        file = entry.data_file
        if following is None:
            file[FIRST_ROW_ID] = None
        elif file[FIRST_ROW_ID] is None and entry.status != ManifestEntryStatus.DELETED:
            file[FIRST_ROW_ID] = following
            following += file.record_count


class _Content(InputFile):
    """A file whose content is in memory."""

    def __init__(self, location: str, content: bytes) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._content)
