"""From the configuration to the settings of the Spark session."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import make_url

from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX
from iceberg_compact_sql.catalogs.spark_conf import CATALOG_PREFIX
from iceberg_compact_sql.service.configuration.config import Catalog, ServiceConfig, Storage

_PLUGIN = "org.apache.iceberg.spark.SparkCatalog"


def spark_settings(config: ServiceConfig) -> dict[str, str]:
    """The settings of the session: its catalogs, the store, and `spark.conf`, which wins."""
    settings: dict[str, str] = {f"{SETTING_PREFIX}progress": "false"}
    catalogs = config.all_catalogs()
    for name, catalog in catalogs.items():
        settings |= _catalog_settings(name, catalog, config.storage)
    if catalogs and config.warehouse is None:
        settings[f"{SETTING_PREFIX}catalog"] = next(iter(catalogs))
    return settings | {key: _text(value) for key, value in config.spark.conf.items()}


def _catalog_settings(name: str, catalog: Catalog, storage: Storage | None) -> dict[str, str]:
    prefix = f"{CATALOG_PREFIX}{name}"
    kind = "jdbc" if catalog.type.lower() == "sql" else catalog.type.lower()
    values: dict[str, Any] = {} if storage is None else _storage_settings(storage)
    values |= {"type": kind, **(catalog.model_extra or {})}
    if catalog.uri is not None:
        values |= _jdbc(catalog.uri) if kind == "jdbc" else {"uri": catalog.uri}
    warehouse = catalog.warehouse
    if warehouse is None and storage is not None and storage.bucket is not None and kind != "rest":
        warehouse = f"s3://{storage.bucket}"
    if warehouse is not None:
        values["warehouse"] = warehouse
    if catalog.namespace is not None:
        values["default-namespace"] = catalog.namespace
    return {prefix: _PLUGIN, **{f"{prefix}.{key}": _text(value) for key, value in values.items()}}


def _storage_settings(storage: Storage) -> dict[str, Any]:
    values = {
        "s3.endpoint": storage.endpoint,
        "s3.region": storage.region,
        "s3.access-key-id": storage.access_key,
        "s3.secret-access-key": storage.secret_key,
        "s3.path-style-access": storage.path_style,
    }
    return {key: value for key, value in values.items() if value is not None and storage.type == "s3"}


def _jdbc(uri: str) -> dict[str, str]:
    """The settings of a JDBC catalog from a URI of JDBC or of SQLAlchemy."""
    if uri.startswith("jdbc:"):
        return {"uri": uri}
    url = make_url(uri)
    kind = url.get_backend_name()
    if kind == "sqlite":
        return {"uri": f"jdbc:sqlite:{url.database}"}
    port = f":{url.port}" if url.port else ""
    settings = {"uri": f"jdbc:{kind}://{url.host}{port}/{url.database or ''}"}
    if url.username:
        settings["jdbc.user"] = url.username
    if url.password:
        settings["jdbc.password"] = str(url.password)
    return settings


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
