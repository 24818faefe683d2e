"""The other deployment shape of the configuration: `postgres`, `iceberg`, and `s3` or `azure`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_compact_sql.service.configuration.read_yaml import ConfigurationError

_DEPLOY_KEYS = ("postgres", "iceberg", "s3", "azure")


def from_deploy_shape(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with `postgres`, `iceberg`, `s3` and `azure` as the keys of the first shape."""
    if not any(key in document for key in _DEPLOY_KEYS):
        return dict(document)
    common = {key: value for key, value in document.items() if key not in _DEPLOY_KEYS}
    iceberg, s3, azure = (_section(document, key) for key in ("iceberg", "s3", "azure"))
    if (s3 is None) == (azure is None):
        raise ConfigurationError("give exactly one of s3 and azure", argument="s3")
    if iceberg is None:
        raise ConfigurationError("iceberg: the section is missing", argument="iceberg")
    _refuse_unknown("iceberg", iceberg, ("warehouse", "lakekeeper_endpoint", "namespace"))
    catalog = {"type": "rest", "uri": iceberg.get("lakekeeper_endpoint"), "warehouse": iceberg.get("warehouse")}
    if iceberg.get("namespace") is not None:
        catalog["namespace"] = iceberg["namespace"]
    if s3 is not None:
        _refuse_unknown("s3", s3, ("endpoint", "region", "access_key", "secret_key", "use_ssl", "url_style"))
        common["storage"] = _s3_storage(s3)
    else:
        assert azure is not None
        _refuse_unknown("azure", azure, ("connection_string",))
        catalog["adls.connection-string"] = azure.get("connection_string")
    common["catalog"] = {key: value for key, value in catalog.items() if value is not None}
    postgres = _section(document, "postgres")
    if postgres is not None:
        _refuse_unknown("postgres", postgres, ("dsn",))
        state = dict(common.get("state") or {})
        dsn = str(postgres.get("dsn", "")).replace("postgres://", "postgresql://", 1)
        state.setdefault("url", dsn.replace("postgresql://", "postgresql+psycopg://", 1))
        common["state"] = state
    return common


def _s3_storage(s3: Mapping[str, Any]) -> dict[str, Any]:
    endpoint = s3.get("endpoint")
    if endpoint is not None and "://" not in str(endpoint):
        endpoint = f"{'https' if s3.get('use_ssl', True) else 'http'}://{endpoint}"
    storage = {
        "type": "s3",
        "endpoint": endpoint,
        "region": s3.get("region"),
        "access_key": s3.get("access_key"),
        "secret_key": s3.get("secret_key"),
        "path_style": s3.get("url_style", "path") == "path",
    }
    return {key: value for key, value in storage.items() if value is not None}


def _section(document: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    value = document.get(key)
    if value is not None and not isinstance(value, dict):
        raise ConfigurationError(f"{key}: is not a mapping of keys to values", argument=key)
    return value


def _refuse_unknown(section: str, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in values:
        if key not in known:
            path = f"{section}.{key}"
            raise ConfigurationError(f"{path}: unknown key", argument=path, hint=f"Known keys: {', '.join(known)}.")
