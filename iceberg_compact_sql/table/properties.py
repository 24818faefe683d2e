"""Table properties, each with its default and the function that reads it.

The settings of the Parquet writer (`write.parquet.*`) and of column metrics (`write.metadata.metrics.*`) are not
here: `rewrite.write.settings` and `rewrite.write.metrics` read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.units import LONG_MAX, parse_size

T = TypeVar("T")
_DAY_MS = 86_400_000
_FULL_LOCATION = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")


@dataclass(frozen=True, slots=True)
class Property(Generic[T]):
    """A table property. `read` turns its text into a value and raises when the text is not valid."""

    name: str
    default: T
    read: Callable[[str, str], T]

    def of(self, properties: Mapping[str, str]) -> T:
        """Return the value from these table properties, or the default."""
        text = properties.get(self.name)
        return self.default if text is None else self.read(self.name, text)


def _boolean(name: str, text: str) -> bool:
    return text.strip().lower() == "true"


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UnsupportedError(
            f"table property {name} is {text!r}, not a number", hint=f"Set {name} to a number, or unset it."
        ) from None


def _size(name: str, text: str) -> int:
    try:
        size_bytes = parse_size(text)
    except ValueError as error:
        raise InvalidArgumentError(f"table property {name} {text!r} {error}", argument="target", value=text) from error
    if size_bytes < 1:
        raise InvalidArgumentError(f"table property {name} {text!r} must be above 0", argument="target", value=text)
    return size_bytes


def _word(name: str, text: str) -> str:
    return text.strip().lower()


def _location(name: str, text: str) -> str | None:
    return text or None


def _lenient(default: int, *, least: int = 0) -> Callable[[str, str], int]:
    """Return a reader of numbers. Other text gives the default: a typo in the property must not stop a commit."""

    def read(name: str, text: str) -> int:
        return int(text) if text.isdigit() and int(text) >= least else default

    return read


def lenient_number(name: str, default: int, *, least: int = 0) -> Property[int]:
    """Return a number property. Text that is not a number gives the default."""
    return Property(name, default, _lenient(default, least=least))


TARGET_FILE_BYTES = Property("write.target-file-size-bytes", 512 * 1024**2, _size)
# The target of this package's own maintenance, which comes before the writers' target.
MAINTENANCE_TARGET_BYTES: Property[int | None] = Property("iceberg-compact.target", None, _size)
DELETE_TARGET_FILE_BYTES = Property("write.delete.target-file-size-bytes", 64 * 1024**2, _size)
DELETE_GRANULARITY = Property("write.delete.granularity", "partition", _word)

MANIFEST_TARGET_BYTES = lenient_number("commit.manifest.target-size-bytes", 8 * 1024**2, least=1)
MANIFEST_MIN_COUNT_TO_MERGE = lenient_number("commit.manifest.min-count-to-merge", 100)
MANIFEST_MERGE_ENABLED = Property("commit.manifest-merge.enabled", True, _boolean)
SUMMARY_PARTITION_LIMIT = lenient_number("write.summary.partition-limit", 0)

GC_ENABLED = Property("gc.enabled", True, _boolean)
MAX_SNAPSHOT_AGE_MS = Property("history.expire.max-snapshot-age-ms", 5 * _DAY_MS, _number)
MIN_SNAPSHOTS_TO_KEEP = Property("history.expire.min-snapshots-to-keep", 1, _number)
MAX_REF_AGE_MS = Property("history.expire.max-ref-age-ms", LONG_MAX, _number)

DATA_PATH: Property[str | None] = Property("write.data.path", None, _location)
METADATA_PATH: Property[str | None] = Property("write.metadata.path", None, _location)
# Older names of the data folder that Iceberg's Java library still reads; the first only with object storage enabled.
OBJECT_STORAGE_PATH: Property[str | None] = Property("write.object-storage.path", None, _location)
FOLDER_STORAGE_PATH: Property[str | None] = Property("write.folder-storage.path", None, _location)
OBJECT_STORAGE_ENABLED = Property("write.object-storage.enabled", False, _boolean)
WRITE_PATHS = (DATA_PATH, METADATA_PATH, OBJECT_STORAGE_PATH, FOLDER_STORAGE_PATH)
JAVA_LOCATION_PROVIDER: Property[str | None] = Property("write.location-provider.impl", None, _location)
PYTHON_LOCATION_PROVIDER: Property[str | None] = Property("write.py-location-provider.impl", None, _location)

METADATA_COMPRESSION = Property("write.metadata.compression-codec", "none", _word)
NAME_MAPPING: Property[str | None] = Property("schema.name-mapping.default", None, _location)


def require_full_locations(location: str, properties: Mapping[str, str]) -> None:
    """Refuse a relative location or write path: each process would resolve it to a different folder."""
    if _FULL_LOCATION.match(location) is None:
        raise UnsupportedError(
            f"the table's location is {location!r}, which is not a full location",
            argument="table",
            value=location,
            hint="Nothing is written or deleted, because every process has its own working folder. Give the catalog a "
            "warehouse with a full path, and create the table there again.",
        )
    for path in WRITE_PATHS:
        folder = path.of(properties)
        if folder and _FULL_LOCATION.match(folder) is None:
            raise UnsupportedError(
                f"the table's property '{path.name}' is {folder!r}, which is not a full location",
                argument="table",
                value=folder,
                hint=f"Set it to a full location, or unset it: ALTER TABLE ... UNSET TBLPROPERTIES ('{path.name}').",
            )
