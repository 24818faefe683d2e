"""Translates Spark's catalog settings to pyiceberg's properties, so that a name means the same table to both."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_compact_sql.catalogs.jdbc_uri import sqlalchemy_uri
from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError

CATALOG_PREFIX = "spark.sql.catalog."
HADOOP_PREFIX = "spark.hadoop."
ICEBERG_PLUGINS = frozenset(
    {"org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg.spark.SparkSessionCatalog"},
)
_KINDS_BY_CLASS = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.hadoop.HadoopCatalog": "hadoop",
    "org.apache.iceberg.nessie.NessieCatalog": "nessie",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.aws.dynamodb.DynamoDbCatalog": "dynamodb",
    "org.apache.iceberg.gcp.bigquery.BigQueryMetastoreCatalog": "bigquery",
}
_KINDS = frozenset(_KINDS_BY_CLASS.values())
# Settings that only Java uses, or that are used only when a table is created.
_DROPPED = frozenset(
    {
        "type", "catalog-impl", "io-impl", "default-namespace", "cache-enabled", "cache.expiration-interval-ms",
        "cache.case-sensitive", "metrics-reporter-impl", "use-nullable-query-schema", "clients",
        "s3.path-style-access", "default-catalog",
    }
)  # fmt: skip
_DROPPED_PREFIXES = ("table-default.", "table-override.", "hadoop.", "jdbc.", "authentication.", "client-api-version")
_RENAMED = {
    "client.assume-role.arn": "client.role-arn",
    "client.assume-role.session-name": "client.role-session-name",
    "client.assume-role.region": "client.region",
    "adls.auth.shared-key.account.name": "adls.account-name",
    "adls.auth.shared-key.account.key": "adls.account-key",
    "dynamodb.table-name": "table-name",
}
_REQUIRED = {"hive": ("uri",), "rest": ("uri",), "nessie": ("uri",), "hadoop": ("warehouse",)}
_REQUIRED_EXAMPLES = {
    "hive": "thrift://metastore:9083 (or spark.hadoop.hive.metastore.uris)",
    "rest": "https://catalog.example.com",
    "nessie": "http://nessie:19120/api/v2",
    "hadoop": "hdfs://namenode/warehouse",
}
_HADOOP_TO_S3 = {
    "fs.s3a.access.key": "s3.access-key-id",
    "fs.s3a.secret.key": "s3.secret-access-key",
    "fs.s3a.session.token": "s3.session-token",
    "fs.s3a.endpoint.region": "s3.region",
}


# Iceberg's jar adds this catalog to a session for reads by path; no table name refers to it.
_READ_BY_PATH_CATALOG = "default_iceberg"


def spark_catalog_names(conf: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the Iceberg catalogs in Spark's settings.

    A catalog with a type but without a plugin class counts too: without Iceberg's jar Spark cannot load the class.
    """
    names = dict.fromkeys(
        key[len(CATALOG_PREFIX) :].partition(".")[0] for key in conf if key.startswith(CATALOG_PREFIX)
    )
    return tuple(name for name in names if name != _READ_BY_PATH_CATALOG and _is_iceberg(conf, name))


