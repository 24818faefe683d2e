"""Deletion vectors of many data files, written as one Puffin file."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyroaring import BitMap64

from iceberg_compact_sql import events
from iceberg_compact_sql.plan.position_deletes import DeleteGroup
from iceberg_compact_sql.rewrite.deletes.files import POSITION_FIELD_ID
from iceberg_compact_sql.rewrite.deletes.row_bitmap import Positions
from iceberg_compact_sql.rewrite.deletes.vectors import MAGIC, decode_vector
from iceberg_compact_sql.rewrite.write.naming import partition_location
from iceberg_compact_sql.storage.stores import stores_of

_PUFFIN = b"PFA1"


@dataclass(frozen=True, slots=True)
class WrittenVector:
    """One deletion vector in a Puffin file, with what its manifest entry says."""

    path: str
    size_bytes: int
    referenced_path: str
    content_offset: int
    content_size_bytes: int
    rows: int


def write_vectors(
    io: FileIO,
    group: DeleteGroup,
    positions: Mapping[str, Positions],
    *,
    table_location: str,
    properties: Mapping[str, str],
    schema: Schema,
    spec: PartitionSpec,
    run_id: str,
    created: list[str],
) -> list[WrittenVector]:
    """Write a vector for each data file of the mapping; its path is put into `created` before the file exists."""
    if not positions:
        return []
    name = f"00000-{group.group_id}-{run_id}-{uuid.uuid4()}-deletes.puffin"
    path = partition_location(name, table_location, properties, schema, spec, group.partition)
    content, places = puffin_of(path, positions)
    created.append(path)
    events.reach("write.deletes", path=path)
    stores = stores_of(io)
    stores.write(path, content)
    stored = stores.stat(path)
    if stored is None or stored.size_bytes != len(content):
        raise OSError(f"{path} is not {len(content)} bytes long on storage")
    return [
        WrittenVector(path, len(content), data_file, offset, length, len(positions[data_file]))
        for data_file, (offset, length) in places.items()
    ]


def puffin_of(path: str, positions: Mapping[str, Positions]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Return a Puffin file with one `deletion-vector-v1` blob for each data file, and the place of each blob."""
    content = bytearray(_PUFFIN)
    blobs, places = [], {}
    for data_file, rows in positions.items():
        body = MAGIC + BitMap64(rows.astype(np.uint64)).serialize()
        blob = len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
        # Proof before commit: the blob reads back as the positions, which are sorted and unique.
        if not np.array_equal(decode_vector(path, blob), rows):
            raise OSError(f"the deletion vector of {data_file} does not read back as written")
        places[data_file] = (len(content), len(blob))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [POSITION_FIELD_ID],
                # The specification requires -1 for both: a vector inherits them from its manifest entry.
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": {"referenced-data-file": data_file, "cardinality": str(len(rows))},
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    content += _PUFFIN + footer + len(footer).to_bytes(4, "little") + bytes(4) + _PUFFIN
    return bytes(content), places
