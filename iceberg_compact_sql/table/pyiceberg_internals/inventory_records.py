"""Decoding manifest entries with as little Python for each entry as pyiceberg's Avro classes allow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.reader import IntegerReader, MapReader, OptionReader, Reader, StructReader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS, ManifestEntryStatus, ManifestFile
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from iceberg_compact_sql.table.pyiceberg_internals.slim_avro import check_end, read_blocks

_DELETED = ManifestEntryStatus.DELETED.value
_ADDED = ManifestEntryStatus.ADDED.value
_DATA_FILE = 2
_AVRO_SCHEMA = "avro.schema"
_FIELDS = {field.field_id: position for position, field in enumerate(DATA_FILE_TYPE[3].fields)}

# Positions in the list that `read_live_records` gives for each data or delete file.
CONTENT = _FIELDS[134]
PATH = _FIELDS[100]
FORMAT = _FIELDS[101]
PARTITION = _FIELDS[102]
ROWS = _FIELDS[103]
SIZE = _FIELDS[104]
VALUE_COUNTS = _FIELDS[109]
NULL_COUNTS = _FIELDS[110]
NAN_COUNTS = _FIELDS[137]
LOWER_BOUNDS = _FIELDS[125]
UPPER_BOUNDS = _FIELDS[128]
KEY_METADATA = _FIELDS[131]
SPLIT_OFFSETS = _FIELDS[132]
EQUALITY_IDS = _FIELDS[135]
SORT_ORDER = _FIELDS[140]
REFERENCED_PATH = _FIELDS[143]
CONTENT_OFFSET = _FIELDS[144]
CONTENT_SIZE = _FIELDS[145]
# Inherited from the entry and its manifest, after the fields of the file itself.
SNAPSHOT_ID = len(_FIELDS)
SEQUENCE = SNAPSHOT_ID + 1
FILE_SEQUENCE = SNAPSHOT_ID + 2

_COUNTS = (108, 109, 110, 137)
_BOUNDS = (125, 128)


def read_live_records(manifest: ManifestFile, io: FileIO, *, metrics: bool) -> Iterator[list[Any]]:
    """The live entries of a manifest in its order, a list of values each; positions are the constants of this module.

    Sequence numbers and snapshot ids are inherited as the specification says. Without `metrics` the column
    statistics are passed over and come back as None, which keeps them out of memory.
    """
    manifest_sequence = manifest.sequence_number
    manifest_snapshot = manifest.added_snapshot_id
    width = FILE_SEQUENCE + 1
    with io.new_input(manifest.manifest_path).open() as stream:
        contents = stream.read()
    if len(contents) < manifest.manifest_length:
        raise EOFError(f"it has {len(contents)} bytes of {manifest.manifest_length}")
    header, blocks = read_blocks(contents)
    # Resolving the schema costs as much as decoding 30 entries: manifests of one table share it.
    outer, inner = _flat_readers(header[_AVRO_SCHEMA], metrics)
    live = 0
    for records, block in blocks:
        decoder = new_decoder(block)
        for _ in range(records):
            entry: list[Any] = [None] * 5
            values: list[Any] = [None] * width
            for position, read in outer:
                if read is None:
                    for place, read_field in inner:
                        if place is None:
                            read_field(decoder)
                        else:
                            values[place] = read_field(decoder)
                elif position is None:
                    read(decoder)
                else:
                    entry[position] = read(decoder)
            status = entry[0]
            if status == _DELETED:
                continue
            inherit = manifest_sequence == 0 or status == _ADDED
            values[SNAPSHOT_ID] = manifest_snapshot if entry[1] is None else entry[1]
            values[SEQUENCE] = manifest_sequence if entry[2] is None and inherit else entry[2]
            values[FILE_SEQUENCE] = manifest_sequence if entry[3] is None and inherit else entry[3]
            values[PARTITION] = tuple(values[PARTITION]._data)
            live += 1
            yield values
        check_end(decoder, block)
    listed = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    if live < listed:
        raise EOFError(f"it has {live} live entries, its list says {listed}")


_Place = tuple[int | None, Callable[[Any], Any]]


@lru_cache(maxsize=64)
def _flat_readers(
    avro_schema: bytes, metrics: bool
) -> tuple[list[tuple[int | None, Callable[[Any], Any] | None]], list[_Place]]:
    """The readers of the entry's fields, and of its data file's fields, as plain functions of the decoder."""
    file_schema = AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))
    # No enums here: calling an enum class costs more than decoding the rest of the entry.
    reader = resolve_reader(file_schema, MANIFEST_ENTRY_SCHEMAS[3])
    assert isinstance(reader, StructReader)
    outer: list[tuple[int | None, Callable[[Any], Any] | None]] = []
    inner: list[_Place] = []
    data_file_position = [field.field_id for field in MANIFEST_ENTRY_SCHEMAS[3].fields].index(_DATA_FILE)
    for position, field in reader.field_readers:
        if position == data_file_position:
            assert isinstance(field, StructReader)
            inner = [_placed(place, part, metrics) for place, part in field.field_readers]
            outer.append((position, None))
        elif position is None:
            outer.append((None, field.skip))
        else:
            outer.append((position, field.read))
    return outer, inner


def _placed(place: int | None, reader: Reader, metrics: bool) -> _Place:
    if place is None:
        return None, reader.skip
    statistic = place in _COUNT_POSITIONS or place in _BOUND_POSITIONS
    if statistic and (not metrics or place == _FIELDS[108]) and (skip := _fast_skip(reader)) is not None:
        return None, skip
    return place, reader.read


_COUNT_POSITIONS = frozenset(_FIELDS[field] for field in _COUNTS)
_BOUND_POSITIONS = frozenset(_FIELDS[field] for field in _BOUNDS)


def _fast_skip(reader: Reader) -> Callable[[Any], Any] | None:
    """Pass over a map in one call of the compiled decoder; pyiceberg's own `skip` makes several calls an item."""
    optional = isinstance(reader, OptionReader)
    inner = reader.option if isinstance(reader, OptionReader) else reader
    if not isinstance(inner, MapReader) or not isinstance(inner.key, IntegerReader):
        return None
    integers = isinstance(inner.value, IntegerReader)

    def skip(decoder: Any) -> None:
        if optional and decoder.read_int() == 0:
            return
        count = decoder.read_int()
        while count != 0:
            if count < 0:
                decoder.skip(decoder.read_int())
            elif integers:
                decoder.read_ints(count * 2)
            else:
                decoder.read_int_bytes_dict(count, {})
            count = decoder.read_int()

    return skip


def int_map(value: Mapping[int, Any] | None) -> Mapping[int, Any]:
    """A statistics map that is there or not, as a map."""
    return value if value is not None else {}
