"""A few columns of an Avro file, everything else skipped, with pyiceberg's Cython decoder.

pyiceberg resolves the whole schema for every file and builds an object for every record; reclaiming reads thousands of
small manifests and needs three or four values of each entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16

Read = Callable[[BinaryDecoder], Any]
# (position in the row, or None to skip; what to call with the decoder)
_Step = tuple[int | None, Read]


def read_columns(content: bytes, field_ids: tuple[int, ...]) -> Iterator[list[Any]]:
    """Rows with the values of the given Iceberg field ids, in that order; None where the file has no such field.

    Fields of nested records are found at any depth. A file that is cut or damaged raises, it never ends early.
    """
    header, blocks = read_blocks(content)
    steps = _compile(header["avro.schema"], field_ids)
    width = len(field_ids)
    for count, block in blocks:
        records = new_decoder(block)
        for _ in range(count):
            row: list[Any] = [None] * width
            for position, read in steps:
                if position is None:
                    read(records)
                else:
                    row[position] = read(records)
            yield row
        check_end(records, block)


def read_blocks(content: bytes) -> tuple[dict[str, bytes], Iterator[tuple[int, bytes]]]:
    """The header of an Avro file, and its blocks: how many records each holds, and their bytes, decompressed.

    A file that is cut or damaged in its frame raises ValueError or what its codec raises; nothing is read past its end.
    """
    if content[:4] != _MAGIC:
        raise ValueError("not an Avro file")
    header, start = _read_header(content)
    codec_name = header.get("avro.codec", b"null").decode()
    if codec_name not in KNOWN_CODECS:
        raise ValueError(f"Avro files with the codec {codec_name!r} are not supported")
    return header, _blocks(content, start, KNOWN_CODECS[codec_name])  # type: ignore[index]


def check_end(decoder: BinaryDecoder, block: bytes) -> None:
    """Raise if the records of a block did not end where it ends: pyiceberg's decoder does not check its bounds."""
    if decoder.tell() != len(block):
        raise ValueError("damaged Avro file: a block does not hold the records that it says")


def _blocks(content: bytes, at: int, codec: Any) -> Iterator[tuple[int, bytes]]:
    sync = content[at : at + _SYNC_BYTES]
    at += _SYNC_BYTES
    if at > len(content):
        raise ValueError("damaged Avro file: it ends inside its header")
    while at < len(content):
        count, at = _read_long(content, at)
        block, at = _read_bytes(content, at)
        if content[at : at + _SYNC_BYTES] != sync:
            raise ValueError("damaged Avro file: a block does not end with its sync marker")
        if count < 0:
            raise ValueError(f"damaged Avro file: a block is said to hold {count} records")
        at += _SYNC_BYTES
        yield count, codec.decompress(block) if codec else block


def _read_header(content: bytes) -> tuple[dict[str, bytes], int]:
    header: dict[str, bytes] = {}
    at = len(_MAGIC)
    while True:
        count, at = _read_long(content, at)
        if count == 0:
            return header, at
        if count < 0:
            # A negative count is followed by the block's size in bytes.
            count = -count
            _, at = _read_long(content, at)
        for _ in range(count):
            key, at = _read_bytes(content, at)
            header[key.decode()], at = _read_bytes(content, at)


