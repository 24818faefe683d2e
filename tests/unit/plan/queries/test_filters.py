"""Filters as Iceberg's scan node writes them: every form, names and strings without quoting, nothing shown."""

from __future__ import annotations

import pytest

from iceberg_compact_sql.plan.queries.filters import All, Any_, FilterParser, Predicate, predicates, shape

PARSER = FilterParser(["id", "user_id", "kind", "odd, name", "st.a", "amount", "bin", "ok"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("true", ()),
        ("id IS NOT NULL, id >= 100, amount > 3.5", (("amount", "range"), ("id", "range"))),
        ("user_id IS NOT NULL, user_id = 7", (("user_id", "equality"),)),
        ("id IS NOT NULL", (("id", "not null"),)),
        ("kind IN ('it's', 'a, b'), id = 1", (("id", "equality"), ("kind", "in"))),
        ("odd, name IS NOT NULL, odd, name = 'o1'", (("odd, name", "equality"),)),
        ("st.a <= -3", (("st.a", "range"),)),
        ("(id = 5 OR user_id > 990)", (("id", "equality"), ("user_id", "range"))),
        ("is_nan(amount), NOT (ok = true)", (("amount", "other"), ("ok", "other"))),
        ("bin = X'3132', bucket[16](id) = 3", (("bin", "equality"), ("id", "other"))),
        ("kind LIKE 'b, id = 1%'", (("kind", "prefix"),)),
        ("amount < -1.5E30, kind IS NULL", (("amount", "range"), ("kind", "null"))),
        ("kind NOT IN ('a'), kind NOT LIKE 'b%', id != 3", (("id", "other"), ("kind", "other"))),
    ],
)
def test_shapes(text: str, expected: tuple[tuple[str, str], ...]) -> None:
    assert shape(PARSER.parse(text)) == expected


def test_values() -> None:
    parsed = PARSER.parse("kind IN ('it's', 'a, b'), id = 5, amount > Infinity, ok = true, kind LIKE 'x%', bin = X'31'")
    values = [predicate.values for predicate in predicates(parsed)]
    assert values == [("it's", "a, b"), (5,), (float("inf"),), (True,), ("x",), (b"1",)]
    assert PARSER.parse("(id = 1 OR (id = 2 AND user_id < 3))").parts == (
        Any_(
            (
                Predicate("id", "equality", "=", (1,)),
                All((Predicate("id", "equality", "=", (2,)), Predicate("user_id", "range", "<", (3,)))),
            )
        ),
    )


@pytest.mark.parametrize("text", ["nope = 's3cret'", "id ~ 's3cret'", "id = 1 's3cret'", "kind = 's3cret", "(" * 500])
def test_what_is_not_understood_is_an_error_without_its_text(text: str) -> None:
    with pytest.raises(ValueError) as raised:
        PARSER.parse(text)
    assert "s3cret" not in str(raised.value)


def test_a_filter_never_shows_its_literals() -> None:
    assert "s3cret" not in repr(PARSER.parse("kind = 's3cret', kind IN ('s3cret')"))
