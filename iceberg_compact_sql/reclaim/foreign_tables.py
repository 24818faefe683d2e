"""Other tables whose files lie in a place that is about to be cleaned: by metadata inside it, or in a folder above."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.reclaim.owned_roots import owned_roots
from iceberg_compact_sql.reclaim.quarantine import metadata_root
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.storage.stores import Stores

_UUID = re.compile(rb'"table-uuid"\s*:\s*"([0-9a-fA-F-]{36})"')


def is_table_metadata(path: str) -> bool:
    """Whether a file's name is that of a table's metadata."""
    return path.endswith((".metadata.json", ".metadata.json.gz"))


def refuse_foreign_tables(table: Table, stores: Stores, metadata_files: Iterable[str]) -> None:
    """Refuse when any of these metadata files belongs to another table.

    One that cannot be read is refused too, unless it lies in this table's own metadata folder, where a writer that
    died leaves such a file behind.
    """
    own_uuid = str(table.metadata.table_uuid).lower()
    own_folder = split_location(metadata_root(table.metadata))
    paths = list(metadata_files)
    for path, content in zip(paths, stores.read_all(paths), strict=True):
        if isinstance(content, FileNotFoundError):
            continue
        uuid = None if isinstance(content, BaseException) else _table_uuid(content)
        if uuid == own_uuid:
            continue
        if uuid is None and relative_to(own_folder, split_location(path)) is not None:
            continue
        whose = f"belongs to another table ({uuid})" if uuid else "cannot be read, so nobody can tell whose it is"
        raise UnsupportedError(
            f"{path} {whose}: files of another table lie inside this one's location",
            hint="Give a location that holds files of this table only, or move the other table.",
        )


def refuse_place_of_another(table: Table, stores: Stores, place: str) -> None:
    """Refuse a place outside the table's own location that lies in another table's.

    A table's properties name such places (`write.data.path`), and whoever may set them may name anything.
    """
    if _is_own(table, place):
        return
    folder = place.rstrip("/").rpartition("/")[0]
    while split_location(folder).path.strip("/"):
        refuse_foreign_tables(table, stores, _newest_metadata(stores, join(folder, "metadata")))
        folder = folder.rpartition("/")[0]


def refuse_shared_place(table: Table, place: str) -> None:
    """Refuse a place outside the table's own location where another table of the catalog writes too.

    `write.data.path` is often one for many tables, and nothing in a data file says whose it is.
    """
    if _is_own(table, place):
        return
    spot = split_location(place)
    for other in _other_tables(table):
        for theirs in owned_roots(other.metadata):
            root = split_location(theirs)
            if relative_to(root, spot) is not None or relative_to(spot, root) is not None:
                raise UnsupportedError(
                    f"table {'.'.join(other.name())} keeps files in {theirs}: here they would look like orphans",
                    argument="location",
                    value=place,
                    hint="Give a location that holds files of this table only.",
                )


def _is_own(table: Table, place: str) -> bool:
    return relative_to(split_location(table.metadata.location), split_location(place)) is not None


def _newest_metadata(stores: Stores, folder: str) -> list[str]:
    try:
        files, _ = stores.of(folder).level(folder)
    except OSError:
        # There is no such folder, or it is not for us to see: then it tells nothing.
        return []
    return sorted(file.path for file in files if is_table_metadata(file.path))[-1:]


def _other_tables(table: Table) -> Iterator[Table]:
    """The tables that the catalog lists, as far as it does and this user may see them."""
    catalog = table.catalog
    for namespace in {table.name()[:-1], *_listed(catalog.list_namespaces)}:
        for name in _listed(partial(catalog.list_tables, namespace)):
            try:
                other = catalog.load_table(name)
            except Exception:
                # Not for this user to see, or no Iceberg table.
                continue
            if other.metadata.table_uuid != table.metadata.table_uuid:
                yield other


def _listed(names: Callable[[], list[Identifier]]) -> list[Identifier]:
    try:
        return names()
    except Exception:
        return []


def _table_uuid(content: bytes) -> str | None:
    try:
        text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        found = _UUID.findall(text)
        # A property or comment may hold the same words: only the parsed document decides between several.
        uuid = found[0].decode() if len(found) == 1 else json.loads(text).get("table-uuid")
    except (OSError, EOFError, ValueError, AttributeError):
        return None
    return str(uuid).lower() if uuid else None