def _read_bytes(content: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_long(content, at)
    if not 0 <= length <= len(content) - at:
        raise ValueError("damaged Avro file: it ends inside a block or its header")
    return content[at : at + length], at + length


def _read_long(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 64:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError("damaged Avro file: it ends inside a number")


@lru_cache(maxsize=256)
def _compile(schema_text: bytes, field_ids: tuple[int, ...]) -> tuple[_Step, ...]:
    """The calls that read one record; cached, since files of one writer share their schema text."""
    return tuple(_record_steps(json.loads(schema_text), {field: at for at, field in enumerate(field_ids)}, {}))


def _record_steps(record: dict[str, Any], wanted: dict[int, int], named: dict[str, Any]) -> Iterator[_Step]:
    named[record.get("name", "")] = record
    for field in record["fields"]:
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "record":
            yield from _record_steps(kind, wanted, named)
            continue
        position = wanted.get(field.get("field-id", -1))
        yield (None, _skipper(kind, named)) if position is None else (position, _reader(kind, named))


def _reader(kind: Any, named: dict[str, Any]) -> Read:
    if isinstance(kind, list):
        branches = [_reader(branch, named) for branch in kind]
        return lambda decoder: branches[decoder.read_int()](decoder)
    name = kind["type"] if isinstance(kind, dict) else kind
    readers: dict[str, Read] = {
        "null": lambda decoder: None,
        "boolean": lambda decoder: decoder.read_boolean(),
        "int": lambda decoder: decoder.read_int(),
        "long": lambda decoder: decoder.read_int(),
        "string": lambda decoder: decoder.read_utf8(),
        "bytes": lambda decoder: decoder.read_bytes(),
    }
    if name not in readers:
        raise ValueError(f"cannot read a value of the Avro type {name!r}")
    return readers[name]


def _skipper(kind: Any, named: dict[str, Any]) -> Read:
    if isinstance(kind, list):
        branches = [_skipper(branch, named) for branch in kind]
        return lambda decoder: branches[decoder.read_int()](decoder)
    name = kind["type"] if isinstance(kind, dict) else kind
    if isinstance(name, (dict, list)):
        return _skipper(name, named)
    if name == "record":
        named[kind.get("name", "")] = kind
        return _sequence([_skipper(field["type"], named) for field in kind["fields"]])
    if name == "array":
        return _skip_array(kind["items"], named)
    if name == "map":
        value = _skipper(kind["values"], named)
        return _skip_blocks(_each(_sequence([lambda decoder: decoder.skip_utf8(), value])))
    if name == "fixed":
        named[kind.get("name", "")] = kind
        size = kind["size"]
        return lambda decoder: decoder.skip(size)
    skippers: dict[str, Read] = {
        "null": lambda decoder: None,
        "boolean": lambda decoder: decoder.skip_boolean(),
        "int": lambda decoder: decoder.skip_int(),
        "long": lambda decoder: decoder.skip_int(),
        "float": lambda decoder: decoder.skip_float(),
        "double": lambda decoder: decoder.skip_double(),
        "string": lambda decoder: decoder.skip_utf8(),
        "bytes": lambda decoder: decoder.skip_bytes(),
        "enum": lambda decoder: decoder.skip_int(),
    }
    if name in skippers:
        return skippers[name]
    if name in named:
        return _skipper(named[name], named)
    raise ValueError(f"cannot skip a value of the Avro type {name!r}")


def _skip_array(items: Any, named: dict[str, Any]) -> Read:
    """Iceberg keeps maps with integer keys as arrays of pairs: the decoder skips those of one kind in one call."""
    if items in ("int", "long"):
        return _skip_blocks(lambda decoder, count: decoder.read_ints(count))
    if isinstance(items, dict) and items["type"] == "record":
        fields = [field["type"] for field in items["fields"]]
        if fields in (["int", "long"], ["int", "int"]):
            return _skip_blocks(lambda decoder, count: decoder.read_ints(2 * count))
        if fields == ["int", "bytes"]:
            return _skip_blocks(lambda decoder, count: decoder.read_int_bytes_dict(count, {}))
    return _skip_blocks(_each(_skipper(items, named)))


def _skip_blocks(skip_items: Callable[[BinaryDecoder, int], Any]) -> Read:
    def skip(decoder: BinaryDecoder) -> None:
        while (count := decoder.read_int()) != 0:
            if count < 0:
                # A negative count is followed by the block's size in bytes.
                decoder.skip(decoder.read_int())
            else:
                skip_items(decoder, count)

    return skip


def _each(skip_item: Read) -> Callable[[BinaryDecoder, int], None]:
    def skip(decoder: BinaryDecoder, count: int) -> None:
        for _ in range(count):
            skip_item(decoder)

    return skip


def _sequence(skips: list[Read]) -> Read:
    def skip(decoder: BinaryDecoder) -> None:
        for step in skips:
            step(decoder)

    return skip
