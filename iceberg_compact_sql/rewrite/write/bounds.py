"""Column bounds for manifests from Parquet statistics: converted and truncated, but still bounds.

>>> upper_string("abc\\U0010ffff".encode(), 4), upper_string("abcd".encode(), 3)
(b'abc\\xf4\\x8f\\xbf\\xbf', b'abd')
>>> upper_string("\\ud7ffx".encode(), 1) == "\\ue000".encode()
True
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.parquet.uuid_order import uuid_orders_agree

_LAST_CODE_POINT = 0x10FFFF
_NANOS_PER_UNIT = {"MILLIS": 1_000_000, "MICROS": 1_000, "NANOS": 1}
_NANO_TYPES = (TimestampNanoType, TimestamptzNanoType)
_PACKED: dict[type[IcebergType], str] = {
    BooleanType: "<?",
    IntegerType: "<i",
    LongType: "<q",
    FloatType: "<f",
    DoubleType: "<d",
    DateType: "<i",
    TimeType: "<q",
    TimestampType: "<q",
    TimestamptzType: "<q",
    TimestampNanoType: "<q",
    TimestamptzNanoType: "<q",
}
_SIGNED_PHYSICAL = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d", "BOOLEAN": "<?"}


@dataclass(frozen=True, slots=True)
class BoundCodec:
    """How one column's statistics are read (`parse`, to something that orders) and its bounds are written.

    Both return None where no valid bound can be given. `encode` takes the value, whether it is the upper bound, and
    the length that strings and bytes are cut to (None: not at all).
    """

    parse: Callable[[bytes], Any]
    encode: Callable[[Any, bool, int | None], bytes | None]
    # Statistics that the writer truncated are still bounds of bytes, but not of numbers stored as bytes.
    needs_exact: bool = False
    # Whether two values may be the bounds of a file; False when a known reader would read another range.
    usable: Callable[[Any, Any], bool] = lambda least, greatest: True


def bound_codec(leaf: LeafColumn, target: IcebergType) -> BoundCodec | None:
    """The codec for a file's column as a column of the table, or None for pairs that have no bounds."""
    physical, logical = leaf.physical, leaf.logical or (None,)
    kind = type(target)
    if isinstance(target, DecimalType):
        return _decimal_codec(leaf, target) if logical[0] == "DECIMAL" and logical[2] == target.scale else None
    if kind is StringType and physical == "BYTE_ARRAY" and logical[0] in (None, "STRING", "ENUM", "JSON"):
        return BoundCodec(bytes, _encode_string)
    if kind is BinaryType and physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY") and logical[0] in (None, "BSON"):
        return BoundCodec(bytes, _encode_binary)
    if isinstance(target, FixedType) and physical == "FIXED_LEN_BYTE_ARRAY" and leaf.type_length == len(target):
        return BoundCodec(bytes, _encode_binary) if logical[0] is None else None
    if kind is UUIDType and physical == "FIXED_LEN_BYTE_ARRAY" and leaf.type_length == 16:
        return BoundCodec(
            _exactly(16), lambda value, upper, length: bytes(value), needs_exact=True, usable=uuid_orders_agree
        )
    if physical not in _SIGNED_PHYSICAL or kind not in _PACKED:
        return None
    if kind in (TimeType, TimestampType, TimestamptzType, *_NANO_TYPES):
        return _time_codec(leaf, target)
    plain = logical[0] is None or (logical[0] == "INT" and logical[2] is True)
    fits: dict[type[IcebergType], bool] = {
        BooleanType: physical == "BOOLEAN",
        IntegerType: physical == "INT32" and plain,
        LongType: physical in ("INT32", "INT64") and plain,
        FloatType: physical == "FLOAT",
        DoubleType: physical in ("FLOAT", "DOUBLE"),
        DateType: physical == "INT32" and logical[0] == "DATE",
    }
    return BoundCodec(_number(physical), _packed(kind)) if fits.get(kind) else None


def lower_string(value: bytes, length: int | None) -> bytes:
    """At most `length` code points of a UTF-8 string: never above it. Bytes that are no UTF-8 end it."""
    return _text(value)[0][:length].encode()


def upper_string(value: bytes, length: int | None) -> bytes | None:
    """A string of at most `length` code points that is not below `value`; None if there is none."""
    text, whole = _text(value)
    if whole and (length is None or len(text) <= length):
        return value
    for end in range(len(text) if length is None else min(length, len(text)), 0, -1):
        following = ord(text[end - 1]) + 1
        if 0xD800 <= following <= 0xDFFF:
            following = 0xE000
        if following <= _LAST_CODE_POINT:
            return (text[: end - 1] + chr(following)).encode()
    return None


def upper_binary(value: bytes, length: int | None) -> bytes | None:
    """Bytes of at most `length` that are not below `value`; None if there are none."""
    if length is None or len(value) <= length:
        return value
    head = value[:length].rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def _text(value: bytes) -> tuple[str, bool]:
    try:
        return value.decode(), True
    except UnicodeDecodeError as error:
        return value[: error.start].decode(), False


def _encode_string(value: bytes, upper: bool, length: int | None) -> bytes | None:
    return upper_string(value, length) if upper else lower_string(value, length)


def _encode_binary(value: bytes, upper: bool, length: int | None) -> bytes | None:
    return upper_binary(value, length) if upper else value[:length]


def _exactly(size: int) -> Callable[[bytes], bytes | None]:
    return lambda raw: raw if len(raw) == size else None


def _number(physical: str) -> Callable[[bytes], Any]:
    layout = struct.Struct(_SIGNED_PHYSICAL[physical])

    def parse(raw: bytes) -> Any:
        if len(raw) != layout.size:
            return None
        value = layout.unpack(raw)[0]
        return None if isinstance(value, float) and math.isnan(value) else value

    return parse


def _packed(kind: type[IcebergType]) -> Callable[[Any, bool, int | None], bytes | None]:
    layout = struct.Struct(_PACKED[kind])

    def encode(value: Any, upper: bool, length: int | None) -> bytes | None:
        if isinstance(value, float) and value == 0.0:
            # Writers differ in which zero they keep: use the wider bound.
            value = 0.0 if upper else -0.0
        try:
            return layout.pack(value)
        except struct.error:
            return None

    return encode


def _time_codec(leaf: LeafColumn, target: IcebergType) -> BoundCodec | None:
    expected = "TIME" if isinstance(target, TimeType) else "TIMESTAMP"
    if leaf.logical is None or leaf.logical[0] != expected or leaf.physical not in ("INT32", "INT64"):
        return None
    nanos = _NANOS_PER_UNIT[str(leaf.logical[1])]
    target_nanos = 1 if isinstance(target, _NANO_TYPES) else 1_000
    pack = _packed(type(target))

    def encode(value: int, upper: bool, length: int | None) -> bytes | None:
        scaled = value * nanos
        return pack(-(-scaled // target_nanos) if upper else scaled // target_nanos, upper, length)

    return BoundCodec(_number(leaf.physical), encode)


def _decimal_codec(leaf: LeafColumn, target: DecimalType) -> BoundCodec | None:
    def encode(value: int, upper: bool, length: int | None) -> bytes:
        # The shortest two's complement, as Java's BigInteger has it.
        return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)

    def parse(raw: bytes) -> int | None:
        return int.from_bytes(raw, "big", signed=True) if 0 < len(raw) == (leaf.type_length or len(raw)) else None

    if leaf.physical in ("INT32", "INT64"):
        return BoundCodec(_number(leaf.physical), encode)
    if leaf.physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return BoundCodec(parse, encode, needs_exact=True)
    return None
