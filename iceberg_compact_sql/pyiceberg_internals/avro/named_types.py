"""Types of Avro files that have a name: two decimals of one precision in a spec, or two uuids, have the same one.

Java defines such a type once and refers to it by its name from then on, which pyiceberg does not understand; pyiceberg
itself defines it twice, which Avro forbids and strict readers refuse.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_NESTING = ("type", "items", "values", "fields")
_to_iceberg = AvroSchemaConversion.avro_to_iceberg
_to_avro = AvroSchemaConversion.iceberg_to_avro


def _read(self: AvroSchemaConversion, avro_schema: dict[str, Any]) -> Schema:
    return _to_iceberg(self, spelled_out(avro_schema))


def _written(self: AvroSchemaConversion, schema: Schema, schema_name: str | None = None) -> Any:
    return _told_apart(_to_avro(self, schema, schema_name), {})


def spelled_out(schema: dict[str, Any]) -> Any:
    """The schema with the definition in place of every name of a fixed type."""
    return _spelled_out(schema, {})


def _spelled_out(node: Any, defined: dict[str, Any]) -> Any:
    if isinstance(node, str):
        return defined.get(node, node)
    if isinstance(node, list):
        return [_spelled_out(part, defined) for part in node]
    if node.get("type") == "fixed":
        defined[node["name"]] = node
        return node
    return {key: _spelled_out(value, defined) if key in _NESTING else value for key, value in node.items()}


def _told_apart(node: Any, used: dict[str, int]) -> Any:
    """The schema with another name for each fixed type that would be defined again; readers go by ids, not by it."""
    if isinstance(node, list):
        return [_told_apart(part, used) for part in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "fixed":
        name = node["name"]
        used[name] = used.get(name, 0) + 1
        return node if used[name] == 1 else {**node, "name": f"{name}_{used[name]}"}
    return {key: _told_apart(value, used) if key in _NESTING else value for key, value in node.items()}


# On the class: schemas are converted deep inside pyiceberg, for every file that it reads or writes.
AvroSchemaConversion.avro_to_iceberg = _read  # type: ignore[method-assign]
AvroSchemaConversion.iceberg_to_avro = _written  # type: ignore[method-assign]
