"""Every file in sql_examples does what it says, on the table of the guided tour."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import iceberg_compact_sql
from iceberg_compact_sql.call.statements import split_statements
from iceberg_compact_sql.demo.lake import DAYS, DELETES, TABLE, make_demo_table

FOLDER = Path(__file__).parents[2] / "sql_examples"
EXAMPLES = sorted(FOLDER.glob("*.sql"))
COMMITS, ROWS_PER_FILE = 10, 40


@pytest.fixture
def demo(tmp_path: Path, java_spark: SparkSession) -> Iterator[SqlCatalog]:
    """A small demo lake in the embedded catalog of a session that also has Iceberg's jar."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    make_demo_table(catalog, commits=COMMITS, rows_per_file=ROWS_PER_FILE)
    iceberg_compact_sql.register(java_spark, warehouse=tmp_path)
    yield catalog
    iceberg_compact_sql.unregister(java_spark)
    catalog.close()


def test_all_uses_are_there() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names >= {"nightly_maintenance", "one_partition", "dry_run", "expire", "orphans", "dbt_post_hook"}
    assert all(path.read_text().startswith("--") for path in EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_no_row_changes(path: Path, demo: SqlCatalog, java_spark: SparkSession) -> None:
    before = demo.load_table(TABLE)
    ids = sorted(before.scan().to_arrow()["id"].to_pylist())
    assert len(ids) == COMMITS * DAYS * ROWS_PER_FILE - DELETES * ROWS_PER_FILE // 2
    for statement in split_statements(path.read_text()):
        frame = java_spark.sql(statement)
        assert frame.columns
        frame.collect()
    after = demo.load_table(TABLE)
    assert sorted(after.scan().to_arrow()["id"].to_pylist()) == ids
    files = len(list(after.scan().plan_files()))
    if path.stem in ("nightly_maintenance", "one_partition", "dbt_post_hook"):
        assert files == DAYS
    else:
        assert (files, after.metadata_location) == (COMMITS * DAYS, before.metadata_location)
