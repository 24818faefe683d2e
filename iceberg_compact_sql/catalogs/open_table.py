"""From a name in a session to an open table: Spark's settings, pyiceberg's configuration, or the embedded catalog."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
)
from pyiceberg.table import Table
from pyiceberg.utils.config import Config
from sqlalchemy import text

from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.catalogs.jdbc_uri import sqlite_uri
from iceberg_compact_sql.catalogs.names import (
    EMBEDDED_CATALOG,
    Origin,
    near_name,
    parse_table_name,
    quote_name,
    resolve_name,
    show_name,
)
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.catalogs.spark_conf import pyiceberg_properties, spark_catalog_names
from iceberg_compact_sql.errors import (
    IcebergCompactError,
    InvalidArgumentError,
    MissingDependencyError,
    NotFoundError,
    UnsupportedError,
)
from iceberg_compact_sql.events import reach
from iceberg_compact_sql.pyiceberg_internals.session_trust import open_trusting, trusting
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.storage.exclusive_create import local_path
from iceberg_compact_sql.storage.write_paths import require_full_locations

_T = TypeVar("_T")
_EXTRAS = {"hive": "hive", "glue": "glue", "dynamodb": "glue", "sql": "postgres"}
_open: dict[tuple[object, ...], Catalog] = {}
_opening = threading.Lock()


@dataclass(frozen=True)
class OpenTable:
    """A table as it was when loaded, and where it came from; `name` is what the user wrote."""

    name: str
    catalog_name: str
    identifier: tuple[str, ...]
    catalog: Catalog = field(repr=False)
    table: Table = field(repr=False)
    # Whether Spark has a catalog of this name: only then is there anything to refresh in Spark.
    in_spark: bool = False

    @property
    def spark_name(self) -> str:
        """The full name, quoted for SQL such as REFRESH TABLE."""
        return quote_name((self.catalog_name, *self.identifier))

    def reload(self) -> OpenTable:
        """The table as it is now, with fresh credentials where the catalog hands them out."""
        return replace(self, table=_load(self.catalog, self.catalog_name, self.identifier))

    def require_commits(self) -> None:
        """Raise now, before any work, if commits to this table would not be safe."""
        require_full_locations(self.table.metadata.properties)
        if isinstance(self.catalog, HadoopCatalog):
            self.catalog.require_commits()


def open_table(view: SessionView, name: str, *, catalog: str | None = None) -> OpenTable:
    """Load the table that `name` means in the session; `catalog` is that of a `catalog.system.procedure(...)` call."""
    known = known_catalogs(view)
    resolved = resolve_name(view, parse_table_name(name), known, catalog=catalog)
    opened = open_catalog(view, resolved.catalog)
    reach("table.load", catalog=resolved.catalog, table=".".join(resolved.identifier))
    table = _load(opened, resolved.catalog, resolved.identifier, tuple(known))
    in_spark = known[resolved.catalog] is Origin.SPARK
    return OpenTable(name, resolved.catalog, resolved.identifier, opened, table, in_spark)


def iceberg_catalogs(view: SessionView) -> tuple[str, ...]:
    """Names of all Iceberg catalogs that the session can name, Spark's first."""
    return tuple(known_catalogs(view))


def known_catalogs(view: SessionView) -> dict[str, Origin]:
    """Every Iceberg catalog and where it is declared; Spark's word comes first when two have the same name."""
    known = dict.fromkeys(spark_catalog_names(view.conf), Origin.SPARK)
    if view.embedded_warehouse is not None:
        known.setdefault(EMBEDDED_CATALOG, Origin.EMBEDDED)
    taken = {name.lower() for name in known}
    for name in _configuration().get_known_catalogs():
        if name.lower() not in taken:
            known[name] = Origin.PYICEBERG
    return known


def open_catalog(view: SessionView, name: str) -> Catalog:
    """The catalog of that name; opened once in a process for the same settings, as opening asks servers."""
    properties = _properties(view, name)
    providers = frozenset(filter(None, re.split(r"[\s,]+", view.setting("location_providers") or "")))
    key = (os.getpid(), name, repr(sorted(properties.items())), providers)
    with _opening:
        if key not in _open:
            _open[key] = _guarded("", name, properties, lambda: _make(name, properties, providers))
        return _open[key]


def close_catalogs() -> None:
    """Forget every open catalog and give its connections back."""
    with _opening:
        for catalog in _open.values():
            catalog.close()
        _open.clear()


