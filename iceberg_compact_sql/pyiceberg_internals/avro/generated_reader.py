"""Generates a function for one Avro schema, which reads some fields of each record and skips the others.

Calling a list of readers costs more than the decoding itself. The function is generated as Python source with one or
two lines for each field. The source contains only numbers of the schema, never its names.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from iceberg_compact_sql.pyiceberg_internals.avro.named_types import inline_named_types

# Takes a decoder and, for each block, its record count and its end; returns a list of values for each record.
ReadRows = Callable[[BinaryDecoder, Sequence[tuple[int, int]]], list[list[Any]]]

_INTEGERS = ("int", "long")
_READ = {
    "boolean": "decoder.read_boolean()",
    "int": "read_int()",
    "long": "read_int()",
    # pyiceberg's compiled decoder reads doubles through a 32-bit float.
    "double": "read_double(decoder.read(8))[0]",
    "string": "decoder.read_utf8()",
    "bytes": "decoder.read_bytes()",
}
_SKIP = {
    "null": "pass",
    "boolean": "decoder.skip_boolean()",
    "int": "read_int()",
    "long": "read_int()",
    "float": "decoder.skip_float()",
    "double": "decoder.skip_double()",
    "string": "skip_bytes()",
    "bytes": "skip_bytes()",
    "enum": "read_int()",
}
# Logical types that pyiceberg reads as plain numbers.
_PLAIN_NUMBERS = ("date", "time-micros", "timestamp-micros", "timestamp-nanos")
# pyiceberg reads the other types.
_FOREIGN = ("array", "bytes", "fixed", "float", "string")
# Iceberg's schemas are far less deep, and Python's own limit is not much higher.
_DEEPEST = 40
_DEPTH = 3
_HEAD = """\
def read_rows(decoder, blocks):
    read_int, read_ints, skip_bytes, skip = decoder.read_int, decoder.read_ints, decoder.skip_bytes, decoder.skip
    tell = decoder.tell
    rows = []
    append = rows.append
    for count, end in blocks:
        for _ in repeat(None, count):
"""
_TAIL = """\
        if tell() != end:
            bad_block()
    return rows
