"""The schema of a Parquet footer: its leaf columns, and a signature that files must share to be joined."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.parquet.thrift import BINARY, BYTE, I32, STRUCT, TRUE, Struct, ThriftError, write_struct

PHYSICAL_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2

Logical = tuple[Hashable, ...] | None

_MAX_DEPTH = 100
_UNITS = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}
_PLAIN_LOGICAL = {
    1: "STRING",
    2: "MAP",
    3: "LIST",
    4: "ENUM",
    6: "DATE",
    11: "UNKNOWN",
    12: "JSON",
    13: "BSON",
    14: "UUID",
    15: "FLOAT16",
}
_CONVERTED: dict[int, Logical] = {
    0: ("STRING",),
    1: ("MAP",),
    3: ("LIST",),
    4: ("ENUM",),
    6: ("DATE",),
    7: ("TIME", "MILLIS", True),
    8: ("TIME", "MICROS", True),
    9: ("TIMESTAMP", "MILLIS", True),
    10: ("TIMESTAMP", "MICROS", True),
    11: ("INT", 8, False),
    12: ("INT", 16, False),
    13: ("INT", 32, False),
    14: ("INT", 64, False),
    15: ("INT", 8, True),
    16: ("INT", 16, True),
    17: ("INT", 32, True),
    18: ("INT", 64, True),
    19: ("JSON",),
    20: ("BSON",),
    21: ("INTERVAL",),
}
_MAP_KEY_VALUE, _CONVERTED_DECIMAL = 2, 5
# These annotations add nothing to the physical type.
_REDUNDANT = {("INT32", ("INT", 32, True)), ("INT64", ("INT", 64, True))}


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A primitive column; `logical` is normalised, `repeated` means that a list or map is above it."""

    index: int
    path: tuple[str, ...]
    field_id: int | None
    physical: str
    type_length: int | None
    logical: Logical
    optional: bool
    repeated: bool
    # The maximum definition and repetition levels; pages of equal columns share them.
    levels: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        return ".".join(self.path)


def read_schema(elements: Sequence[Struct]) -> tuple[tuple[LeafColumn, ...], Hashable]:
    """Return the leaf columns in order, and a signature that is equal for interchangeable schemas.

    Names, shape, repetition, field ids, physical and logical types count; the root's name and redundant
    annotations do not. Raises ThriftError when the elements do not form a tree.
    """
    if not elements:
        raise ThriftError("the schema is empty")
    leaves: list[LeafColumn] = []
    signature: list[Hashable] = []
    # One entry per open group: children still to come, path, maximum definition and repetition level.
    open_groups: list[list[Any]] = [[elements[0].need(5, I32), (), 0, 0]]
    signature.append(open_groups[0][0])
    for element in elements[1:]:
        while open_groups and open_groups[-1][0] == 0:
            open_groups.pop()
        if not open_groups:
            raise ThriftError("the schema has more elements than its groups have children")
        group = open_groups[-1]
        group[0] -= 1
        repetition = element.need(3, I32)
        if repetition not in (REQUIRED, OPTIONAL, REPEATED):
            raise ThriftError(f"repetition {repetition} is unknown")
        name = element.need(4, BINARY).decode("utf-8", "surrogateescape")
        path = (*group[1], name)
        levels = (group[2] + (repetition != REQUIRED), group[3] + (repetition == REPEATED))
        field_id = element.get(9, I32)
        field_id = field_id if field_id is not None and field_id >= 0 else None
        children = element.get(5, I32)
        if element.get(1, I32) is None:
            if children is None or children < 0 or len(open_groups) > _MAX_DEPTH:
                raise ThriftError(f"group {name!r} has no valid number of children")
            logical = _logical_type(element, None, repetition)
            open_groups.append([children, path, *levels])
            signature.append((name, repetition, children, field_id, logical))
        else:
            leaf = _leaf(element, len(leaves), path, field_id, repetition, levels)
            if children:
                raise ThriftError(f"column {name!r} has both a type and children")
            leaves.append(leaf)
            signature.append((name, repetition, leaf.physical, leaf.type_length, field_id, leaf.logical))
    if any(group[0] for group in open_groups):
        raise ThriftError("the schema ends before its groups do")
    return tuple(leaves), tuple(signature)


def _leaf(
    element: Struct,
    index: int,
    path: tuple[str, ...],
    field_id: int | None,
    repetition: int,
    levels: tuple[int, int],
) -> LeafColumn:
    type_id = element.need(1, I32)
    if not 0 <= type_id < len(PHYSICAL_TYPES):
        raise ThriftError(f"physical type {type_id} is unknown")
    physical = PHYSICAL_TYPES[type_id]
    length = element.get(2, I32) if physical == "FIXED_LEN_BYTE_ARRAY" else None
    if physical == "FIXED_LEN_BYTE_ARRAY" and (length is None or length <= 0):
        raise ThriftError(f"column {'.'.join(path)!r} has no length")
    logical = _logical_type(element, physical, repetition)
    return LeafColumn(index, path, field_id, physical, length, logical, levels[0] > 0, levels[1] > 0, levels)


def _logical_type(element: Struct, physical: str | None, repetition: int) -> Logical:
    annotation = element.get(10, STRUCT)
    if annotation is not None and annotation.fields:
        logical = _from_annotation(annotation)
    else:
        logical = _from_converted_type(element, repetition)
    return None if (physical, logical) in _REDUNDANT else logical


def _from_annotation(annotation: Struct) -> Logical:
    if len(annotation.fields) != 1:
        raise ThriftError("a logical type has more than one member")
    kind = next(iter(annotation.fields))
    body = annotation.get(kind, STRUCT)
    if kind in _PLAIN_LOGICAL:
        return (_PLAIN_LOGICAL[kind],)
    if kind == 5:
        return ("DECIMAL", body.need(2, I32), body.need(1, I32))
    if kind in (7, 8):
        unit = body.need(2, STRUCT)
        name = _UNITS.get(next(iter(unit.fields), 0))
        if name is None or len(unit.fields) != 1:
            raise ThriftError("a time unit is unknown")
        return ("TIME" if kind == 7 else "TIMESTAMP", name, body.need(1, TRUE))
    if kind == 10:
        return ("INT", body.need(1, BYTE), body.need(2, TRUE))
    return ("LOGICAL", kind, write_struct(body))


def _from_converted_type(element: Struct, repetition: int) -> Logical:
    converted = element.get(6, I32)
    if converted is None:
        return None
    if converted == _MAP_KEY_VALUE:
        # On the repeated group inside a map it is redundant; older writers put it on the map itself.
        return None if repetition == REPEATED else ("MAP",)
    if converted == _CONVERTED_DECIMAL:
        return ("DECIMAL", element.need(8, I32), element.get(7, I32) or 0)
    if converted not in _CONVERTED:
        raise ThriftError(f"converted type {converted} is unknown")
    return _CONVERTED[converted]
