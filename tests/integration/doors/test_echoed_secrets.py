"""Catalogs that repeat credentials in their refusals: errors, tracebacks, rows and logs of a CALL show none of them."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import pickle
import re
import secrets
import shutil
import sqlite3
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

import iceberg_compact_sql
from iceberg_compact_sql.engine import task_runner
from iceberg_compact_sql.errors import IcebergCompactError
from tests.support.echoing_proxy import EchoingProxy
from tests.support.handmade import add_position_deletes, append, data_paths, make_catalog, make_table
from tests.support.java import Lake
from tests.support.rest import RestServer

PACKAGE = "iceberg_compact_sql"
TOKEN = "tok/en+0123456789=="
CLIENT_SECRET = "oauth/secret+5566"
VENDED = {
    "s3.access-key-id": "AKIAECHO01234567",
    "s3.secret-access-key": "wJalr/XUtn+FEMI7",
    "s3.session-token": "sess/ion+8899",
}
# In the address of another catalog of the session, where a URL has to escape them.
URI_PASSWORD, OPTION_PASSWORD = "hu/nter@22", "op en&sesame7"
AUTHENTICATION = {"token": {"token": TOKEN}, "oauth2": {"credential": f"client-77:{CLIENT_SECRET}"}}
STATUSES = (400, 409, 500, 503)
COMMITTING = {
    "compact": "CALL compact_table('{t}', min_input_files => 2)",
    "compact with a lease": "CALL compact_table('{t}', min_input_files => 2, claim => true)",
    "manifests": "CALL rewrite_manifests('{t}')",
    "position deletes": "CALL rewrite_position_deletes('{t}', rewrite_all => true)",
    "expire": "CALL expire_snapshots('{t}', older_than => TIMESTAMP '2099-01-01', retain_last => 1)",
    "maintain": "CALL maintain_table('{t}', steps => array('compact', 'expire'))",
}


def forms(secret: str) -> set[str]:
    """A secret as servers write it."""
    encoded = base64.b64encode(secret.encode()).decode()
    in_urls = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lower = {re.sub("%..", lambda match: match[0].lower(), text) for text in in_urls}
    return {secret, *in_urls, *lower, json.dumps(secret)[1:-1], encoded}


ECHOED = sorted(
    set().union(*map(forms, (TOKEN, CLIENT_SECRET, *VENDED.values(), URI_PASSWORD, OPTION_PASSWORD))), key=str
)


class Records(logging.Handler):
    """The log lines of our package as a plain handler shows them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter("%(name)s %(message)s").format(record))
        self.lines.append(f"{record.__dict__!r}")


@contextlib.contextmanager
def captured_logs() -> Iterator[Records]:
    records, package = Records(), logging.getLogger(PACKAGE)
    before = package.level
    package.addHandler(records)
    package.setLevel(logging.DEBUG)
    try:
        yield records
    finally:
        package.removeHandler(records)
        package.setLevel(before)


@dataclass(frozen=True)
class Shown:
    """All that a call shows; `error` is None where it gave rows."""

    text: str
    error: BaseException | None


def shown(spark: SparkSession, sql: str) -> Shown:
    with captured_logs() as records:
        try:
            texts, error = [repr(spark.sql(sql).collect())], None
        except Exception as raised:
            texts, error = list(all_texts(raised)), raised
    return Shown("\n".join([*texts, *records.lines]), error)


def all_texts(error: BaseException) -> Iterator[str]:
    """What anyone can print of an error, its causes and contexts, the suppressed ones included."""
    yield "".join(traceback.format_exception(error))
    waiting: list[BaseException | None] = [error]
    while waiting:
        related = waiting.pop()
        if related is not None:
            yield f"{related} {related!r} {related.args!r} {getattr(related, '__notes__', '')}"
            waiting += [related.__cause__, related.__context__]
    if isinstance(error, IcebergCompactError):
        yield f"{error.getMessage()} {error.detail} {error.hint} {error.value} {pickle.dumps(error)!r}"


def assert_no_secret(result: Shown, *more: str) -> None:
    found = [form for form in (*ECHOED, *more) if form in result.text]
    assert not found, result.text


@dataclass(frozen=True)
class Setting:
    spark: SparkSession
    proxy: EchoingProxy
    table: str


@pytest.fixture(params=sorted(AUTHENTICATION))
def setting(request: pytest.FixtureRequest, java_spark: SparkSession, rest_server: RestServer) -> Iterator[Setting]:
    """A table with work for every procedure, on a REST catalog that vends keys and asks for a credential."""
    with EchoingProxy(rest_server.uri, VENDED) as proxy:
        catalog, namespace = f"echo_{secrets.token_hex(3)}", rest_server.new_namespace()
        table = make_table(RestCatalog("rest", uri=rest_server.uri), f"{namespace}.t")
        for number in range(6):
            append(table, [{"id": number * 10 + i, "name": "k"} for i in range(3)])
        for path in data_paths(table)[:3]:
            add_position_deletes(table, {path: [0]})
        prefix = f"spark.sql.catalog.{catalog}"
        conf = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.type": "rest", f"{prefix}.uri": proxy.uri}
        conf |= {f"{prefix}.{key}": value for key, value in AUTHENTICATION[request.param].items()}
        conf[f"{prefix}.oauth2-server-uri"] = f"{proxy.uri}/v1/oauth/tokens"
        conf[f"{prefix}_other.uri"] = (
            f"jdbc:postgresql://joe:{quote(URI_PASSWORD, safe='')}@db/x?user=joe&password={quote(OPTION_PASSWORD)}"
        )
        # The session's other catalogs are a part of its configuration too.
        conf[f"{prefix}_other.credential"] = f"client-77:{CLIENT_SECRET}"
        conf[f"{prefix}_other.token"] = TOKEN
        for key, value in conf.items():
            java_spark.conf.set(key, value)
        iceberg_compact_sql.register(java_spark)
        try:
            yield Setting(java_spark, proxy, f"{catalog}.{namespace}.t")
        finally:
            iceberg_compact_sql.unregister(java_spark)
            for key in conf:
                java_spark.conf.unset(key)


