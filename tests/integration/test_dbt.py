"""dbt with method session: the jar through `server_side_parameters`, beside Iceberg's own jar."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_compact_sql.jvm import jar_path
from tests.support.dbt import run_dbt
from tests.support.jars import fetch
from tests.support.java import RUNTIME
from tests.support.programs import surroundings


@pytest.mark.timeout(240)
def test_a_post_hook_compacts_the_model(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    lake = tmp_path / "lake"
    lake.mkdir()
    jars = ",".join(map(str, [jar_path(), *fetch("runtime", RUNTIME)]))
    around.environment.update(DBT_LAKE=str(lake), DBT_SPARK_JARS=jars)

    done = run_dbt(around, "session", "run", "--select", "visits")
    assert done.returncode == 0, done.stdout + done.stderr
    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=lake.as_uri())
    try:
        table = catalog.load_table("demo.visits")
        # A table made by Spark's two tasks is under the hook's three files; one more run brings it over them.
        assert [s.summary.operation.value for s in table.snapshots() if s.summary] == ["append"]

        # The second run appends, compacts, and then fails in a hook of its own: the error is one of dbt's.
        hook = "CALL compact_table('{{ this }}', min_input_files => 'few')"
        model = tmp_path / "project" / "models" / "visits.sql"
        model.write_text(model.read_text().replace("    post_hook=", "    post_hook=[", 1).replace(
            "min_input_files => 3)\"", f"min_input_files => 3)\", \"{hook}\"]", 1
        ))  # fmt: skip
        done = run_dbt(around, "session", "run", "--select", "visits")
        assert done.returncode == 1
        assert "[ICEBERG_COMPACT_INVALID_ARGUMENT] compact_table: argument 'min_input_files'" in done.stdout
        table.refresh()
        assert [s.summary.operation.value for s in table.snapshots() if s.summary] == ["append", "append", "replace"]
        assert len(list(table.scan().plan_files())) == 1
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted([*range(100), *range(100)])
    finally:
        catalog.close()
