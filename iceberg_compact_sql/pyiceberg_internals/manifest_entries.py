"""Reading manifests with every field that any format version knows."""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)

from iceberg_compact_sql.pyiceberg_internals.avro.doubles import AvroFile

# Positions in the record of a data file read with the v3 schema; pyiceberg has no properties for these.
FIRST_ROW_ID = 16
REFERENCED_DATA_FILE = 17
CONTENT_OFFSET = 18
CONTENT_SIZE = 19


def read_entries(manifest: ManifestFile, io: FileIO, *, live_only: bool = True) -> list[ManifestEntry]:
    """All entries of a manifest, sequence numbers inherited.

    pyiceberg's own `fetch_manifest_entry` reads with the v2 schema and so drops `referenced_data_file`,
    `content_offset`, `content_size_in_bytes` and `first_row_id`; the v3 schema is a superset of v1 and v2.
    """
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        return [
            _inherit_from_manifest(entry, manifest)
            for entry in reader
            if not live_only or entry.status != ManifestEntryStatus.DELETED
        ]