@pytest.mark.parametrize("procedure", sorted(COMMITTING))
def test_a_refused_commit_shows_no_credential(setting: Setting, procedure: str) -> None:
    sql = COMMITTING[procedure].replace("{t}", setting.table)
    for status in STATUSES:
        setting.proxy.refuse(status, " ".join(ECHOED))
        result = shown(setting.spark, sql)
        assert setting.proxy.refused, (procedure, status, result.text)
        # In doubt expire_snapshots names only the kind of the error.
        assert "***" in result.text or (procedure == "expire" and status != 400), (procedure, status, result.text)
        assert_no_secret(result, *(sent.split(" ")[1] for sent in setting.proxy.authorizations))
        if procedure == "maintain":
            assert result.error is None and ("failed" in result.text or "unknown" in result.text)
        else:
            assert isinstance(result.error, IcebergCompactError), result.text
            assert str(result.error).startswith(sql.split("(")[0].removeprefix("CALL ") + ":")


@pytest.mark.parametrize("status", STATUSES)
def test_a_refusal_after_the_lease_was_taken_shows_no_credential(setting: Setting, status: int) -> None:
    sql = COMMITTING["compact with a lease"].replace("{t}", setting.table)
    # The lease is a commit of its own; all later commits and the return of the lease are refused.
    setting.proxy.refuse(status, " ".join(ECHOED), commits_before=1)
    result = shown(setting.spark, sql)
    assert setting.proxy.refused and isinstance(result.error, IcebergCompactError), result.text
    assert_no_secret(result)


def test_a_lease_whose_table_cannot_be_loaded_again_is_an_error_of_ours(setting: Setting) -> None:
    sql = COMMITTING["compact with a lease"].replace("{t}", setting.table)
    for loads in range(5):
        setting.proxy.refuse(400, " ".join(ECHOED), commits_before=10, loads_before=loads)
        result = shown(setting.spark, sql)
        assert_no_secret(result)
        if setting.proxy.refused:
            assert isinstance(result.error, IcebergCompactError), result.text
        if loads == 1:
            assert "the lease on table" in str(result.error) and "could not be taken" in str(result.error)


def test_a_table_function_shows_no_credential(setting: Setting) -> None:
    # Each worker is a process of its own: it knows the credentials of the session, and those that it was handed itself.
    texts = [text for secret in (TOKEN, CLIENT_SECRET, URI_PASSWORD, OPTION_PASSWORD) for text in forms(secret)]
    for loads in range(2):
        setting.proxy.refuse(400, " ".join(texts), loads_before=loads)
        result = shown(setting.spark, f"SELECT * FROM compact_table('{setting.table}')")
        assert setting.proxy.refused and result.error is not None and "***" in result.text
        assert_no_secret(result)


@pytest.mark.parametrize("procedure", sorted(COMMITTING))
def test_a_database_that_repeats_its_password_shows_none(
    java_spark: SparkSession, tmp_path: Path, procedure: str
) -> None:
    database, name = tmp_path / "catalog.db", f"own_{secrets.token_hex(3)}"
    own = make_catalog(tmp_path, name)
    table = make_table(own)
    for number in range(6):
        append(table, [{"id": number * 10 + i, "name": "k"} for i in range(3)])
    for path in data_paths(table)[:3]:
        add_position_deletes(table, {path: [0]})
    own.close()
    with contextlib.closing(sqlite3.connect(database)) as connection:
        text = " ".join(sorted(forms(OPTION_PASSWORD))).replace("'", "''")
        connection.execute(
            f"CREATE TRIGGER refuse BEFORE UPDATE ON iceberg_tables BEGIN SELECT RAISE(ABORT, 'no: {text}'); END"
        )
        connection.commit()
    prefix = f"spark.sql.catalog.{name}"
    conf = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{prefix}.uri": f"jdbc:sqlite:{database}?user=joe&password={quote(OPTION_PASSWORD)}",
        f"{prefix}.warehouse": (tmp_path / "warehouse").as_uri(),
    }
    for key, value in conf.items():
        java_spark.conf.set(key, value)
    iceberg_compact_sql.register(java_spark)
    try:
        result = shown(java_spark, COMMITTING[procedure].replace("{t}", f"{name}.db.t"))
        assert "no: ***" in result.text or (procedure == "expire" and result.error is not None), result.text
        assert_no_secret(result)
    finally:
        iceberg_compact_sql.unregister(java_spark)
        for key in conf:
            java_spark.conf.unset(key)


def test_a_task_that_fails_on_a_worker_shows_no_credential(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runner, "DRIVER_TASKS", -1)
    # A store repeats the key in the name of the file that it does not have.
    key = "worker7key8never9shown"
    folder = lake.folder / key
    table = lake.catalog.create_table("db.t", pa.schema([("id", pa.int64())]), location=folder.as_uri())
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    shutil.rmtree(folder / "data")
    setting = f"spark.sql.catalog.{lake.name}.s3.secret-access-key"
    lake.spark.conf.set(setting, key)
    iceberg_compact_sql.register(lake.spark)
    try:
        result = shown(lake.spark, f"CALL compact_table('{lake.full('db.t')}', min_input_files => 2)")
    finally:
        iceberg_compact_sql.unregister(lake.spark)
        lake.spark.conf.unset(setting)
    assert isinstance(result.error, IcebergCompactError) and "***" in result.text
    assert key not in result.text
