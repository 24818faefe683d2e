"""Whether a loaded table has everything that its metadata file names: snapshots, refs and statistics.

Whatever deletes or expires needs the complete metadata. A REST server may answer with the snapshots of branches and
tags only, whatever the request asks for, or leave out refs or statistics. A flipped bit in the name of an optional
field (`snaqshots`) hides the whole field from every reader. In both cases files of the table would look unneeded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyiceberg.table import Table

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.metadata_json import unzipped
from iceberg_compact_sql.storage.stores import Stores

_SHOWN = 3
# The fields of the specification in table metadata, snapshots and refs, required and optional.
_METADATA_FIELDS = frozenset(
    [
        "format-version",
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "schema",
        "schemas",
        "current-schema-id",
        "partition-spec",
        "partition-specs",
        "default-spec-id",
        "last-partition-id",
        "properties",
        "current-snapshot-id",
        "snapshots",
        "snapshot-log",
        "metadata-log",
        "sort-orders",
        "default-sort-order-id",
        "refs",
        "statistics",
        "partition-statistics",
        "next-row-id",
        "encryption-keys",
    ]
)
_SNAPSHOT_FIELDS = frozenset(
    [
        "snapshot-id",
        "parent-snapshot-id",
        "sequence-number",
        "timestamp-ms",
        "manifest-list",
        "manifests",
        "summary",
        "schema-id",
        "first-row-id",
        "added-rows",
        "key-id",
    ]
)
_REF_FIELDS = frozenset(["snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"])


def require_complete_metadata(table: Table) -> None:
    """Raise unless the table has all snapshots, refs and statistics that its metadata file names, in intact fields."""
    name = ".".join(table.name())
    try:
        document = json.loads(unzipped(Stores(table.io).read(table.metadata_location)))
        damaged = next(_damaged_fields(document), None)
        missing = [(kind, named - _given(kind, table), len(named)) for kind, named in _named(document)]
    except Exception as error:
        raise UnsupportedError(
            f"the metadata file {table.metadata_location} of table {name} cannot be read ({type(error).__name__}), so "
            "it is unknown whether the catalog gave all snapshots; nothing was deleted",
            argument="table",
            value=name,
            hint="Give this session the right to read the table's metadata files.",
        ) from error
    if damaged is not None:
        raise UnsupportedError(
            f"the metadata file {table.metadata_location} of table {name} has the field '{damaged[0]}' and no "
            f"'{damaged[1]}': it is damaged; nothing was deleted",
            argument="table",
            value=name,
            hint="Register the table from an older metadata file of its log.",
        )
    for kind, absent, count in missing:
        if absent:
            shown = ", ".join(sorted(map(str, absent))[:_SHOWN]) + (", ..." if len(absent) > _SHOWN else "")
            raise UnsupportedError(
                f"the catalog gives {count - len(absent)} of the {count} {kind} of table {name}: {shown} are "
                "missing; nothing was expired or deleted",
                argument="table",
                value=name,
                hint="Set up the server to return all snapshots for snapshots=all (snapshot-loading-mode).",
            )


def _named(document: Mapping[str, Any]) -> Iterator[tuple[str, set[Any]]]:
    """Yield what the metadata file names, by kind."""
    yield "snapshots", {int(snapshot["snapshot-id"]) for snapshot in document.get("snapshots") or ()}
    yield "refs", set(document.get("refs") or ())
    files = (*(document.get("statistics") or ()), *(document.get("partition-statistics") or ()))
    yield "statistics files", {file["statistics-path"] for file in files}


def _given(kind: str, table: Table) -> set[Any]:
    """Return what the catalog gave of one kind."""
    metadata = table.metadata
    if kind == "snapshots":
        return {snapshot.snapshot_id for snapshot in metadata.snapshots}
    if kind == "refs":
        return set(metadata.refs)
    return {file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics)}


def _damaged_fields(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield fields whose name differs in one character from a missing field of the specification."""
    yield from _similar_names(document, _METADATA_FIELDS)
    for snapshot in document.get("snapshots") or ():
        yield from _similar_names(snapshot, _SNAPSHOT_FIELDS)
    for ref in (document.get("refs") or {}).values():
        yield from _similar_names(ref, _REF_FIELDS)


def _similar_names(names: Iterable[str], fields: frozenset[str]) -> Iterator[tuple[str, str]]:
    present = frozenset(names)
    for name in sorted(present - fields):
        for field in sorted(fields - present):
            if len(name) == len(field) and sum(a != b for a, b in zip(name, field, strict=True)) == 1:
                yield name, field