"""


@lru_cache(maxsize=256)
def rows_reader(schema_text: bytes, field_ids: tuple[int, ...]) -> ReadRows:
    """Return the function for the given Iceberg field ids, in that order; None for a field that the schema lacks.

    Fields of nested records are found at any depth; a requested nested record is a tuple. Cached, as files
    of one writer share their schema text.
    """
    code = _Code({field: at for at, field in enumerate(field_ids)})
    values = [f"v{at}" for at in range(len(field_ids))]
    code.line(_DEPTH, f"{' = '.join(values)} = None")
    code.record(inline_named_types(json.loads(schema_text)), _DEPTH)
    code.line(_DEPTH, f"append([{', '.join(values)}])")
    exec(compile(f"{_HEAD}{''.join(code.lines)}{_TAIL}", "<avro>", "exec"), code.names)
    made: ReadRows = code.names["read_rows"]
    return made


def _bad_block() -> None:
    raise ValueError("damaged Avro file: the record count of a block does not match its content")


def _bad_branch(branch: int) -> None:
    raise ValueError(f"damaged Avro file: a union has no branch {branch}")


class _Code:
    """The body of the generated function: lines, and the objects that they use."""

    def __init__(self, wanted: dict[int, int]) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "repeat": repeat,
            "bad_block": _bad_block,
            "bad_branch": _bad_branch,
            "read_double": struct.Struct("<d").unpack,
        }
        self._wanted = wanted
        self._kinds: dict[str, Any] = {}
        self._open: set[str] = set()
        self._variables = 0

    def record(self, kind: dict[str, Any], depth: int) -> None:
        self._kinds[kind.get("name", "")] = kind
        for field in kind["fields"]:
            at = self._wanted.get(field.get("field-id", -1))
            if at is not None:
                self._read(field["type"], f"v{at}", depth)
            elif _name(field["type"]) == "record":
                self.record(field["type"], depth)
            else:
                self._skip(field["type"], depth)

    def line(self, depth: int, text: str) -> None:
        if depth > _DEEPEST:
            raise ValueError("damaged Avro file: its types are nested too deeply")
        self.lines.append(f"{'    ' * depth}{text}\n")

    def _variable(self) -> str:
        self._variables += 1
        return f"n{self._variables}"

    def _union(self, branches: list[Any], depth: int, each: Callable[[Any, int], None]) -> None:
        branch = self._variable()
        self.line(depth, f"{branch} = read_int()")
        # The most frequent branch first: a value, not null.
        order = sorted(range(len(branches)), key=lambda at: branches[at] == "null")
        for position, at in enumerate(order):
            self.line(depth, f"{'elif' if position else 'if'} {branch} == {at}:")
            each(branches[at], depth + 1)
        self.line(depth, "else:")
        self.line(depth + 1, f"bad_branch({branch})")

    def _blocks(self, depth: int, each: Callable[[str, int], None], *, sized: str) -> None:
        """Add a loop over the blocks of an array; a negative count is followed by the block's size in bytes."""
        count = self._variable()
        self.line(depth, f"{count} = read_int()")
        self.line(depth, f"while {count}:")
        self.line(depth + 1, f"if {count} < 0:")
        self.line(depth + 2, sized.format(count=count))
        if sized == _SKIP_SIZED:
            self.line(depth + 1, "else:")
            each(count, depth + 2)
        else:
            each(count, depth + 1)
        self.line(depth + 1, f"{count} = read_int()")

    def _read(self, kind: Any, target: str, depth: int) -> None:
        name = _name(kind)
        if isinstance(kind, list):
            self._union(kind, depth, lambda branch, deeper: self._read(branch, target, deeper))
        elif isinstance(name, (dict, list)):
            self._read(name, target, depth)
        elif name == "null":
            self.line(depth, f"{target} = None")
        elif name in _READ and _logical(kind) in (None, *(_PLAIN_NUMBERS if name in _INTEGERS else ())):
            self.line(depth, f"{target} = {_READ[name]}")
        elif name == "record":
            parts = [self._variable() for _ in kind["fields"]]
            for part, field in zip(parts, kind["fields"], strict=True):
                self._read(field["type"], part, depth)
            self.line(depth, f"{target} = ({''.join(f'{part}, ' for part in parts)})")
        elif name == "array" and kind["items"] in _INTEGERS:
            self.line(depth, f"{target} = []")
            self._blocks(
                depth, lambda count, deeper: self.line(deeper, f"{target} += read_ints({count})"), sized=_READ_SIZED
            )
        elif name in _FOREIGN:
            reader = self._variable()
            self.names[reader] = _pyicebergs_reader(kind)
            self.line(depth, f"{target} = {reader}(decoder)")
        else:
            raise ValueError(f"cannot read a value of the Avro type {name!r}")

    def _skip(self, kind: Any, depth: int) -> None:
        name = _name(kind)
        if isinstance(kind, list):
            self._union(kind, depth, self._skip)
        elif isinstance(name, (dict, list)):
            self._skip(name, depth)
        elif name in _SKIP:
            self.line(depth, _SKIP[name])
        elif name == "record":
            self._kinds[kind.get("name", "")] = kind
            for field in kind["fields"] or ({"type": "null"},):
                self._skip(field["type"], depth)
        elif name == "fixed":
            self.line(depth, f"skip({int(kind['size'])})")
        elif name == "array":
            self._blocks(depth, lambda count, deeper: self._skip_items(kind["items"], count, deeper), sized=_SKIP_SIZED)
        elif name == "map":
            pair = {"type": "record", "fields": [{"type": "string"}, {"type": kind["values"]}]}
            self._blocks(depth, lambda count, deeper: self._skip_items(pair, count, deeper), sized=_SKIP_SIZED)
        elif name in self._kinds:
            if name in self._open:
                raise ValueError("damaged Avro file: a type holds itself")
            self._open.add(name)
            self._skip(self._kinds[name], depth)
            self._open.discard(name)
        else:
            raise ValueError(f"cannot skip a value of the Avro type {name!r}")

    def _skip_items(self, items: Any, count: str, depth: int) -> None:
        """Skip items. Iceberg stores maps with integer keys as arrays of pairs: one call skips all integers."""
        fields = [field["type"] for field in items["fields"]] if _name(items) == "record" else [items]
        if all(field in _INTEGERS for field in fields):
            self.line(depth, f"read_ints({len(fields)} * {count})")
            return
        self.line(depth, f"for _ in repeat(None, {count}):")
        self._skip(items, depth + 1)


_SKIP_SIZED = "skip(read_int())"
_READ_SIZED = "{count} = -{count}; read_int()"


def _name(kind: Any) -> Any:
    return kind["type"] if isinstance(kind, dict) else kind


def _logical(kind: Any) -> Any:
    return kind.get("logicalType") if isinstance(kind, dict) else None


def _pyicebergs_reader(kind: Any) -> Callable[[BinaryDecoder], Any]:
    schema = AvroSchemaConversion().avro_to_iceberg({"fields": [{"name": "value", "type": kind, "field-id": 1}]})
    reader = construct_reader(schema)
    assert isinstance(reader, StructReader)
    [(_, field_reader)] = reader.field_readers
    return field_reader.read
