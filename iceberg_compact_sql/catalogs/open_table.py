"""Opens the table that a name means: by Spark's settings, pyiceberg's configuration, or the embedded catalog."""

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

from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.catalogs.jdbc_uri import sqlite_uri
from iceberg_compact_sql.catalogs.names import (
    EMBEDDED_CATALOG,
    Origin,
    closest_name,
    parse_table_name,
    quote_name,
    resolve_name,
    show_name,
)
from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX, SessionView
from iceberg_compact_sql.catalogs.spark_conf import pyiceberg_properties, spark_catalog_names
from iceberg_compact_sql.errors import (
    IcebergCompactError,
    InvalidArgumentError,
    MissingDependencyError,
    NotFoundError,
    UnsupportedError,
)
from iceberg_compact_sql.events import reach
from iceberg_compact_sql.pyiceberg_internals import kept_fields as _kept_fields  # noqa: F401 - acts by being imported
from iceberg_compact_sql.pyiceberg_internals import opaque_types as _opaque_types  # noqa: F401 - acts by being imported
from iceberg_compact_sql.pyiceberg_internals.session_trust import (
    load_trusted_catalog,
    with_trusted_file_io,
)
from iceberg_compact_sql.redaction import redact, remember_secrets
from iceberg_compact_sql.storage.local import path_on_disk
from iceberg_compact_sql.storage.request_timeouts import timeout_properties
from iceberg_compact_sql.table.properties import require_full_locations

_T = TypeVar("_T")
_EXTRAS = {"hive": "hive", "glue": "glue", "dynamodb": "glue", "sql": "postgres"}
# Environment variables that the clients of stores read credentials from.
_CLOUD_VARIABLES = ("AWS_", "AZURE_", "GCP_", "GOOGLE_")
_open_catalogs: dict[tuple[object, ...], Catalog] = {}
_open_lock = threading.Lock()


@dataclass(frozen=True)
class OpenTable:
    """A table as it was when loaded, and where it came from; `name` is what the user wrote."""

    name: str
    catalog_name: str
    identifier: tuple[str, ...]
    catalog: Catalog = field(repr=False)
    table: Table = field(repr=False)
    # Whether Spark has a catalog of this name: only then Spark's cache must be refreshed.
    in_spark: bool = False

    @property
    def spark_name(self) -> str:
        """Return the full name, quoted for SQL such as REFRESH TABLE."""
        return quote_name((self.catalog_name, *self.identifier))

    def reload(self) -> OpenTable:
        """Load the table again, with fresh credentials where the catalog vends them."""
        return replace(self, table=_load(self.catalog, self.catalog_name, self.identifier))

    def require_commits(self) -> None:
        """Raise, before any work, if commits to this table would not be safe."""
        require_full_locations(self.table.metadata.location, self.table.metadata.properties)
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


def known_catalogs(view: SessionView) -> dict[str, Origin]:
    """Return every Iceberg catalog and where it is declared; of two with one name, Spark's wins."""
    known = dict.fromkeys(spark_catalog_names(view.conf), Origin.SPARK)
    if view.embedded_warehouse is not None:
        known.setdefault(EMBEDDED_CATALOG, Origin.EMBEDDED)
    spark_names = {name.lower() for name in known}
    for name in _configuration().get_known_catalogs():
        if name.lower() not in spark_names:
            known[name] = Origin.PYICEBERG
    return known


def open_catalog(view: SessionView, name: str) -> Catalog:
    """Open the catalog of that name; once in a process for the same settings, since opening sends requests."""
    properties = {**_properties(view, name), **timeout_properties(view.setting, SETTING_PREFIX)}
    _remember_credentials(view, name, properties)
    providers = frozenset(filter(None, re.split(r"[\s,]+", view.setting("location_providers") or "")))
    key = (os.getpid(), name, repr(sorted(properties.items())), providers)
    with _open_lock:
        if key not in _open_catalogs:
            _open_catalogs[key] = _with_clear_errors("", name, properties, lambda: _make(name, properties, providers))
        return _open_catalogs[key]


def _remember_credentials(view: SessionView, name: str, properties: dict[str, str]) -> None:
    """Mask what the session, pyiceberg's configuration and the environment hold as credentials, before it is used."""
    remember_secrets(view.conf)
    remember_secrets(properties)
    remember_secrets(_configuration().get_catalog_config(name) or {})
    remember_secrets({key: value for key, value in os.environ.items() if key.startswith(_CLOUD_VARIABLES)})


def close_catalogs() -> None:
    """Close every open catalog and its connections."""
    with _open_lock:
        for catalog in _open_catalogs.values():
            catalog.close()
        _open_catalogs.clear()


