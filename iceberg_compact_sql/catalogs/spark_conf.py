"""Spark's catalog settings in pyiceberg's words: the same name means the same tables to both."""

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
# What only means something to Java, or only when a table is created.
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


# Iceberg's jar puts this into a session for reads by path; nobody names a table in it.
_JARS_OWN_CATALOG = "default_iceberg"


def spark_catalog_names(conf: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the Iceberg catalogs in Spark's settings.

    A catalog whose plugin class is left out but whose type is given counts too: without Iceberg's jar the class means
    nothing to Spark.
    """
    names = dict.fromkeys(
        key[len(CATALOG_PREFIX) :].partition(".")[0] for key in conf if key.startswith(CATALOG_PREFIX)
    )
    return tuple(name for name in names if name != _JARS_OWN_CATALOG and _is_iceberg(conf, name))


def pyiceberg_properties(conf: Mapping[str, str], name: str) -> dict[str, str]:
    """The properties with which pyiceberg (or our hadoop catalog: `type` = `hadoop`) opens the catalog of that name."""
    own = _own_settings(conf, name)
    hadoop = _hadoop_settings(conf, own)
    kind = catalog_kind(own, name)
    properties = {**_store_properties(hadoop), **_passed_on(own)}
    properties["type"] = kind
    if kind == "jdbc":
        properties |= _jdbc_properties(own, name)
    elif kind == "hive":
        properties["uri"] = properties.get("uri") or hadoop.get("hive.metastore.uris", "")
    elif kind == "nessie":
        properties |= _nessie_properties(own)
    elif kind == "rest":
        properties |= _rest_properties(own)
    elif kind == "hadoop":
        properties["warehouse"] = _on_default_store(properties.get("warehouse", ""), hadoop)
    missing = next((key for key in _REQUIRED.get(kind, ()) if not properties.get(key)), None)
    if missing is not None:
        message = f"catalog {name!r} is a {kind} catalog without a {missing}"
        hint = f"Set {CATALOG_PREFIX}{name}.{missing}, as in {_REQUIRED_EXAMPLES[kind]}."
        raise InvalidArgumentError(message, argument="catalog", value=name, hint=hint)
    return properties


def catalog_kind(own: Mapping[str, str], name: str) -> str:
    """`rest`, `jdbc`, `hive`, `hadoop`, `nessie`, `glue`, `dynamodb` or `bigquery`; Iceberg's default is hive."""
    implementation = own.get("catalog-impl")
    kind = own.get("type", "hive").lower() if implementation is None else _KINDS_BY_CLASS.get(implementation, "")
    if kind not in _KINDS:
        given = f"catalog-impl {implementation}" if implementation else f"type {kind!r}"
        message = f"catalog {name!r} has {given}, which can only be opened from Java"
        hint = f"Known types: {', '.join(sorted(_KINDS))}. A REST endpoint of the same catalog would do."
        raise UnsupportedError(message, argument="catalog", value=name, hint=hint)
    return kind


def _is_iceberg(conf: Mapping[str, str], name: str) -> bool:
    key = CATALOG_PREFIX + name
    plugin = conf.get(key)
    if plugin is None:
        return f"{key}.type" in conf or f"{key}.catalog-impl" in conf
    return plugin in ICEBERG_PLUGINS


def _own_settings(conf: Mapping[str, str], name: str) -> dict[str, str]:
    prefix = f"{CATALOG_PREFIX}{name}."
    return {key[len(prefix) :]: value for key, value in conf.items() if key.startswith(prefix)}


def _hadoop_settings(conf: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings of the session, overridden by those that the catalog has for itself (`<catalog>.hadoop.*`)."""
    shared = {key[len(HADOOP_PREFIX) :]: value for key, value in conf.items() if key.startswith(HADOOP_PREFIX)}
    return shared | {key[len("hadoop.") :]: value for key, value in own.items() if key.startswith("hadoop.")}


def _store_properties(hadoop: Mapping[str, str]) -> dict[str, str]:
    properties = {ours: hadoop[theirs] for theirs, ours in _HADOOP_TO_S3.items() if hadoop.get(theirs)}
    if endpoint := hadoop.get("fs.s3a.endpoint"):
        secure = hadoop.get("fs.s3a.connection.ssl.enabled", "true").lower() != "false"
        scheme = "https" if secure else "http"
        properties["s3.endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if path_style := hadoop.get("fs.s3a.path.style.access"):
        properties["s3.force-virtual-addressing"] = str(path_style.lower() != "true").lower()
    return properties


def _passed_on(own: Mapping[str, str]) -> dict[str, str]:
    properties = {
        _RENAMED.get(key, key): value
        for key, value in own.items()
        if key not in _DROPPED and not key.startswith(_DROPPED_PREFIXES)
    }
    if path_style := own.get("s3.path-style-access"):
        properties["s3.force-virtual-addressing"] = str(path_style.lower() != "true").lower()
    return properties


def _jdbc_properties(own: Mapping[str, str], name: str) -> dict[str, str]:
    uri = sqlalchemy_uri(own.get("uri", ""), own.get("jdbc.user"), own.get("jdbc.password"), catalog=name)
    # The database is Spark's: pyiceberg reads what is there and never creates or migrates tables in it.
    return {"type": "sql", "uri": uri, "init_catalog_tables": "false"}


def _nessie_properties(own: Mapping[str, str]) -> dict[str, str]:
    """Nessie serves Iceberg's REST protocol beside its own: /api/v2 becomes /iceberg/<branch>."""
    server = own.get("uri", "").partition("/api/")[0].rstrip("/")
    branch = own.get("ref", "")
    properties = {"type": "rest", "uri": f"{server}/iceberg/{branch}".rstrip("/") if server else ""}
    if token := own.get("authentication.token"):
        properties["token"] = token
    return properties


def _on_default_store(warehouse: str, hadoop: Mapping[str, str]) -> str:
    """A path without a scheme is on Hadoop's default file system."""
    default = hadoop.get("fs.defaultFS", hadoop.get("fs.default.name", "")).rstrip("/")
    if warehouse.startswith("/") and default and not default.startswith("file:"):
        return default + warehouse
    return warehouse


def _rest_properties(own: Mapping[str, str]) -> dict[str, str]:
    auth_type = own.get("rest.auth.type", "").lower()
    if auth_type == "sigv4":
        return {"rest.sigv4-enabled": "true"}
    return {}
