"""Table names: how they are read, and which catalog and namespace they mean in a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_compact_sql.catalogs.names import Origin, parse_table_name, quote_name, resolve_name, show_name
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError, NotFoundError, UnsupportedError

READ = [
    ("t", ("t",)),
    ("db.t", ("db", "t")),
    ("cat.db.t", ("cat", "db", "t")),
    ("cat.a.b.c.t", ("cat", "a", "b", "c", "t")),
    ("  db.t  ", ("db", "t")),
    ("`a.b`.`c`", ("a.b", "c")),
    ("`it``s`.t", ("it`s", "t")),
    ("db.my-table", ("db", "my-table")),
    ("`db`.t", ("db", "t")),
    ("db.`two words`", ("db", "two words")),
    ("Ünïcode.täble", ("Ünïcode", "täble")),
]


@pytest.mark.parametrize(("text", "parts"), READ)
def test_names_are_read(text: str, parts: tuple[str, ...]) -> None:
    assert parse_table_name(text) == parts


@pytest.mark.parametrize("text", ["", "  ", ".", "db.", ".t", "db..t", "`db.t", "db`.t", "`a`b.t", "``.t", "a`b`"])
def test_what_is_not_a_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_table_name(text)
    assert caught.value.argument == "table"
    assert "backticks" in str(caught.value)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_quoting_and_showing_are_read_back(parts: list[str]) -> None:
    assert parse_table_name(quote_name(parts)) == tuple(parts)
    assert parse_table_name(show_name(parts)) == tuple(parts)


@given(st.text(alphabet="ab.` \n'", max_size=12))
def test_any_text_is_a_name_or_our_error(text: str) -> None:
    try:
        parts = parse_table_name(text)
    except IcebergCompactError:
        return
    assert parts
    assert all(parts)


def view(**settings: object) -> SessionView:
    conf = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.delta": "org.example.DeltaCatalog",
        **settings.pop("conf", {}),  # type: ignore[dict-item]
    }
    return SessionView(conf=conf, **settings)  # type: ignore[arg-type]


LAKE = {"lake": Origin.SPARK}
TWO = {"lake": Origin.SPARK, "prod": Origin.PYICEBERG}
IN_LAKE = {"current_catalog": "lake", "current_namespace": ("here",)}
PLAIN = {"current_namespace": ("default",)}
SETTING = {"conf": {"spark.iceberg_compact_sql.catalog": "prod"}}
DEFAULT_NAMESPACE = {"conf": {"spark.sql.catalog.lake.default-namespace": "home.sweet"}}

RESOLVED = [
    # Spark's current catalog is Iceberg's: as Spark does it
    ("t", IN_LAKE, LAKE, None, ("lake", "here", "t")),
    ("db.t", IN_LAKE, LAKE, None, ("lake", "db", "t")),
    ("lake.db.t", IN_LAKE, LAKE, None, ("lake", "db", "t")),
    ("lake.a.b.t", IN_LAKE, LAKE, None, ("lake", "a", "b", "t")),
    ("a.b.c", IN_LAKE, LAKE, None, ("lake", "a", "b", "c")),
    ("lake.t", IN_LAKE, LAKE, None, ("lake", "t")),
    # it is not: setting, embedded, the only one
    ("t", PLAIN, LAKE, None, ("lake", "default", "t")),
    ("db.t", PLAIN, LAKE, None, ("lake", "db", "t")),
    ("db.t", {**PLAIN, **SETTING}, TWO, None, ("prod", "db", "t")),
    ("db.t", {**PLAIN, "embedded_warehouse": "x"}, {**TWO, "local": Origin.EMBEDDED}, None, ("local", "db", "t")),
    ("lake.db.t", {**PLAIN, **SETTING}, TWO, None, ("lake", "db", "t")),
    ("t", {**PLAIN, **DEFAULT_NAMESPACE}, LAKE, None, ("lake", "home", "sweet", "t")),
    # a catalog that Spark does not know needs namespace and table after it
    ("prod.db.t", IN_LAKE, TWO, None, ("prod", "db", "t")),
    ("prod.t", IN_LAKE, TWO, None, ("lake", "prod", "t")),
    # CALL lake.system.procedure('t')
    ("db.t", PLAIN, TWO, "lake", ("lake", "db", "t")),
    ("lake.db.t", PLAIN, TWO, "lake", ("lake", "db", "t")),
    ("db.t", IN_LAKE, TWO, "prod", ("prod", "db", "t")),
]


@pytest.mark.parametrize(("name", "session", "known", "catalog", "expected"), RESOLVED)
def test_names_mean(
    name: str, session: dict[str, object], known: dict[str, Origin], catalog: str | None, expected: tuple[str, ...]
) -> None:
    resolved = resolve_name(view(**session), parse_table_name(name), known, catalog=catalog)
    assert (resolved.catalog, *resolved.identifier) == expected


REFUSED = [
    ("db.t", PLAIN, TWO, None, NotFoundError, "more than one Iceberg catalog .* Configured: 'lake', 'prod'"),
    ("db.t", PLAIN, {}, None, NotFoundError, "no Iceberg catalog is configured.*register\\(spark, warehouse="),
    ("db.t", {**PLAIN, **SETTING}, LAKE, None, NotFoundError, "spark.iceberg_compact_sql.catalog is 'prod'"),
    ("delta.db.t", IN_LAKE, LAKE, None, UnsupportedError, "'delta' is not an Iceberg catalog"),
    ("spark_catalog.db.t", IN_LAKE, LAKE, None, UnsupportedError, "'spark_catalog' is not an Iceberg catalog"),
    (
        "lake.db.t",
        IN_LAKE,
        TWO,
        "prod",
        InvalidArgumentError,
        "in catalog 'prod', but 'lake.db.t' is in catalog 'lake'",
    ),
    ("db.t", IN_LAKE, LAKE, "lakr", NotFoundError, "Did you mean 'lake'"),
    ("t", {"current_catalog": "lake"}, LAKE, None, NotFoundError, "names no namespace"),
    ("t", IN_LAKE, TWO, "prod", NotFoundError, "names no namespace"),
]


@pytest.mark.parametrize(("name", "session", "known", "catalog", "error", "message"), REFUSED)
def test_names_that_mean_nothing_are_explained(
    name: str,
    session: dict[str, object],
    known: dict[str, Origin],
    catalog: str | None,
    error: type[IcebergCompactError],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        resolve_name(view(**session), parse_table_name(name), known, catalog=catalog)
