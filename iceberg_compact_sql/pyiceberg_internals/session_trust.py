"""Which code opens a table's files, and with which settings, is the session's word alone.

pyiceberg makes a table's FileIO from the catalog's settings with the table's properties on top, and imports the
classes that either of them names. Whoever may alter a table could so have code loaded, and requests signed for a host
of theirs, in the process of everyone who maintains it. As in Iceberg's Java, a table's properties say nothing about its
FileIO here; a REST server's answer does, as far as it names no class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import PY_CATALOG_IMPL, Catalog, load_catalog
from pyiceberg.catalog.rest import AUTH, RestCatalog, TableResponse
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.utils.config import Config, merge_config

from iceberg_compact_sql.errors import UnsupportedError

_PROVIDER = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
# Settings whose values are, or hold, the name of a class that pyiceberg imports.
_CODE = (PY_IO_IMPL, PY_CATALOG_IMPL, "s3.retry-strategy-impl", AUTH)
# What servers that sign requests ask for.
_PYICEBERGS_OWN = ("pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO")


def open_trusting(name: str, properties: Mapping[str, Any], providers: frozenset[str]) -> Catalog:
    """pyiceberg's catalog of that name; `providers` are the location providers that the session lets tables name."""
    conf: dict[str, Any] = merge_config(Config().get_catalog_config(name) or {}, dict(properties))
    if _is_rest(conf):
        return _RestCatalog(name, conf, providers)
    catalog = load_catalog(name, **properties)
    # A class of the user's own decides for itself what it reads.
    return catalog if conf.get(PY_CATALOG_IMPL) else trusting(catalog, providers)


def trusting(catalog: Catalog, providers: frozenset[str]) -> Catalog:
    """The same catalog, whose tables are opened with its own settings and never with properties of the table."""
    make: Any = catalog._load_file_io

    def file_io(properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        _require_allowed(properties, providers)
        io: FileIO = make(location=location)
        return io

    catalog._load_file_io = file_io  # type: ignore[method-assign]
    return catalog


class _RestCatalog(RestCatalog):
    """A REST catalog whose server configures stores, but loads no code."""

    def __init__(self, name: str, conf: Mapping[str, Any], providers: frozenset[str]) -> None:
        self._told = {key: conf[key] for key in _CODE if key in conf}
        self._providers = providers
        super().__init__(name, **conf)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        self.properties = self._without_code(self.properties)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        metadata = table_response.metadata
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
        """A server's answer, with the session's own word on code; a class that only the server names is refused."""
        for key in _CODE:
            if key in answer and key not in self._told and answer[key] not in _PYICEBERGS_OWN:
                raise UnsupportedError(
                    f"the server of catalog {self.name!r} asks for the Python code {answer[key]!r} ({key}), and code"
                    " comes from this session alone",
                    argument="catalog",
                    value=self.name,
                    hint=f"If you trust it, say so yourself: spark.sql.catalog.{self.name}.{key}.",
                )
        return {**answer, **{key: told for key, told in self._told.items() if key in answer}}


def _is_rest(conf: Mapping[str, Any]) -> bool:
    uri, kind = conf.get("uri"), conf.get("type")
    if not isinstance(uri, str) or conf.get(PY_CATALOG_IMPL):
        return False
    return str(kind).lower() == "rest" if kind else uri.startswith("http")


def _require_allowed(properties: Mapping[str, str], providers: frozenset[str]) -> None:
    """Raise where a table names code for its locations that the session does not name too."""
    wanted = properties.get(_PROVIDER)
    if wanted is not None and wanted not in providers:
        raise UnsupportedError(
            f"the table's property '{_PROVIDER}' asks for the Python class {wanted!r}, and a table's properties load no"
            " code by themselves",
            argument="table",
            value=wanted,
            hint=f"If you trust it, set spark.iceberg_compact_sql.location_providers = {wanted}.",
        )