def pyiceberg_properties(conf: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the properties with which pyiceberg, or our Hadoop catalog (`type` = `hadoop`), opens a catalog."""
    catalog_settings = _catalog_settings(conf, name)
    hadoop = _hadoop_settings(conf, catalog_settings)
    kind = catalog_kind(catalog_settings, name)
    properties = {**_store_properties(hadoop), **_translated(catalog_settings)}
    properties["type"] = kind
    if kind == "jdbc":
        properties |= _jdbc_properties(catalog_settings, name)
    elif kind == "hive":
        properties["uri"] = properties.get("uri") or hadoop.get("hive.metastore.uris", "")
        if locks := hadoop.get("iceberg.engine.hive.lock-enabled"):
            properties["engine.hive.lock-enabled"] = locks
    elif kind == "nessie":
        properties |= _nessie_properties(catalog_settings)
    elif kind == "rest":
        properties |= _rest_properties(catalog_settings)
    elif kind == "hadoop":
        properties["warehouse"] = _on_default_store(properties.get("warehouse", ""), hadoop)
    missing = next((key for key in _REQUIRED.get(kind, ()) if not properties.get(key)), None)
    if missing is not None:
        message = f"catalog {name!r} is a {kind} catalog without a {missing}"
        hint = f"Set {CATALOG_PREFIX}{name}.{missing}, as in {_REQUIRED_EXAMPLES[kind]}."
        raise InvalidArgumentError(message, argument="catalog", value=name, hint=hint)
    return properties


def catalog_kind(catalog_settings: Mapping[str, str], name: str) -> str:
    """Return `rest`, `jdbc`, `hive`, `hadoop`, `nessie`, `glue`, `dynamodb` or `bigquery`; the default is `hive`."""
    implementation = catalog_settings.get("catalog-impl")
    kind = (
        catalog_settings.get("type", "hive").lower()
        if implementation is None
        else _KINDS_BY_CLASS.get(implementation, "")
    )
    if kind not in _KINDS:
        given = f"catalog-impl {implementation}" if implementation else f"type {kind!r}"
        message = f"catalog {name!r} has {given}, which can only be opened from Java"
        hint = f"Known types: {', '.join(sorted(_KINDS))}. A REST endpoint of the same catalog works too."
        raise UnsupportedError(message, argument="catalog", value=name, hint=hint)
    return kind


def _is_iceberg(conf: Mapping[str, str], name: str) -> bool:
    key = CATALOG_PREFIX + name
    plugin = conf.get(key)
    if plugin is None:
        return f"{key}.type" in conf or f"{key}.catalog-impl" in conf
    return plugin in ICEBERG_PLUGINS


def _catalog_settings(conf: Mapping[str, str], name: str) -> dict[str, str]:
    prefix = f"{CATALOG_PREFIX}{name}."
    return {key[len(prefix) :]: value for key, value in conf.items() if key.startswith(prefix)}


def _hadoop_settings(conf: Mapping[str, str], catalog_settings: Mapping[str, str]) -> dict[str, str]:
    """Return the session's Hadoop settings, overridden by those of the catalog (`<catalog>.hadoop.*`)."""
    shared = {key[len(HADOOP_PREFIX) :]: value for key, value in conf.items() if key.startswith(HADOOP_PREFIX)}
    return shared | {
        key[len("hadoop.") :]: value for key, value in catalog_settings.items() if key.startswith("hadoop.")
    }


def _store_properties(hadoop: Mapping[str, str]) -> dict[str, str]:
    properties = {s3_key: hadoop[hadoop_key] for hadoop_key, s3_key in _HADOOP_TO_S3.items() if hadoop.get(hadoop_key)}
    if endpoint := hadoop.get("fs.s3a.endpoint"):
        secure = hadoop.get("fs.s3a.connection.ssl.enabled", "true").lower() != "false"
        scheme = "https" if secure else "http"
        properties["s3.endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if path_style := hadoop.get("fs.s3a.path.style.access"):
        properties["s3.force-virtual-addressing"] = str(path_style.lower() != "true").lower()
    # HDFS: the default file system, name services, and security.
    for name, value in hadoop.items():
        if name.startswith(("fs.defaultFS", "fs.viewfs.", "dfs.", "hadoop.security.", "hadoop.rpc.")):
            properties[f"hdfs.conf.{name}"] = value
    return properties


def _translated(catalog_settings: Mapping[str, str]) -> dict[str, str]:
    properties = {
        _RENAMED.get(key, key): value
        for key, value in catalog_settings.items()
        if key not in _DROPPED and not key.startswith(_DROPPED_PREFIXES)
    }
    if path_style := catalog_settings.get("s3.path-style-access"):
        properties["s3.force-virtual-addressing"] = str(path_style.lower() != "true").lower()
    return properties


def _jdbc_properties(catalog_settings: Mapping[str, str], name: str) -> dict[str, str]:
    uri = sqlalchemy_uri(
        catalog_settings.get("uri", ""),
        catalog_settings.get("jdbc.user"),
        catalog_settings.get("jdbc.password"),
        catalog=name,
    )
    # The database belongs to Spark: pyiceberg must never create or migrate tables in it.
    return {"type": "sql", "uri": uri, "init_catalog_tables": "false"}


def _nessie_properties(catalog_settings: Mapping[str, str]) -> dict[str, str]:
    """Nessie serves Iceberg's REST protocol beside its own: /api/v2 becomes /iceberg/<branch>."""
    server = catalog_settings.get("uri", "").partition("/api/")[0].rstrip("/")
    branch = catalog_settings.get("ref", "")
    properties = {"type": "rest", "uri": f"{server}/iceberg/{branch}".rstrip("/") if server else ""}
    if token := catalog_settings.get("authentication.token"):
        properties["token"] = token
    return properties


def _on_default_store(warehouse: str, hadoop: Mapping[str, str]) -> str:
    """Return the warehouse with the scheme of Hadoop's default file system if it has none."""
    default = hadoop.get("fs.defaultFS", hadoop.get("fs.default.name", "")).rstrip("/")
    if warehouse.startswith("/") and default and not default.startswith("file:"):
        return default + warehouse
    return warehouse


def _rest_properties(catalog_settings: Mapping[str, str]) -> dict[str, str]:
    auth_type = catalog_settings.get("rest.auth.type", "").lower()
    if auth_type == "sigv4":
        return {"rest.sigv4-enabled": "true"}
    return {}