def _properties(view: SessionView, name: str) -> dict[str, str]:
    known = known_catalogs(view)
    if name not in known:
        near = closest_name(name, list(known))
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
    """Create the folder of the embedded catalog; raise if it cannot hold tables."""
    refused: dict[str, Any] = {"argument": "warehouse", "value": str(folder)}
    if "#" in str(folder) or "?" in str(folder):
        # pyiceberg parses paths as URLs and would write to the part before such a character.
        message = f"the warehouse {str(folder)!r} has a '#' or '?' in its path, where tables cannot be written"
        raise InvalidArgumentError(message, hint="Give a folder of another name.", **refused)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the warehouse {str(folder)!r} cannot be created: {error.strerror}"
        raise InvalidArgumentError(message, hint="Give a folder that you may write to.", **refused) from None


def _embedded_folder(warehouse: str) -> Path:
    return (path_on_disk(warehouse) or Path(warehouse)).expanduser().absolute()


def _require_same_embedded(view: SessionView, warehouse: str) -> None:
    """Raise if Spark has another catalog with the name of the embedded one."""
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
        return with_trusted_file_io(HadoopCatalog(name, **own), providers)
    return load_trusted_catalog(name, properties, providers)


def _load(catalog: Catalog, name: str, identifier: tuple[str, ...], catalogs: tuple[str, ...] = ()) -> Table:
    """Load the table; `catalogs` are names that the user may have meant with the first part."""
    shown = show_name(identifier)
    table = _with_clear_errors(
        shown, name, catalog.properties, lambda: _load_or_explain(catalog, name, identifier, catalogs)
    )
    remember_secrets(table.io.properties)
    return table


def _load_or_explain(catalog: Catalog, name: str, identifier: tuple[str, ...], catalogs: tuple[str, ...]) -> Table:
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
        near = closest_name(show_name(namespace), [show_name(candidate) for candidate in namespaces])
        hint = near or _listed("Namespaces", namespaces)
        if not namespaces and len(namespace) > 1:
            # No namespace begins like this: the user may have meant a catalog with the first part.
            near = closest_name(namespace[0], catalogs)
            tops = _best_effort(catalog.list_namespaces, default=none)
            known = _listed("Iceberg catalogs", [(known,) for known in catalogs])
            hint = " ".join(filter(None, (near, _listed("Namespaces", tops), known)))
        message = f"catalog {name!r} has no namespace '{show_name(namespace)}', so there is no table '{shown}'"
        raise NotFoundError(message, argument="table", value=shown, hint=hint)
    tables = _best_effort(lambda: catalog.list_tables(namespace), default=none)
    near = closest_name(shown, [show_name(candidate) for candidate in tables])
    message = f"there is no table '{shown}' in catalog {name!r}"
    raise NotFoundError(message, argument="table", value=shown, hint=near or _listed("Tables there", tables))


def _is_view(catalog: Catalog, identifier: tuple[str, ...]) -> bool:
    if not hasattr(catalog, "engine"):
        return catalog.view_exists(identifier)
    # Imported late: only SQL catalogs need it, and a Spark worker may not have it.
    from sqlalchemy import text

    # pyiceberg's SQL catalog hides the rows of views.
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
    """Return the result of `ask`, or the default if it fails: a better message must not cost the error itself."""
    try:
        return ask()
    except Exception:
        return default


def _with_clear_errors(table: str, name: str, properties: dict[str, str], work: Callable[[], _T]) -> _T:
    """Run `work`; turn an error of a driver or a server into one of this package, without credentials."""
    try:
        return work()
    except IcebergCompactError:
        raise
    except (NotInstalledError, ImportError) as error:
        _explain_dependency(name, properties, error)
    except Exception as error:
        error_text = " ".join(str(error).split())
        clean = " ".join(redact(error, properties).split())
        if "no such table: iceberg_tables" in error_text or 'relation "iceberg_tables" does not exist' in error_text:
            message = f"the database of catalog {name!r} holds no Iceberg catalog yet"
            hint = "Create the first table with the engine that owns it, or correct the catalog's uri."
            raise NotFoundError(message, argument="catalog", value=name, hint=hint) from None
        what = (
            f"table '{table}' in catalog {name!r} cannot be loaded" if table else f"catalog {name!r} cannot be opened"
        )
        message = f"{what}: {type(error).__name__}: {clean[:500]}"
        hint = f"Check the settings spark.sql.catalog.{name}.* (or ~/.pyiceberg.yaml) and that its server is up."
        # A traceback shows the cause too, so keep the cause only when it holds no secret.
        raise IcebergCompactError(message, argument="catalog", value=name, hint=hint) from (
            error if clean == error_text else None
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
