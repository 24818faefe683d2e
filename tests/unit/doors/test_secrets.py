"""Credentials that a server repeats: none of them is in an error, in its causes or in a row."""

from __future__ import annotations

import ast
import base64
import json
import logging
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.logger.logger import JSONFormatter

import iceberg_compact_sql
from iceberg_compact_sql.commit import lease
from iceberg_compact_sql.doors.session_errors import guarded, without_secrets, wrapped_if_secret
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.redaction import mask_remembered, mask_rows, masked_logger, redact, remember_secrets
from tests.support.plain import PlainLake

SECRET = 'p/ss"w+rd=0123&é'


@pytest.fixture(autouse=True)
def known() -> None:
    remember_secrets(
        {
            "jdbc.password": SECRET,
            "uri": "postgresql://joe:hunter2%2Flong@db/x",
            "credential": "client-7:oauth-secret-55",
            "header.Authorization": "Bearer bearer-token-99",
            "s3.access-key-id": "AKIA0123456789",
            "s3.secret-access-key": "wJalrXUtnFEMI",
            "password": "admin",
            "s3.region": "eu-central-1",
            "token-exchange-enabled": "true-true-true",
        }
    )


@pytest.mark.parametrize(
    "echoed",
    [
        SECRET,
        quote(SECRET, safe=""),
        json.dumps(SECRET)[1:-1],
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(b"joe:hunter2/long").decode(),
        "hunter2/long",
        "hunter2%2Flong",
        "oauth-secret-55",
        "bearer-token-99",
        "AKIA0123456789",
        "wJalrXUtnFEMI",
    ],
)
def test_a_secret_is_masked_by_value_in_every_encoding(echoed: str) -> None:
    assert mask_remembered(f"<<{echoed}>>") == "<<***>>"
    assert echoed not in redact(f"the server said {echoed}")
    error = IcebergCompactError(f"refused: {echoed}", hint=f"see {echoed}", value=echoed)
    try:
        try:
            raise ValueError(echoed)
        except ValueError as cause:
            raise error from cause
    except IcebergCompactError as caught:
        shown = "".join(traceback.format_exception(without_secrets(caught)))
    # The lines of this file are shown too; the secrets are not in them by value.
    assert echoed not in shown
    assert echoed not in f"{error!r} {error.args} {error.value} {error.hint}"
    wrapped = wrapped_if_secret(RuntimeError(f"500: {echoed}"))
    assert wrapped is not None and echoed not in str(wrapped)


@pytest.mark.parametrize("plain", ["admin", "eu-central-1", "true-true-true", "client-7", "joe", "refused"])
def test_words_and_other_settings_are_not_masked(plain: str) -> None:
    assert mask_remembered(f"a {plain} b") == f"a {plain} b"
    assert wrapped_if_secret(RuntimeError(plain)) is None


