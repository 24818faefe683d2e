"""The rules of format versions stand once, and nobody compares version numbers elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import iceberg_compact_sql
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.format_versions import NEWEST_WRITABLE, is_writable, require_writable, rules_of

PACKAGE = Path(iceberg_compact_sql.__file__).parent
COMPARED = re.compile(r"\b(format_)?version\s*(<|>|<=|>=|==|!=|in|not in)\s*[\d(]")


def test_the_rules_follow_the_specification() -> None:
    assert not rules_of(1).sequence_numbers and not rules_of(1).delete_files
    assert rules_of(2).sequence_numbers and rules_of(2).delete_files and not rules_of(2).deletion_vectors
    assert rules_of(3).deletion_vectors and rules_of(3).row_lineage and rules_of(3).date_becomes_timestamp


@pytest.mark.parametrize("number", [NEWEST_WRITABLE + 1, 4, 99])
def test_a_version_that_we_do_not_write_is_refused_with_the_table(number: int) -> None:
    assert not is_writable(number)
    with pytest.raises(UnsupportedError, match=f"table 'db.t' has format version {number}"):
        require_writable(number, "db.t")


def test_a_version_that_nobody_knows_has_no_rules() -> None:
    with pytest.raises(UnsupportedError, match="format version 99 is not supported"):
        rules_of(99)


def test_nobody_else_compares_version_numbers() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "format_versions.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if COMPARED.search(line) and not line.lstrip().startswith("#")
    }
    assert found == set()
