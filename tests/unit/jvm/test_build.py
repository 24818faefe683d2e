"""The jar in the package is what its sources build, byte for byte."""

from __future__ import annotations

import zipfile
from pathlib import Path

from iceberg_compact_sql.jvm import jar_path
from iceberg_compact_sql.jvm.build import build, procedure_names, sources_digest


def test_the_jar_is_the_build_of_its_sources(tmp_path: Path) -> None:
    built = build(tmp_path / "again.jar")
    assert built.read_bytes() == jar_path().read_bytes(), "run: python -m iceberg_compact_sql.jvm.build"


def test_the_jar_says_what_it_was_built_from() -> None:
    with zipfile.ZipFile(jar_path()) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
        names = jar.read("icebergcompactsql/procedure-names.txt").decode().split()
    assert f"Sources-SHA-256: {sources_digest()[:48]}" in manifest
    assert names == procedure_names()
    assert {"compact_table", "rewrite_data_files", "remove_orphan_files", "help"} <= set(names)


def test_no_stand_in_of_sparks_classes_is_in_the_jar() -> None:
    with zipfile.ZipFile(jar_path()) as jar:
        assert not [name for name in jar.namelist() if name.startswith("org/")]