def test_a_refused_lease_is_an_error_of_ours(plain_lake: PlainLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = plain_lake.catalog.create_table("db.t", Schema(NestedField(1, "id", LongType(), required=False)))

    def refuse(*_: object) -> None:
        raise RuntimeError(f"BadRequestError: {SECRET}")

    monkeypatch.setattr(lease, "set_lease_property", refuse)
    with pytest.raises(IcebergCompactError, match="could not be taken") as caught:
        lease.take_lease(table, "me", 1000)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_other_ways_in_which_a_property_holds_a_secret() -> None:
    remember_secrets(
        {
            "other.uri": "jdbc:postgresql://db/x?user=joe&password=op%20en%26sesame7",
            "adls.connection-string": "AccountName=acme;AccountKey=Zm9vYmFyMTIz;EndpointSuffix=core",
            "auth": {"type": "basic", "basic": {"username": "joe", "password": "ba/sic77"}},
            "s3.session-token": "hunter2",
        }
    )
    for secret in ("op en&sesame7", "op%20en%26sesame7", "op+en%26sesame7", "Zm9vYmFyMTIz", "ba/sic77", "ba%2fsic77"):
        assert mask_remembered(f"<<{secret}>>") == "<<***>>"
    assert mask_remembered("hunter2 op en&amp;sesame7") == "*** ***"
    assert mask_remembered("acme joe basic core") == "acme joe basic core"


def test_common_values_mask_only_themselves() -> None:
    remember_secrets({"jdbc.password": "postgres", "password": "123456", "token": "true", "secret": ""})
    remember_secrets({"adls.sas-token-expires-at-ms.acme.net": "1790000000000", "token-type": "urn:ietf:oauth:token"})
    remember_secrets(
        {"security.credential.provider.path": "jceks://file/keys", "web-identity-token-file": "/run/token"}
    )
    for text in (
        "postgresql://db/x and org.postgresql.Driver and /lake/postgres/data/a.parquet and the-postgres-table",
        "123456 rows, true, at 1790000000000 of urn:ietf:oauth:token, see jceks://file/keys and /run/token",
        "",
    ):
        assert mask_remembered(text) == text
    assert mask_remembered("wrong password 'postgres'. postgres.") == "wrong password '***'. ***."


def test_rows_are_masked_in_every_cell() -> None:
    rows = [
        (1, f"no: {SECRET}", None, ["bearer-token-99", 2], {"reason": "bearer-token-99"}),
        (2, "fine", None, [], {}),
    ]
    assert mask_rows(rows) == [(1, "no: ***", None, ["***", 2], {"reason": "***"}), (2, "fine", None, [], {})]


def test_an_error_that_is_not_ours_leaves_no_trace_of_itself() -> None:
    def work() -> None:
        try:
            raise ValueError("bearer-token-99")
        except ValueError as cause:
            raise KeyError("plain") from cause

    with pytest.raises(IcebergCompactError, match=r"^compact_table: KeyError: 'plain'") as caught:
        guarded("compact_table", work)
    assert caught.value.__context__ is None and caught.value.__cause__ is None

    def other() -> None:
        raise KeyError("plain")

    with pytest.raises(KeyError):
        guarded("compact_table", other)


def test_an_interrupt_and_notes_show_no_secret() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt("during the commit: bearer-token-99")

    with pytest.raises(KeyboardInterrupt, match=r"during the commit: \*\*\*"):
        guarded("compact_table", interrupted)

    def noted() -> None:
        error = IcebergCompactError("refused")
        error.__notes__ = ["bearer-token-99"]
        raise error

    with pytest.raises(IcebergCompactError) as caught:
        guarded("compact_table", noted)
    assert caught.value.__notes__ == ["***"]


FORMATTERS = {"text": logging.Formatter(), "json": JSONFormatter()}


def test_logs_of_every_module_are_masked_for_every_handler(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "iceberg_compact_sql")
    logger = masked_logger("iceberg_compact_sql.somewhere.deep")
    assert masked_logger("iceberg_compact_sql.somewhere.deep") is logger and len(logger.filters) == 1
    logger.warning("refused: %s (%d)", "bearer-token-99", 7)
    logger.info("bearer-token-99")
    logger.info("%d of %d files", 1, 2)
    try:
        try:
            raise ValueError("bearer-token-99")
        except ValueError as cause:
            raise RuntimeError("refused") from cause
    except RuntimeError:
        logger.exception("unexpected", stack_info=True)
    assert "bearer-token-99" not in caplog.text + "".join(repr(record.__dict__) for record in caplog.records)
    assert [record.getMessage() for record in caplog.records] == [
        "refused: *** (7)",
        "***",
        "1 of 2 files",
        "unexpected",
    ]
    failed = caplog.records[-1]
    # pyspark gives the handlers of a session that logs as JSON a formatter of its own, also in other tests.
    shown = {name: formatter.format(failed) for name, formatter in FORMATTERS.items()}
    assert "bearer-token-99" not in str(shown)
    assert "ValueError: ***" in shown["text"] and "RuntimeError: refused" in shown["text"]
    failed.exc_text = None
    assert "RuntimeError: refused" in FORMATTERS["text"].format(failed)
    assert failed.exc_info is not None and str(failed.exc_info[1].__cause__) == "***"  # type: ignore[union-attr]
    exception = json.loads(shown["json"])["exception"]
    assert (exception["class"], exception["msg"]) == ("RuntimeError", "refused")
    assert exception["stacktrace"][0]["method"] == "test_logs_of_every_module_are_masked_for_every_handler"


def test_every_module_logs_through_a_masked_logger() -> None:
    package = Path(iceberg_compact_sql.__file__).parent
    direct = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("getLogger", "warn", "basicConfig")
        if isinstance(node.value, ast.Name) and node.value.id == "logging"
    }
    # The package's own logger gets handlers, and a logger of pyiceberg gets a filter; nothing is logged on them.
    filters = "pyiceberg_internals/catalog_timeouts.py"
    assert direct == {"__init__.py", "redaction.py", "doors/jvm_child.py", filters}
