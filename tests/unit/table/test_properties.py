"""Table properties: defaults, texts that mean nothing, and one place for each name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import iceberg_compact_sql
from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.table import properties
from iceberg_compact_sql.table.properties import Property

PACKAGE = Path(iceberg_compact_sql.__file__).parent
DECLARED = {value.name: value for value in vars(properties).values() if isinstance(value, Property)}


def test_a_missing_property_has_its_default() -> None:
    assert properties.TARGET_FILE_BYTES.of({}) == 512 * 1024**2
    assert properties.DELETE_TARGET_FILE_BYTES.of({}) == 64 * 1024**2
    assert properties.MANIFEST_TARGET_BYTES.of({}) == 8 * 1024**2
    assert properties.GC_ENABLED.of({}) is True
    assert properties.DATA_PATH.of({}) is None


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("TRUE", True), ("false", False), ("no", False)])
def test_booleans_are_read_as_java_reads_them(text: str, expected: bool) -> None:
    assert properties.GC_ENABLED.of({"gc.enabled": text}) is expected


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_a_manifest_size_that_means_nothing_is_the_default(text: str) -> None:
    assert properties.MANIFEST_TARGET_BYTES.of({"commit.manifest.target-size-bytes": text}) == 8 * 1024**2


@pytest.mark.parametrize("text", ["0", "large", "-5"])
def test_a_target_size_that_means_nothing_is_an_error(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"write\.target-file-size-bytes"):
        properties.TARGET_FILE_BYTES.of({"write.target-file-size-bytes": text})


def test_a_retention_that_is_not_a_number_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match=r"history\.expire\.min-snapshots-to-keep is 'all', not a number"):
        properties.MIN_SNAPSHOTS_TO_KEEP.of({"history.expire.min-snapshots-to-keep": "all"})


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_a_property_is_spelt_in_one_module(name: str) -> None:
    spelling = re.compile(rf'["\']{re.escape(name)}["\']')
    # The room `call` knows no table: it has Iceberg's texts about a property, and reads none.
    readers = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "call"]
    holders = [path for path in readers if spelling.search(path.read_text(encoding="utf-8"))]
    assert [path.relative_to(PACKAGE).as_posix() for path in holders] == ["table/properties.py"]
