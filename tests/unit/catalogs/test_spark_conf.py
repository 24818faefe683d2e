"""Spark's catalog settings in pyiceberg's words, as a table of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_compact_sql.catalogs.jdbc_uri import sqlalchemy_uri
from iceberg_compact_sql.catalogs.spark_conf import pyiceberg_properties, spark_catalog_names
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError, NotFoundError, UnsupportedError
from iceberg_compact_sql.redaction import is_secret, redact

PLUGIN = "org.apache.iceberg.spark.SparkCatalog"

MAPPED = [
    (
        {"type": "rest", "uri": "http://c:8181", "warehouse": "w", "credential": "a:b", "scope": "s"},
        {},
        {"type": "rest", "uri": "http://c:8181", "warehouse": "w", "credential": "a:b", "scope": "s"},
    ),
    (
        {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "uri": "http://c", "header.X-A": "1", "prefix": "p"},
        {},
        {"type": "rest", "uri": "http://c", "header.X-A": "1", "prefix": "p"},
    ),
    (
        {"type": "rest", "uri": "http://c", "rest.auth.type": "sigv4", "rest.signing-name": "glue"},
        {},
        {"type": "rest", "uri": "http://c", "rest.auth.type": "sigv4", "rest.signing-name": "glue"}
        | {"rest.sigv4-enabled": "true"},
    ),
    (
        {
            "type": "glue",
            "warehouse": "s3://b/w",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "client.region": "r",
        },
        {},
        {"type": "glue", "warehouse": "s3://b/w", "client.region": "r"},
    ),
    ({"type": "hive", "uri": "thrift://m:9083"}, {}, {"type": "hive", "uri": "thrift://m:9083"}),
    ({}, {"hive.metastore.uris": "thrift://m:9083"}, {"type": "hive", "uri": "thrift://m:9083"}),
    (
        {"type": "hadoop", "warehouse": "/wh", "cache-enabled": "false", "table-default.x": "1"},
        {},
        {"type": "hadoop", "warehouse": "/wh"},
    ),
    (
        {"type": "hadoop", "warehouse": "/wh"},
        {"fs.defaultFS": "hdfs://nn:8020/"},
        {"type": "hadoop", "warehouse": "hdfs://nn:8020/wh", "hdfs.conf.fs.defaultFS": "hdfs://nn:8020/"},
    ),
    (
        {"catalog-impl": "org.apache.iceberg.nessie.NessieCatalog", "uri": "http://n:19120/api/v2", "ref": "dev"}
        | {"warehouse": "s3://b/w", "authentication.type": "BEARER", "authentication.token": "tok"},
        {},
        {"type": "rest", "uri": "http://n:19120/iceberg/dev", "ref": "dev", "warehouse": "s3://b/w", "token": "tok"},
    ),
    (
        {"type": "rest", "uri": "http://c", "s3.endpoint": "http://s3", "s3.path-style-access": "true"}
        | {"s3.access-key-id": "k", "s3.secret-access-key": "s"},
        {},
        {"type": "rest", "uri": "http://c", "s3.endpoint": "http://s3", "s3.force-virtual-addressing": "false"}
        | {"s3.access-key-id": "k", "s3.secret-access-key": "s"},
    ),
    (
        {"type": "rest", "uri": "http://c", "s3.access-key-id": "own"},
        {"fs.s3a.access.key": "shared", "fs.s3a.secret.key": "s", "fs.s3a.endpoint": "minio:9000"}
        | {"fs.s3a.connection.ssl.enabled": "false", "fs.s3a.path.style.access": "true"},
        {"type": "rest", "uri": "http://c", "s3.access-key-id": "own", "s3.secret-access-key": "s"}
        | {"s3.endpoint": "http://minio:9000", "s3.force-virtual-addressing": "false"},
    ),
    (
        {"type": "rest", "uri": "http://c", "hadoop.fs.s3a.secret.key": "mine"},
        {"fs.s3a.secret.key": "shared"},
        {"type": "rest", "uri": "http://c", "s3.secret-access-key": "mine"},
    ),
    (
        {
            "type": "jdbc",
            "uri": "jdbc:postgresql://db/lake",
            "jdbc.user": "joe",
            "jdbc.password": "p:w",
            "warehouse": "w",
        },
        {},
        {"type": "sql", "uri": "postgresql+psycopg2://joe:p%3Aw@db/lake", "warehouse": "w"}
        | {"init_catalog_tables": "false"},
    ),
]


@pytest.mark.parametrize(("own", "hadoop", "expected"), MAPPED)
def test_settings_are_mapped(own: dict[str, str], hadoop: dict[str, str], expected: dict[str, str]) -> None:
    conf = {"spark.sql.catalog.c": PLUGIN}
    conf |= {f"spark.sql.catalog.c.{key}": value for key, value in own.items()}
    conf |= {f"spark.hadoop.{key}": value for key, value in hadoop.items()}
    # settings of a neighbour whose name begins alike stay out
    conf |= {"spark.sql.catalog.cc": PLUGIN, "spark.sql.catalog.cc.uri": "http://wrong"}
    assert pyiceberg_properties(conf, "c") == expected


REFUSED = [
    ({"type": "rest"}, InvalidArgumentError, r"rest catalog without a uri.*spark.sql.catalog.c.uri"),
    ({}, InvalidArgumentError, r"hive catalog without a uri"),
    ({"type": "hadoop"}, InvalidArgumentError, r"hadoop catalog without a warehouse"),
    ({"catalog-impl": "com.example.Own"}, UnsupportedError, r"com.example.Own, which can only be opened from Java"),
    ({"type": "snowflake"}, UnsupportedError, r"'snowflake'"),
    ({"type": "jdbc", "uri": "jdbc:oracle:thin:x"}, UnsupportedError, r"'oracle'"),
    ({"type": "jdbc", "uri": "jdbc:sqlite::memory:"}, UnsupportedError, r"memory of the JVM"),
    ({"type": "jdbc", "uri": "jdbc:sqlite:/nowhere/at/all.db"}, NotFoundError, r"no SQLite file /nowhere/at/all.db"),
]


@pytest.mark.parametrize(("own", "error", "message"), REFUSED)
def test_settings_that_cannot_work_are_explained(
    own: dict[str, str], error: type[IcebergCompactError], message: str
) -> None:
    conf = {"spark.sql.catalog.c": PLUGIN} | {f"spark.sql.catalog.c.{key}": value for key, value in own.items()}
    with pytest.raises(error, match=message):
        pyiceberg_properties(conf, "c")


def test_which_catalogs_are_icebergs() -> None:
    conf = {
        "spark.sql.catalog.a": PLUGIN,
        "spark.sql.catalog.a.type": "rest",
        "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        "spark.sql.catalog.delta": "io.delta.DeltaCatalog",
        "spark.sql.catalog.delta.type": "rest",
        "spark.sql.catalog.nojar.type": "rest",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "2",
    }
    assert spark_catalog_names(conf) == ("a", "spark_catalog", "nojar")


JDBC = [
    ("jdbc:postgresql://h:5433/db?user=u&password=p%20w", None, None, "postgresql+psycopg2://u:p w@h:5433/db"),
    (
        "jdbc:postgresql://h/db?ssl=true&sslmode=require",
        "u",
        "s@/",
        "postgresql+psycopg2://u:s%40%2F@h/db?sslmode=require",
    ),
    ("jdbc:postgresql:db", "u", None, "postgresql+psycopg2://u@localhost/db"),
    ("jdbc:postgresql://h/db?currentSchema=ice", None, None, "postgresql+psycopg2://h/db?options=-csearch_path%3Dice"),
    ("jdbc:mysql://h:3306/db?useSSL=false", "u", "p", "mysql+pymysql://u:p@h:3306/db"),
    ("jdbc:mariadb://h/db", None, None, "mysql+pymysql://h/db"),
    ("jdbc:postgresql://[::1]:5432/db", None, None, "postgresql+psycopg2://[::1]:5432/db"),
]


@pytest.mark.parametrize(("uri", "user", "password", "expected"), JDBC)
def test_jdbc_addresses(uri: str, user: str | None, password: str | None, expected: str) -> None:
    from sqlalchemy import make_url

    assert make_url(sqlalchemy_uri(uri, user, password, catalog="c")) == make_url(expected)


@pytest.mark.parametrize("name", ["catalog.db", "with space.db", "odd#%3F.db"])
def test_sqlite_addresses(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy import create_engine, make_url

    (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    spelled = [f"{tmp_path}/{name}", f"file:{tmp_path}/{name}", name]
    for path in spelled:
        uri = sqlalchemy_uri(f"jdbc:sqlite:{path}", None, None, catalog="c")
        assert make_url(uri).database == str(tmp_path / name)
        engine = create_engine(uri)
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 60_000
        engine.dispose()


SECRETS = [
    "postgresql://joe:hunter2@db/x",
    "password=hunter2",
    "{'s3.secret-access-key': 'hunter2', 'uri': 'x'}",
    '{"token":"hunter2"}',
    "Authorization: Bearer hunter2hunter2",
    "jdbc:postgresql://h/db?user=a&password=hunter2&ssl=true",
    "credential: hunter2",
    "postgresql://joe:p@hunter2@db/x",
    "https://account.blob.core.windows.net/c/f?sv=2024&sig=hunter2%3D&se=x",
    "header.Authorization=hunter2",
    "{'header.X-Api-Key': 'hunter2'}",
]


@pytest.mark.parametrize("text", SECRETS)
def test_credentials_are_masked(text: str) -> None:
    assert "hunter2" not in redact(text)


def test_secret_values_are_masked_wherever_they_stand() -> None:
    properties = {"s3.secret-access-key": "abcdef123", "auth": {"basic": {"password": "deep-one"}}}
    assert redact("sent abcdef123 and deep-one", properties) == "sent *** and ***"


def test_what_is_no_secret_stays() -> None:
    text = "cannot reach http://host:8181/v1/config for table db.tokens; oauth2-server-uri=http://auth/x"
    assert redact(text) == text
    assert not is_secret("token-exchange-enabled")


def test_the_catalog_that_icebergs_jar_makes_for_itself_is_nobodys() -> None:
    conf = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.default_iceberg": "org.apache.iceberg.spark.SparkCatalog",
    }
    assert spark_catalog_names(conf) == ("lake",)
