"""dbt with method session: the jar through `server_side_parameters`, beside Iceberg's own jar."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_compact_sql.jvm import jar_path
from tests.support.dbt import copy_project, run_dbt
from tests.support.jars import fetch
from tests.support.java import RUNTIME
from tests.support.programs import Surroundings, surroundings


@pytest.mark.timeout(240)
def test_a_post_hook_compacts_the_model(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    lake = tmp_path / "lake"
    lake.mkdir()
    jars = ",".join(map(str, [_installed_jar(around), *fetch("runtime", RUNTIME)]))
    around.environment.update(DBT_LAKE=str(lake), DBT_SPARK_JARS=jars)
    # Nothing says which Python to take: it is the one that the jar was installed with.
    del around.environment["PYSPARK_PYTHON"]

    project = copy_project(around)
    # A model whose hook is refused: its error is one of dbt's, and the other model is not touched by it.
    (project / "models" / "wrong.sql").write_text(
        "{{ config(materialized='view', post_hook=\"CALL compact_table('{{ this }}', targt => '1MB')\") }}\n"
        "SELECT 1 AS x"
    )
    done = run_dbt(around, "session", "run", "--select", "visits", "wrong")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "PASS=1" in done.stdout and "ERROR=1" in done.stdout
    assert "[ICEBERG_COMPACT_INVALID_ARGUMENT] compact_table: unknown argument 'targt'" in done.stdout

    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=lake.as_uri())
    try:
        table = catalog.load_table("demo.visits")
        operations = [snapshot.summary.operation.value for snapshot in table.snapshots() if snapshot.summary]
        assert operations[-1] == "replace" and len(operations) == 2
        assert len(list(table.scan().plan_files())) == 1
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(100))
    finally:
        catalog.close()
    assert (tmp_path / "installed-python-ran").exists()


def _installed_jar(around: Surroundings) -> Path:
    """The jar as pip lays it out, in an environment with an interpreter of its own."""
    prefix = around.folder / "prefix"
    jar = prefix / "lib" / "python3" / "site-packages" / "iceberg_compact_sql" / "jvm" / jar_path().name
    jar.parent.mkdir(parents=True)
    shutil.copy(jar_path(), jar)
    interpreter = prefix / "bin" / "python"
    interpreter.parent.mkdir()
    note = around.folder / "installed-python-ran"
    interpreter.write_text(f'#!/bin/sh\ntouch "{note}"\nexec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o755)
    return jar
