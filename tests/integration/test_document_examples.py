"""Every snippet of the README and the documents runs: Python and SQL on a real session, commands through the shell."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import iceberg_compact_sql
from iceberg_compact_sql.cli import main
from iceberg_compact_sql.demo.lake import make_demo_table
from tests.support.documents import ROOT, blocks, shell_lines


@pytest.fixture
def spark(tmp_path: Path, java_spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A session in a folder that has ./lake with demo.events and db.events, and the examples."""
    lake = tmp_path / "lake"
    lake.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=lake.as_uri())
    for name in ("demo.events", "db.events"):
        make_demo_table(catalog, name=name, commits=6, rows_per_file=10)
    catalog.close()
    shutil.copytree(ROOT / "sql_examples", tmp_path / "sql_examples")
    monkeypatch.chdir(tmp_path)
    yield java_spark
    iceberg_compact_sql.unregister(java_spark)


def test_python(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    for _, text in blocks("python"):
        exec(compile(text, "document", "exec"), {"spark": spark})
    shown = capsys.readouterr().out
    assert "rewritten_data_files_count" in shown and "expired_snapshots_count" in shown


def test_sql(spark: SparkSession) -> None:
    iceberg_compact_sql.register(spark, warehouse="./lake")
    for _, text in blocks("sql"):
        assert spark.sql(text).columns
    sections = spark.sql("CALL help('limits')").collect()
    assert "Deleting files" in [row["argument"] for row in sections]


def test_commands(spark: SparkSession) -> None:
    lines = [line for line in shell_lines() if line.startswith("iceberg-compact-sql ")]
    assert len(lines) >= 5
    Path("service.yaml").write_text(next(text for language, text in blocks("yaml") if text.startswith("server:")))
    for line in lines:
        command = shlex.split(line)[1:]
        # A server does not end: its configuration is checked here, and test_service.py runs it.
        done = CliRunner().invoke(main, [*command, "--check"] if command[0] == "serve" else command)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        assert done.stdout.strip()
