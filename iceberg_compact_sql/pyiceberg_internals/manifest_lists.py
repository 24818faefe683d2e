"""Reads and writes manifest lists with the fields of all format versions.

pyiceberg reads with the schema of version 2, which drops `first_row_id`, and does not write version 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.format_versions import require_writable, rules_of
from iceberg_compact_sql.pyiceberg_internals.avro.doubles import AvroFile

# The schema of version 3 contains those of 1 and 2; `first_row_id` is its last field.
_ALL_FIELDS = MANIFEST_LIST_FILE_SCHEMAS[3]
_FIRST_ROW_ID = len(_ALL_FIELDS.fields) - 1


def read_manifests(io: FileIO, manifest_list: str) -> list[ManifestFile]:
    """Return the manifests of a list, with `first_row_id`."""
    with AvroFile[ManifestFile](
        io.new_input(manifest_list),
        _ALL_FIELDS,
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


def first_row_id(manifest: ManifestFile) -> int | None:
    """Return the first row id that a list gives to a data manifest; None if it gives none."""
    # A record that pyiceberg or `WrittenManifest` made has the fields of version 2.
    value: int | None = manifest[_FIRST_ROW_ID] if len(manifest) > _FIRST_ROW_ID else None
    return value


def write_list(
    output: OutputFile,
    manifests: Sequence[ManifestFile],
    *,
    metadata: TableMetadata,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
    compression: str,
) -> int:
    """Write the manifest list of a snapshot; every manifest already has its sequence numbers.

    Returns how many row ids it assigns: in version 3, each data manifest without a first row id gets a range for all
    its live rows, from the table's `next-row-id` on. That is `added-rows` of the snapshot.
    """
    version = metadata.format_version
    require_writable(version)
    rules = rules_of(version)
    facts = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "format-version": str(version),
        AVRO_CODEC_KEY: compression,
    }
    if rules.sequence_numbers:
        facts["sequence-number"] = str(sequence_number)
    if not rules.delete_files and any(manifest.content != ManifestContent.DATA for manifest in manifests):
        raise ValueError(f"a table of format version {version} has no delete manifests")
    records, assigned = list(manifests), 0
    if rules.row_lineage:
        start = next_row_id(metadata)
        facts["first-row-id"] = str(start)
        records, assigned = _with_row_ids(manifests, start)
    with AvroOutputFile[ManifestFile](
        output_file=output,
        file_schema=MANIFEST_LIST_FILE_SCHEMAS[version],
        record_schema=_ALL_FIELDS if rules.row_lineage else MANIFEST_LIST_FILE_SCHEMAS[2],
        schema_name="manifest_file",
        metadata=facts,
    ) as writer:
        writer.write_block(records)
    return assigned


def next_row_id(metadata: TableMetadata) -> int:
    """Return the first row id that no snapshot of the table has used; 0 after an upgrade to version 3."""
    value: int | None = getattr(metadata, "next_row_id", None)
    return value or 0


def _with_row_ids(manifests: Sequence[ManifestFile], start: int) -> tuple[list[ManifestFile], int]:
    following, records = start, []
    for manifest in manifests:
        assigned = first_row_id(manifest)
        if manifest.content == ManifestContent.DATA and assigned is None:
            assigned = following
            following += _live_rows(manifest)
        fields = [manifest[position] for position in range(_FIRST_ROW_ID)]
        records.append(ManifestFile(*fields, assigned if manifest.content == ManifestContent.DATA else None))
    return records, following - start


def _live_rows(manifest: ManifestFile) -> int:
    counts = (manifest.existing_rows_count, manifest.added_rows_count)
    if counts[0] is None or counts[1] is None:
        # Only version 1 may leave the counts out; an upgraded table can still have such a manifest.
        raise ValueError(
            f"the manifest list has no row counts of {manifest.manifest_path}, which get row ids from them"
        )
    return counts[0] + counts[1]
