"""Only the session's settings choose the classes that open a table's files; table properties and REST servers cannot.

pyiceberg makes a table's FileIO from the catalog's settings and the table's properties, and imports the classes that
they name. So a user who may alter a table could load code, and redirect signed requests, in the process of everyone who
maintains the table. Here, as in Iceberg's Java, table properties do not configure the FileIO. The response of a REST
server does, but it cannot name a class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import PY_CATALOG_IMPL, Catalog, load_catalog
from pyiceberg.catalog.rest import AUTH, SNAPSHOT_LOADING_MODE, RestCatalog, TableResponse
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.utils.config import Config, merge_config
from requests import Response, Session

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.pyiceberg_internals.catalog_timeouts import (
    require_connection,
    with_limited_clients,
    with_time_limit,
)
from iceberg_compact_sql.redaction import remember_secrets
from iceberg_compact_sql.storage.file_io import default_to_exact_paths, with_exact_paths

_PROVIDER = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
# Settings whose values contain the name of a class that pyiceberg imports.
_CODE = (PY_IO_IMPL, PY_CATALOG_IMPL, "s3.retry-strategy-impl", AUTH)
# FileIO classes that servers with remote signing request.
_PYICEBERGS_OWN = ("pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO")


def load_trusted_catalog(name: str, properties: Mapping[str, Any], providers: frozenset[str]) -> Catalog:
    """Load pyiceberg's catalog of a name; `providers` are the location providers that the session allows."""
    conf: dict[str, Any] = merge_config(Config().get_catalog_config(name) or {}, dict(properties))
    if _is_rest(conf):
        return _RestCatalog(name, conf, providers)
    catalog = _load_catalog(name, conf, with_limited_clients(properties))
    session = getattr(catalog, "_session", None)
    if isinstance(session, Session):
        _remember_what_is_sent(session)
    # A custom catalog class chooses its settings itself.
    return catalog if conf.get(PY_CATALOG_IMPL) else with_trusted_file_io(catalog, providers)


def _load_catalog(name: str, conf: Mapping[str, Any], properties: dict[str, Any]) -> Catalog:
    if str(conf.get("type", "")).lower() == "hive" and not conf.get(PY_CATALOG_IMPL):
        # Imported late: only Hive catalogs need thrift.
        from iceberg_compact_sql.pyiceberg_internals.hive_catalog import CheckedHiveCatalog

        return CheckedHiveCatalog(name, **{**conf, **properties})
    catalog = load_catalog(name, **properties)
    require_connection(catalog)
    return catalog


def with_trusted_file_io(catalog: Catalog, providers: frozenset[str]) -> Catalog:
    """Make a catalog open tables with its own settings only, never with table properties."""
    # Catalogs also make FileIOs from their own settings.
    default_to_exact_paths(catalog.properties)
    make: Any = catalog._load_file_io

    def file_io(properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        _require_allowed(properties, providers)
        return with_exact_paths(make(location=location))

    catalog._load_file_io = file_io  # type: ignore[method-assign]
    return catalog


class _RestCatalog(RestCatalog):
    """A REST catalog whose server can configure storage but cannot load code."""

    def __init__(self, name: str, conf: Mapping[str, Any], providers: frozenset[str]) -> None:
        self._session_classes = {key: conf[key] for key in _CODE if key in conf}
        self._providers = providers
        super().__init__(name, **conf)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return with_exact_paths(super()._load_file_io(properties, location))

    def _create_session(self) -> Session:
        return with_time_limit(_remember_what_is_sent(super()._create_session()), self.properties)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        remember_secrets(self.properties)
        self.properties = self._without_code(self.properties)
        # Load all snapshots, as deletes depend on them: with `refs` a server omits those without a branch or tag.
        self.properties[SNAPSHOT_LOADING_MODE] = "all"

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        metadata = table_response.metadata
        # Every load may bring new credentials: those of a refresh and of other tables too.
        remember_secrets(table_response.config)
        for vended in table_response.storage_credentials:
            remember_secrets(vended.config)
        _require_allowed(metadata.properties, self._providers)
        bare = metadata.model_copy(update={"properties": {}})
        credentials = [
            credential.model_copy(update={"config": self._without_code(credential.config)})
            for credential in table_response.storage_credentials
        ]
        changes = {
            "metadata": bare,
            "config": self._without_code(table_response.config),
            "storage_credentials": credentials,
        }
        table = super()._response_to_table(identifier_tuple, table_response.model_copy(update=changes))
        table.metadata = metadata
        return table

    def _without_code(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return a server's settings with the classes of the session; refuse a class that only the server names."""
        for key in _CODE:
            if key in answer and key not in self._session_classes and answer[key] not in _PYICEBERGS_OWN:
                raise UnsupportedError(
                    f"the server of catalog {self.name!r} asks for the Python code {answer[key]!r} ({key}), and only"
                    " this session may choose code",
                    argument="catalog",
                    value=self.name,
                    hint=f"If you trust it, set it in the session: spark.sql.catalog.{self.name}.{key}.",
                )
        return {**answer, **{key: name for key, name in self._session_classes.items() if key in answer}}


def _is_rest(conf: Mapping[str, Any]) -> bool:
    uri, kind = conf.get("uri"), conf.get("type")
    if not isinstance(uri, str) or conf.get(PY_CATALOG_IMPL):
        return False
    return str(kind).lower() == "rest" if kind else uri.startswith("http")


def _require_allowed(properties: Mapping[str, str], providers: frozenset[str]) -> None:
    """Raise if a table names a location provider class that the session does not allow."""
    wanted = properties.get(_PROVIDER)
    if wanted is not None and wanted not in providers:
        raise UnsupportedError(
            f"the table's property '{_PROVIDER}' asks for the Python class {wanted!r}, and table properties cannot load"
            " code",
            argument="table",
            value=wanted,
            hint=f"If you trust it, set spark.iceberg_compact_sql.location_providers = {wanted}.",
        )


def _remember_what_is_sent(session: Session) -> Session:
    """Mask each authorization that the session sends, such as a token that an OAuth2 server gave it just now."""

    def remember(response: Response, *_: Any, **__: Any) -> None:
        sent = str(response.request.headers.get("Authorization", ""))
        # A signature (SigV4) belongs to one request and opens nothing else.
        if sent.startswith(("Bearer ", "Basic ")):
            remember_secrets({"authorization": sent})

    session.hooks["response"].append(remember)
    return session
