"""Makes pyiceberg's models of table metadata keep what they would refuse or drop. Importing this module does it.

- Statistics blobs of any type. pyiceberg 0.12 cannot load a table whose metadata names a type that it lacks, although
  the specification leaves the type open, and engines write their own.
- Fields of format version 3 that pyiceberg does not know, such as `encryption-keys`, and those of snapshots. A commit
  in this process writes the whole metadata again, and would drop them.
- Version 3 as JSON: pyiceberg refuses to write it, although its model has every other field of the version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

# Imported so that the models that contain statistics are known here, also those of updates and of REST answers.
from pyiceberg.catalog import rest as _rest  # noqa: F401
from pyiceberg.table import metadata as _metadata  # noqa: F401
from pyiceberg.table import update as _update  # noqa: F401
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import BlobMetadata
from pyiceberg.typedef import IcebergBaseModel


def accept_any_type() -> None:
    """Let statistics blobs have any type; models that pyiceberg or others made before are built again."""
    field = BlobMetadata.model_fields["type"]
    if field.annotation is str:
        return
    field.annotation = str
    BlobMetadata.__annotations__["type"] = str
    _rebuild(BlobMetadata)


def keep_unknown_fields() -> None:
    """Let snapshots, and metadata of version 3, keep the fields that pyiceberg does not know."""
    for model in (Snapshot, TableMetadataV3):
        model.model_config["extra"] = "allow"
    _rebuild(Snapshot, TableMetadataV3)
    TableMetadataV3.model_dump_json = IcebergBaseModel.model_dump_json  # type: ignore[method-assign]


def unknown_fields(model: BaseModel) -> dict[str, Any]:
    """Return the fields of a snapshot, or of metadata of version 3, that pyiceberg does not know."""
    return model.model_extra or {}


def _rebuild(*changed: type[BaseModel]) -> None:
    for model in _in_order_of_nesting(*changed):
        model.model_rebuild(force=True)


def _in_order_of_nesting(*changed: type[BaseModel]) -> list[type[BaseModel]]:
    """The models and all that contain them, each one after those that it contains or derives from."""
    models = set(_subclasses(BaseModel))
    parts = {model: set(_parts(model)) for model in models}
    ordered = list(changed)
    while True:
        found = {model for model in models - set(ordered) if parts[model] & set(ordered)}
        # A model is ready when none of its parts is still waiting; a cycle would have none that is.
        ready = {model for model in found if not parts[model] & (found - {model})} or found
        if not found:
            return ordered
        ordered += sorted(ready, key=lambda model: (len(model.__mro__), model.__qualname__))


def _subclasses(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for subclass in model.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _parts(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The models that a model names in its fields, and those that it derives from."""
    yield from (base for base in model.__bases__ if issubclass(base, BaseModel))
    for field in model.model_fields.values():
        yield from _named(field.annotation)


def _named(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _named(argument)


accept_any_type()
keep_unknown_fields()
