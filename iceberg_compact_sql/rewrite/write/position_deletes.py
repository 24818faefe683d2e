"""Position delete files merged: read, rows that point at nothing dropped, sorted, written."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from iceberg_compact_sql.rewrite.deletes.row_bitmap import Positions
from iceberg_compact_sql.rewrite.write.naming import partition_location
from iceberg_compact_sql.storage.protocol import is_proved
from iceberg_compact_sql.storage.same_file import loose_key
from iceberg_compact_sql.storage.stores import stores_of
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID
from iceberg_compact_sql.table.delete_rules import applies_at
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete
from iceberg_compact_sql.table.properties import DELETE_GRANULARITY

_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_FIELD_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_FIELD_ID)}),
    ]
)
# Estimated rows of a delete file of the target size: after compression a path costs little, a position some bytes.
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


def live_positions(io: FileIO, group: DeleteGroup, sequence_by_path: Mapping[str, int]) -> pa.Table:
    """Return the rows of the group's position delete files that still delete a row, sorted and each once.

    `sequence_by_path` gives the data sequence number of every live data file of the partition: a row counts if its file
    is live and not newer than the delete. A row that spells the path of a live file in another way deletes nothing, and
    is kept as it is.
    """
    tables = []
    live_keys = {loose_key(path) for path in sequence_by_path}
    for delete in group.deletes:
        if delete.kind is not DeleteKind.POSITION:
            continue
        for paths, positions in read_delete_columns(io, delete, [PATH_FIELD_ID, POSITION_FIELD_ID]):
            plain = paths.cast(pa.string()) if not pa.types.is_dictionary(paths.type) else paths
            encoded = plain if pa.types.is_dictionary(plain.type) else plain.dictionary_encode()
            alive = pa.array(
                [_counts(delete, path, sequence_by_path, live_keys) for path in encoded.dictionary.to_pylist()],
                pa.bool_(),
            )
            kept = alive.take(encoded.indices)
            table = pa.table([encoded.cast(pa.string()), positions.cast(pa.int64())], schema=_SCHEMA)
            tables.append(table.filter(kept))
    rows = pa.concat_tables(tables) if tables else _SCHEMA.empty_table()
    rows = rows.sort_by([("file_path", "ascending"), ("pos", "ascending")])
    return _distinct(rows)


def positions_by_file(rows: pa.Table) -> Iterator[tuple[str, Positions]]:
    """Yield the positions of each data file, from rows of `live_positions`."""
    if not rows.num_rows:
        return
    paths, positions = rows.column("file_path"), rows.column("pos").to_numpy()
    starts = _run_starts(paths)
    for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        yield paths[start].as_py(), positions[start:end]


def _counts(delete: LiveDelete, path: str, sequence_by_path: Mapping[str, int], live_keys: Collection[str]) -> bool:
    # Readers look up a file-scoped delete by its path only. In a merged file its other rows would begin to apply.
    if delete.referenced_path not in (None, path):
        return False
    if path in sequence_by_path:
        return applies_at(equality=False, delete_sequence=delete.sequence_number, data_sequence=sequence_by_path[path])
    return loose_key(path) in live_keys


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
    return DELETE_GRANULARITY.of(properties) == "file"


def _write(io: FileIO, path: str, rows: pa.Table) -> int:
    # Java finds both columns by their field ids, which are in the schema.
    rows = rows.cast(_SCHEMA)
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, compression="zstd", use_dictionary=["file_path"], row_group_size=_ROWS_AT_ONCE)
    data = buffer.getvalue()
    # Proof before commit: the encoded rows read back unchanged.
    if not pq.read_table(pa.BufferReader(data)).cast(_SCHEMA).equals(rows):
        raise OSError(f"position deletes for {path} do not read back as written")
    stores = stores_of(io)
    sink = stores.open_output(path)
    try:
        sink.write(data)
    finally:
        sink.close()
    stored = None if is_proved(sink) else stores.stat(path)
    if not is_proved(sink) and (stored is None or stored.size_bytes != data.size):
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
