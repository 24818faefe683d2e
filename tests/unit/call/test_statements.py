"""Scripts of several statements, as pairs of text and parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_compact_sql.call.statements import split_statements


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        (" ;;\n; ", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' ; SELECT \";\"", ["SELECT ';'", 'SELECT ";"']),
        ("SELECT `a;b` FROM t; SELECT 1", ["SELECT `a;b` FROM t", "SELECT 1"]),
        ("SELECT 'it''s;'; SELECT 1", ["SELECT 'it''s;'", "SELECT 1"]),
        (r"SELECT 'a\';b'; SELECT 1", [r"SELECT 'a\';b'", "SELECT 1"]),
        (r"SELECT r'a\'; SELECT 1", [r"SELECT r'a\'", "SELECT 1"]),
        (r"SELECT bar'a\';b'", [r"SELECT bar'a\';b'"]),
        (r"SELECT `a\`; SELECT 1", [r"SELECT `a\`", "SELECT 1"]),
        ("-- one; two\nSELECT 1; -- the end;", ["-- one; two\nSELECT 1"]),
        ("/* a; /* b; */ c; */ SELECT 1; /* only; a note */", ["/* a; /* b; */ c; */ SELECT 1"]),
        ("-- goes on; \\\nhere;\nSELECT 1; SELECT 2", ["-- goes on; \\\nhere;\nSELECT 1", "SELECT 2"]),
        ("-- it's\nSELECT 1; SELECT 2", ["-- it's\nSELECT 1", "SELECT 2"]),
        ("SELECT 'open; SELECT 1", ["SELECT 'open; SELECT 1"]),
        ("/* open; SELECT 1", []),
    ],
)
def test_split(text: str, parts: list[str]) -> None:
    assert split_statements(text) == parts


_PIECES = ["SELECT 1", "CALL f('a;b')", "/* x; */ SELECT `;`", "-- n;\nSELECT ';'", "SELECT 'it''s'", 'SELECT "\\";"']


@given(st.lists(st.sampled_from(_PIECES)))
def test_joined_statements_come_apart_again(pieces: list[str]) -> None:
    assert split_statements(";\n".join(pieces)) == pieces


@given(st.text(alphabet="ab;'\"`\\-/*\n rR"))
def test_any_text_is_split_into_parts_of_itself(text: str) -> None:
    at = 0
    for part in split_statements(text):
        assert part
        at = text.index(part, at) + len(part)
