"""Position delete files merged: read, rows that point at nothing dropped, sorted, written."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from iceberg_compact_sql import events
from iceberg_compact_sql.plan.position_deletes import DeleteGroup
from iceberg_compact_sql.rewrite.deletes.files import POSITION_FIELD_ID, read_delete_columns
from iceberg_compact_sql.rewrite.write.naming import partition_location
from iceberg_compact_sql.storage.exact_files import open_sink, stored_bytes
from iceberg_compact_sql.storage.paths import same_file_key
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID

_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_FIELD_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_FIELD_ID)}),
    ]
)
# Rows of a delete file at its target size, as merged files compress: a file name costs little, a position some bytes.
_ROWS_AT_ONCE = 4_000_000


class PositionFile:
    """A written position delete file, with what its manifest entry says."""

    def __init__(self, path: str, size_bytes: int, rows: pa.Table) -> None:
        paths, positions = rows.column("file_path"), rows.column("pos")
        first, last = paths[0].as_py(), paths[-1].as_py()
        span = pc.min_max(positions)
        self.path = path
        self.size_bytes = size_bytes
        self.rows = rows.num_rows
        self.referenced_path = first if first == last else None
        self.lower_bounds = {PATH_FIELD_ID: first.encode(), POSITION_FIELD_ID: _long(span["min"].as_py())}
        self.upper_bounds = {PATH_FIELD_ID: last.encode(), POSITION_FIELD_ID: _long(span["max"].as_py())}
        counts = {PATH_FIELD_ID: rows.num_rows, POSITION_FIELD_ID: rows.num_rows}
        self.value_counts = counts
        self.null_value_counts = dict.fromkeys(counts, 0)


def live_positions(io: FileIO, group: DeleteGroup, sequence_by_key: Mapping[str, int]) -> pa.Table:
    """Rows of the group's files that still delete something, sorted by path and position, each once.

    `sequence_by_key` gives the data sequence number of every live data file of the partition: a row counts if its file
    is live and not newer than the delete.
    """
    pieces = []
    for delete in group.deletes:
        for paths, positions in read_delete_columns(io, delete, [PATH_FIELD_ID, POSITION_FIELD_ID]):
            plain = paths.cast(pa.string()) if not pa.types.is_dictionary(paths.type) else paths
            encoded = plain if pa.types.is_dictionary(plain.type) else plain.dictionary_encode()
            alive = pa.array(
                [
                    sequence_by_key.get(same_file_key(name), delete.sequence_number + 1) <= delete.sequence_number
                    for name in encoded.dictionary.to_pylist()
                ],
                pa.bool_(),
            )
            kept = alive.take(encoded.indices)
            piece = pa.table([encoded.cast(pa.string()), positions.cast(pa.int64())], schema=_SCHEMA)
            pieces.append(piece.filter(kept))
    rows = pa.concat_tables(pieces) if pieces else _SCHEMA.empty_table()
    rows = rows.sort_by([("file_path", "ascending"), ("pos", "ascending")])
    return _distinct(rows)


def write_position_files(
    io: FileIO,
    group: DeleteGroup,
    rows: pa.Table,
    *,
    table_location: str,
    properties: Mapping[str, str],
    schema: Schema,
    spec: PartitionSpec,
    run_id: str,
    outputs: int,
    created: list[str],
) -> list[PositionFile]:
    """Write the rows as `outputs` files, or one for each data file where the table asks for that granularity.

    Every path is put into `created` before its file exists.
    """
    written = []
    for number, part in enumerate(_parts(rows, properties, outputs)):
        name = f"{number:05d}-{group.group_id}-{run_id}-{uuid.uuid4()}-deletes.parquet"
        path = partition_location(name, table_location, properties, schema, spec, group.partition)
        created.append(path)
        events.reach("write.deletes", path=path)
        size_bytes = _write(io, path, part)
        written.append(PositionFile(path, size_bytes, part))
    return written


def one_per_data_file(properties: Mapping[str, str]) -> bool:
    """Whether the table wants a delete file for each data file."""
    return properties.get("write.delete.granularity", "partition").lower() == "file"


def _write(io: FileIO, path: str, rows: pa.Table) -> int:
    # Java finds both columns by their field ids, which stand in the schema.
    rows = rows.cast(_SCHEMA)
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, compression="zstd", use_dictionary=["file_path"], row_group_size=_ROWS_AT_ONCE)
    data = buffer.getvalue()
    # Proof before commit: what was encoded reads back as what was meant.
    if not pq.read_table(pa.BufferReader(data)).cast(_SCHEMA).equals(rows):
        raise OSError(f"position deletes for {path} do not read back as written")
    sink = open_sink(io, path)
    try:
        sink.write(data)
    finally:
        sink.close()
    if stored_bytes(io, path) != data.size:
        raise OSError(f"{path} is not {data.size} bytes long on storage")
    return int(data.size)


def _parts(rows: pa.Table, properties: Mapping[str, str], outputs: int) -> Sequence[pa.Table]:
    if rows.num_rows == 0:
        return []
    if one_per_data_file(properties):
        bounds = _run_starts(rows.column("file_path"))
    else:
        bounds = [rows.num_rows * i // outputs for i in range(outputs)]
    ends = [*bounds[1:], rows.num_rows]
    return [rows.slice(start, end - start) for start, end in zip(bounds, ends, strict=True) if end > start]


def _run_starts(paths: pa.ChunkedArray) -> list[int]:
    ids = paths.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return [0, *(int(i) + 1 for i in np.flatnonzero(np.diff(ids)))]


def _distinct(rows: pa.Table) -> pa.Table:
    """Sorted rows without repeats."""
    if rows.num_rows < 2:
        return rows
    ids = rows.column("file_path").combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    positions = rows.column("pos").to_numpy()
    fresh = np.concatenate(([True], (np.diff(ids) != 0) | (np.diff(positions) != 0)))
    return rows.filter(pa.array(fresh))


def _long(value: Any) -> bytes:
    return int(value).to_bytes(8, "little", signed=True)
