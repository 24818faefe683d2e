"""Every table and view that a catalog lists, in namespaces of all levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.typedef import Identifier

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.redaction import redact

_T = TypeVar("_T")
_FILES_UNKNOWN = "so it is unknown whether its tables need files here; nothing was deleted"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A name in a catalog; `metadata_location` is None when the catalog gives it only with the loaded table."""

    identifier: Identifier
    is_view: bool = False
    metadata_location: str | None = None

    @property
    def shown(self) -> str:
        return ".".join(self.identifier)


def list_entries(catalog: Catalog, below: Identifier = (), *, consequence: str = _FILES_UNKNOWN) -> list[CatalogEntry]:
    """Return the tables and views of a namespace and of all namespaces below it; by default, of the whole catalog.

    Raises when a namespace cannot be listed; the message then says the `consequence`. A namespace that does not exist
    has no entries.
    """

    def ask(namespace: Identifier, question: Callable[[], _T]) -> _T | None:
        return _ask(catalog, namespace, question, consequence)

    if hasattr(catalog, "engine"):
        rows = ask((), lambda: _rows(catalog)) or []
        return [entry for entry in rows if entry.identifier[:-1][: len(below)] == below]
    entries: list[CatalogEntry] = []
    waiting: list[Identifier] = [below]
    seen: set[Identifier] = {below}
    while waiting:
        namespace = waiting.pop()
        for child in ask(namespace, lambda parent=namespace: catalog.list_namespaces(parent)) or ():  # type: ignore[misc]
            # A server without nested namespaces may return the top level again.
            full = tuple(child) if tuple(child)[: len(namespace)] == namespace else (*namespace, *child)
            if full not in seen and len(full) == len(namespace) + 1:
                seen.add(full)
                waiting.append(full)
        if namespace:
            tables = ask(namespace, lambda parent=namespace: catalog.list_tables(parent)) or ()  # type: ignore[misc]
            views = ask(namespace, lambda parent=namespace: _views(catalog, parent)) or ()  # type: ignore[misc]
            entries += [CatalogEntry(tuple(name)) for name in tables]
            entries += [CatalogEntry(tuple(name), is_view=True) for name in views]
    return entries


def _views(catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    try:
        return catalog.list_views(namespace)
    except NotImplementedError:
        return []


def _rows(catalog: Catalog) -> list[CatalogEntry]:
    """Return all rows of a SQL catalog in one query: pyiceberg hides views, and would read each table's metadata."""
    # Imported late: only SQL catalogs need it, and a Spark worker may not have it.
    from sqlalchemy import text

    with catalog.engine.connect() as connection:  # type: ignore[attr-defined]
        # The oldest schema of the database has no column `iceberg_type`.
        rows = connection.execute(
            text("SELECT * FROM iceberg_tables WHERE catalog_name = :catalog"), {"catalog": catalog.name}
        ).mappings()
        return [
            CatalogEntry(
                (*Catalog.identifier_to_tuple(row["table_namespace"]), row["table_name"]),
                is_view=str(row.get("iceberg_type") or "").upper() == "VIEW",
                metadata_location=row["metadata_location"],
            )
            for row in rows
        ]


def _is_broken_connection(error: Exception) -> bool:
    # By name: thrift, which the Hive catalog uses, may not be installed.
    return isinstance(error, ConnectionError) or type(error).__name__ == "TTransportException"


def _ask(catalog: Catalog, namespace: Identifier, ask: Callable[[], _T], consequence: str) -> _T | None:
    """Return the result of `ask`, or None for a namespace that was dropped meanwhile.

    A question whose connection broke is asked once more: a metastore closes connections that were idle.
    """
    try:
        try:
            return ask()
        except Exception as error:
            if not _is_broken_connection(error):
                raise
            return ask()
    except NoSuchNamespaceError:
        return None
    except Exception as error:
        where = (
            f"namespace {'.'.join(namespace)} of catalog {catalog.name!r}" if namespace else f"catalog {catalog.name!r}"
        )
        error_text = redact(" ".join(str(error).split()), catalog.properties)
        raise UnsupportedError(
            f"{where} cannot be listed ({type(error).__name__}: {error_text[:300]}), {consequence}",
            hint="Give this session the right to list it, or run again when the catalog answers.",
        ) from None
