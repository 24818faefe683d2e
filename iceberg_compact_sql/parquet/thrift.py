"""Thrift's compact protocol, read and written as a plain tree that keeps unknown fields.

>>> tree, end = read_struct(bytes.fromhex("15021806616263646566 00".replace(" ", "")), 0)
>>> tree.get(1, I32), tree.get(2, BINARY), end
(1, b'abcdef', 11)
>>> write_struct(tree.replaced({1: (I32, 300)})).hex()
'15d804180661626364656600'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

MAX_DEPTH = 48
_INTEGERS = (I16, I32, I64)
_BOOLEANS = (TRUE, FALSE)


class FooterError(ValueError):
    """Row groups cannot be copied by this footer: the file must be decoded instead, or it is damaged."""


class ThriftError(FooterError):
    """The bytes are not one well-formed struct, or a field is not of the type that it must have."""


class ThriftList(NamedTuple):
    """A list or set; booleans are kept as the bytes that the writer used (1, 2 or 0)."""

    element_type: int
    values: Sequence[Any]


class ThriftMap(NamedTuple):
    """A map in the order of its entries."""

    key_type: int
    value_type: int
    entries: Sequence[tuple[Any, Any]]


class Struct:
    """A struct by field id: `{id: (wire type, value)}` in the order of the bytes; never changed in place.

    Booleans are Python's, integers of all widths are `int`, doubles and UUIDs stay raw bytes.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: dict[int, tuple[int, Any]]) -> None:
        self.fields = fields

    def get(self, field_id: int, wire_type: int) -> Any:
        """Return the field's value, or None if it is missing; raise for another wire type."""
        field = self.fields.get(field_id)
        if field is None:
            return None
        if field[0] != wire_type and not (wire_type in _BOOLEANS and field[0] in _BOOLEANS):
            raise ThriftError(f"field {field_id} has wire type {field[0]}, not {wire_type}")
        return field[1]

    def need(self, field_id: int, wire_type: int) -> Any:
        """Return the field's value; raise if it is missing."""
        value = self.get(field_id, wire_type)
        if value is None:
            raise ThriftError(f"required field {field_id} is missing")
        return value

    def elements(self, field_id: int, element_type: int) -> Sequence[Any] | None:
        """Return the elements of a list field, or None if it is missing; raise for another element type."""
        elements = self.get(field_id, LIST)
        if elements is None:
            return None
        if elements.element_type != element_type and elements.values:
            raise ThriftError(f"field {field_id} is a list of wire type {elements.element_type}, not {element_type}")
        values: Sequence[Any] = elements.values
        return values

    def replaced(self, changes: Mapping[int, tuple[int, Any] | None]) -> Struct:
        """Return a copy with fields set, or removed where the change is None; fields stay in order of their ids."""
        fields = dict(self.fields)
        added = False
        for field_id, change in changes.items():
            if change is None:
                fields.pop(field_id, None)
            else:
                added = added or field_id not in fields
                fields[field_id] = change
        return Struct(dict(sorted(fields.items())) if added else fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.fields == other.fields

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Struct({self.fields!r})"


def read_struct(buffer: bytes, position: int) -> tuple[Struct, int]:
    """Read the struct that starts at `position`; return it and its end.

    Work and memory are bounded by the buffer's length: lengths beyond it, deep nesting, over-long integers and
    unknown wire types are a ThriftError.
    """
    try:
        return _read_struct(buffer, position, 0)
    except IndexError:
        raise ThriftError("the bytes end inside a value") from None


def write_struct(tree: Struct) -> bytes:
    """Return the bytes of a tree, in the order of its fields."""
    out = bytearray()
    _write_struct(out, tree)
    return bytes(out)


def _read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ThriftError("an integer is longer than 64 bits")
    if value >> 64:
        raise ThriftError("an integer is longer than 64 bits")
    return value, position


def _read_struct(buffer: bytes, position: int, depth: int) -> tuple[Struct, int]:
    if depth > MAX_DEPTH:
        raise ThriftError(f"values are nested deeper than {MAX_DEPTH}")
    fields: dict[int, tuple[int, Any]] = {}
    last = 0
    while True:
        head = buffer[position]
        position += 1
        if head == 0:
            return Struct(fields), position
        wire_type = head & 15
        if head >> 4:
            last += head >> 4
        else:
            number, position = _read_varint(buffer, position)
            last = (number >> 1) ^ -(number & 1)
        if not -0x8000 <= last <= 0x7FFF or last in fields:
            raise ThriftError(f"field id {last} is out of range or occurs twice")
        value, position = _read_value(buffer, position, wire_type, depth)
        fields[last] = (wire_type, value)


def _read_value(buffer: bytes, position: int, wire_type: int, depth: int) -> tuple[Any, int]:
    if I16 <= wire_type <= I64:
        number, position = _read_varint(buffer, position)
        return (number >> 1) ^ -(number & 1), position
    if wire_type == BINARY:
        size, position = _read_varint(buffer, position)
        return _take(buffer, position, size)
    if wire_type == STRUCT:
        return _read_struct(buffer, position, depth + 1)
    if wire_type in _BOOLEANS:
        return wire_type == TRUE, position
    if wire_type in (LIST, SET):
        return _read_list(buffer, position, depth + 1)
    if wire_type == BYTE:
        return buffer[position], position + 1
    if wire_type == DOUBLE:
        return _take(buffer, position, 8)
    if wire_type == UUID:
        return _take(buffer, position, 16)
    if wire_type == MAP:
        return _read_map(buffer, position, depth + 1)
    raise ThriftError(f"unknown wire type {wire_type}")


def _take(buffer: bytes, position: int, size: int) -> tuple[bytes, int]:
    end = position + size
    if end > len(buffer):
        raise ThriftError(f"{size} bytes are declared, {len(buffer) - position} are left")
    return buffer[position:end], end


def _read_element(buffer: bytes, position: int, wire_type: int, depth: int) -> tuple[Any, int]:
    # Inside collections a boolean is one byte; it is kept unchanged.
    if wire_type in _BOOLEANS:
        return buffer[position], position + 1
    return _read_value(buffer, position, wire_type, depth)


def _check_count(buffer: bytes, position: int, count: int, depth: int) -> None:
    # Each element has at least one byte, so a count above the remaining bytes is invalid.
    if count > len(buffer) - position:
        raise ThriftError(f"{count} elements are declared, {len(buffer) - position} bytes are left")
    if depth > MAX_DEPTH:
        raise ThriftError(f"values are nested deeper than {MAX_DEPTH}")


def _read_list(buffer: bytes, position: int, depth: int) -> tuple[ThriftList, int]:
    head = buffer[position]
    position += 1
    count = head >> 4
    element_type = head & 15
    if count == 15:
        count, position = _read_varint(buffer, position)
    _check_count(buffer, position, count, depth)
    values = []
    for _ in range(count):
        value, position = _read_element(buffer, position, element_type, depth)
        values.append(value)
    return ThriftList(element_type, values), position


def _read_map(buffer: bytes, position: int, depth: int) -> tuple[ThriftMap, int]:
    count, position = _read_varint(buffer, position)
    if count == 0:
        return ThriftMap(0, 0, []), position
    types = buffer[position]
    position += 1
    _check_count(buffer, position, count, depth)
    entries = []
    for _ in range(count):
        key, position = _read_element(buffer, position, types >> 4, depth)
        value, position = _read_element(buffer, position, types & 15, depth)
        entries.append((key, value))
    return ThriftMap(types >> 4, types & 15, entries), position


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_zigzag(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_struct(out: bytearray, tree: Struct) -> None:
    last = 0
    for field_id, (wire_type, value) in tree.fields.items():
        if wire_type in _BOOLEANS:
            wire_type = TRUE if value else FALSE
        delta = field_id - last
        if 0 < delta <= 15:
            out.append(delta << 4 | wire_type)
        else:
            out.append(wire_type)
            _write_zigzag(out, field_id)
        last = field_id
        _write_value(out, wire_type, value)
    out.append(0)


def _write_value(out: bytearray, wire_type: int, value: Any) -> None:
    if wire_type in _INTEGERS:
        _write_zigzag(out, value)
    elif wire_type == BINARY:
        _write_varint(out, len(value))
        out += value
    elif wire_type == STRUCT:
        _write_struct(out, value)
    elif wire_type in (LIST, SET):
        count = len(value.values)
        if count < 15:
            out.append(count << 4 | value.element_type)
        else:
            out.append(0xF0 | value.element_type)
            _write_varint(out, count)
        for element in value.values:
            _write_element(out, value.element_type, element)
    elif wire_type == BYTE:
        out.append(value)
    elif wire_type in (DOUBLE, UUID):
        out += value
    elif wire_type == MAP:
        _write_varint(out, len(value.entries))
        if value.entries:
            out.append(value.key_type << 4 | value.value_type)
        for key, item in value.entries:
            _write_element(out, value.key_type, key)
            _write_element(out, value.value_type, item)


def _write_element(out: bytearray, wire_type: int, value: Any) -> None:
    if wire_type in _BOOLEANS:
        out.append(value)
    else:
        _write_value(out, wire_type, value)