def _properties(view: SessionView, name: str) -> dict[str, str]:
    known = known_catalogs(view)
    if name not in known:
        near = near_name(name, list(known))
        listed = f"Configured: {', '.join(sorted(known)) or 'none'}."
        hint = f"{near} {listed}" if near else listed
        raise NotFoundError(f"there is no Iceberg catalog {name!r}", argument="catalog", value=name, hint=hint)
    if known[name] is Origin.EMBEDDED:
        return _embedded_properties(view)
    if known[name] is Origin.PYICEBERG:
        return dict(_configuration().get_catalog_config(name) or {})  # type: ignore[arg-type]
    if name == EMBEDDED_CATALOG and view.embedded_warehouse is not None:
        _require_same_embedded(view, view.embedded_warehouse)
        return _embedded_properties(view)
    return pyiceberg_properties(view.conf, name)


def _embedded_properties(view: SessionView) -> dict[str, str]:
    assert view.embedded_warehouse is not None
    folder = _embedded_folder(view.embedded_warehouse)
    make_folder(folder)
    return {"type": "sql", "uri": sqlite_uri(folder / "catalog.db"), "warehouse": f"file://{folder}"}


def make_folder(folder: Path) -> None:
    """Have the folder of the embedded catalog; one that cannot hold tables is refused."""
    refused: dict[str, Any] = {"argument": "warehouse", "value": str(folder)}
    if "#" in str(folder) or "?" in str(folder):
        # pyiceberg takes paths for URLs and would write to what stands before such a character.
        message = f"the warehouse {str(folder)!r} has a '#' or '?' in its path, where tables cannot be written"
        raise InvalidArgumentError(message, hint="Give a folder of another name.", **refused)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the warehouse {str(folder)!r} cannot be made: {error.strerror}"
        raise InvalidArgumentError(message, hint="Give a folder that you may write to.", **refused) from None


def _embedded_folder(warehouse: str) -> Path:
    return (local_path(warehouse) or Path(warehouse)).expanduser().absolute()


def _require_same_embedded(view: SessionView, warehouse: str) -> None:
    """Spark may know the embedded catalog too, but one name must not mean two catalogs."""
    uri = view.conf.get(f"spark.sql.catalog.{EMBEDDED_CATALOG}.uri", "")
    file = Path(uri.removeprefix("jdbc:sqlite:")) if uri.startswith("jdbc:sqlite:") else None
    if file is None or file.absolute() != _embedded_folder(warehouse) / "catalog.db":
        message = (
            f"register(spark, warehouse=...) uses the name {EMBEDDED_CATALOG!r}, which is another catalog in Spark"
        )
        hint = f"Leave the warehouse out, or rename spark.sql.catalog.{EMBEDDED_CATALOG}."
        raise InvalidArgumentError(message, argument="catalog", value=EMBEDDED_CATALOG, hint=hint)


def _configuration() -> Config:
    try:
        return Config()
    except Exception as error:
        hint = "Correct ~/.pyiceberg.yaml or the PYICEBERG_* variables."
        raise IcebergCompactError(f"pyiceberg's configuration cannot be read: {redact(error)}", hint=hint) from None


def _make(name: str, properties: dict[str, str], providers: frozenset[str]) -> Catalog:
    if properties.get("type") == "hadoop":
        own = {key: value for key, value in properties.items() if key != "type"}
        return trusting(HadoopCatalog(name, **own), providers)
    return open_trusting(name, properties, providers)


def _load(catalog: Catalog, name: str, identifier: tuple[str, ...], catalogs: tuple[str, ...] = ()) -> Table:
    """The table; `catalogs` are the names that a user may have had in mind for the first part."""
    shown = show_name(identifier)
    return _guarded(shown, name, catalog.properties, lambda: _load_plainly(catalog, name, identifier, catalogs))


def _load_plainly(catalog: Catalog, name: str, identifier: tuple[str, ...], catalogs: tuple[str, ...]) -> Table:
    shown = show_name(identifier)
    if len(identifier) < 2:
        hint = f"Write '{show_name((name, 'db', *identifier))}'."
        message = f"'{shown}' names no namespace in catalog {name!r}"
        raise NotFoundError(message, argument="table", value=shown, hint=hint)
    try:
        return catalog.load_table(identifier)
    except NoSuchIcebergTableError:
        message = f"'{shown}' in catalog {name!r} is not an Iceberg table"
        raise UnsupportedError(message, argument="table", value=shown) from None
    except (NoSuchTableError, NoSuchNamespaceError):
        _explain_missing(catalog, name, identifier, catalogs)


