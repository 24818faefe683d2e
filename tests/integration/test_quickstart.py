"""The guided tour, as a new user runs it: a process of its own, no Iceberg jar; and its lake as Java reads it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from iceberg_compact_sql.catalogs.jdbc_uri import sqlite_uri
from iceberg_compact_sql.demo.lake import COMMITS, DAYS, DELETES, ROWS_PER_FILE, TABLE, make_demo_table
from tests.support.java import Lake

ROOT = Path(__file__).parents[2]
FOLDER = "the lake's [bold] ü %41"
ROWS = COMMITS * DAYS * ROWS_PER_FILE - DELETES * ROWS_PER_FILE // 2


def test_the_tour(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "iceberg_compact_sql.cli", "quickstart", "--master", "local[2]", "--warehouse", FOLDER],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout
    assert re.search(rf"before: {COMMITS * DAYS} files", shown) and re.search(rf"after: {DAYS} files", shown)
    facts = dict(re.findall(r"│ (\w+_count)\s+│ (\d+)\s+│", shown))
    # The tables fit a plain terminal.
    assert max(len(line) for line in shown.splitlines() if line.startswith(("│", "┃"))) <= 80
    assert facts["rewritten_data_files_count"] == str(COMMITS * DAYS)
    assert facts["removed_delete_files_count"] == facts["deleted_position_delete_files_count"] == str(DELETES)
    assert facts["deleted_data_files_count"] == str(COMMITS * DAYS) and facts["failed_deletes_count"] == "0"
    assert facts["expired_snapshots_count"] == str(COMMITS + DELETES)
    assert f"{ROWS:,} rows before, {ROWS:,} rows after: the same rows." in shown
    # Nothing but the JVM's own word about its modules, and nothing outside the lake.
    noise = [line for line in done.stderr.splitlines() if "incubator" not in line]
    assert noise == []
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [FOLDER]
    # What it proposes to go on with can be pasted into a shell.
    assert f"run --warehouse {shlex.quote(FOLDER)} " in shown and f"in {FOLDER}" in shown
    lake = tmp_path / FOLDER
    catalog = SqlCatalog("local", uri=sqlite_uri(lake / "catalog.db"), warehouse=f"file://{lake}")
    try:
        table = catalog.load_table(TABLE)
        assert len(table.snapshots()) == 1 and table.scan().count() == ROWS
    finally:
        catalog.close()


def test_java_reads_the_demo_table_alike(lake: Lake) -> None:
    table = make_demo_table(lake.catalog, name="db.events", commits=DELETES, rows_per_file=10)
    ids = sorted(table.scan().to_arrow()["id"].to_pylist())
    assert [row[0] for row in lake.sql("SELECT id FROM {lake}.db.events ORDER BY id").collect()] == ids
    assert len(ids) == DELETES * (DAYS * 10 - 5)
    operations = [row[0] for row in lake.sql("SELECT operation FROM {lake}.db.events.snapshots").collect()]
    assert operations.count("delete") == DELETES and operations.count("append") == DELETES
    assert sum(file["content"] == 1 for file in lake.files("db.events")) == DELETES