def _explain_missing(catalog: Catalog, name: str, identifier: tuple[str, ...], catalogs: tuple[str, ...]) -> NoReturn:
    shown, namespace = show_name(identifier), identifier[:-1]
    none: list[tuple[str, ...]] = []
    if _best_effort(lambda: _is_view(catalog, identifier), default=False):
        raise UnsupportedError(f"'{shown}' in catalog {name!r} is a view, not a table", argument="table", value=shown)
    if not _best_effort(lambda: catalog.namespace_exists(namespace), default=True):
        namespaces = _best_effort(lambda: catalog.list_namespaces(namespace[:-1]), default=none)
        near = near_name(show_name(namespace), [show_name(found) for found in namespaces])
        hint = near or _listed("Namespaces", namespaces)
        if not namespaces and len(namespace) > 1:
            # Nothing begins like this: the first part may have been meant as a catalog.
            near = near_name(namespace[0], catalogs)
            tops = _best_effort(catalog.list_namespaces, default=none)
            known = _listed("Iceberg catalogs", [(known,) for known in catalogs])
            hint = " ".join(filter(None, (near, _listed("Namespaces", tops), known)))
        message = f"catalog {name!r} has no namespace '{show_name(namespace)}', so there is no table '{shown}'"
        raise NotFoundError(message, argument="table", value=shown, hint=hint)
    tables = _best_effort(lambda: catalog.list_tables(namespace), default=none)
    near = near_name(shown, [show_name(found) for found in tables])
    message = f"there is no table '{shown}' in catalog {name!r}"
    raise NotFoundError(message, argument="table", value=shown, hint=near or _listed("Tables there", tables))


def _is_view(catalog: Catalog, identifier: tuple[str, ...]) -> bool:
    if not hasattr(catalog, "engine"):
        return catalog.view_exists(identifier)
    # pyiceberg's SQL catalog hides the rows of views and cannot be asked for them.
    with catalog.engine.connect() as connection:
        query = text(
            "SELECT count(*) FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace "
            "AND table_name = :name AND iceberg_type = 'VIEW'"
        )
        names = {"catalog": catalog.name, "namespace": ".".join(identifier[:-1]), "name": identifier[-1]}
        return bool(connection.execute(query, names).scalar())


def _listed(what: str, names: Collection[tuple[str, ...]]) -> str:
    if not names:
        return f"{what}: none."
    shown = sorted(show_name(name) for name in names)
    return f"{what}: {', '.join(shown[:10])}{', ...' if len(shown) > 10 else ''}."


def _best_effort(ask: Callable[[], _T], *, default: _T) -> _T:
    """A question that only makes a message better must never replace it by another failure."""
    try:
        return ask()
    except Exception:
        return default


def _guarded(table: str, name: str, properties: dict[str, str], work: Callable[[], _T]) -> _T:
    """Run `work`; what goes wrong in a driver or on a server becomes an error of ours without credentials."""
    try:
        return work()
    except IcebergCompactError:
        raise
    except (NotInstalledError, ImportError) as error:
        _explain_dependency(name, properties, error)
    except Exception as error:
        told = " ".join(str(error).split())
        clean = redact(told, properties)
        if "no such table: iceberg_tables" in told or 'relation "iceberg_tables" does not exist' in told:
            message = f"the database of catalog {name!r} holds no Iceberg catalog yet"
            hint = "Create the first table with the engine that owns it, or correct the catalog's uri."
            raise NotFoundError(message, argument="catalog", value=name, hint=hint) from None
        what = (
            f"table '{table}' in catalog {name!r} cannot be loaded" if table else f"catalog {name!r} cannot be opened"
        )
        message = f"{what}: {type(error).__name__}: {clean[:500]}"
        hint = f"Check the settings spark.sql.catalog.{name}.* (or ~/.pyiceberg.yaml) and that its server is up."
        # The cause is shown beside ours in a traceback, so it may only be kept when it holds no secret.
        raise IcebergCompactError(message, argument="catalog", value=name, hint=hint) from (
            error if clean == told else None
        )


def _explain_dependency(name: str, properties: dict[str, str], error: Exception) -> NoReturn:
    kind = str(properties.get("type", ""))
    missing = getattr(error.__cause__ or error, "name", None) or "a Python package"
    uri = str(properties.get("uri", ""))
    extra = "postgres" if uri.startswith("postgresql") else _EXTRAS.get(kind)
    install = f"pip install 'iceberg-compact-sql[{extra}]'" if extra else f"pip install {missing}"
    if kind == "sql" and uri.startswith("mysql"):
        install = "pip install pymysql"
    message = f"catalog {name!r} needs {missing}, which is not installed"
    raise MissingDependencyError(message, argument="catalog", value=name, hint=f"Run: {install}") from None
