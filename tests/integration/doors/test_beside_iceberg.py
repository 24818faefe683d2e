"""Our jar and Iceberg's in one session, in either order: each answers its own calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_compact_sql.jvm import jar_path
from tests.support.jars import fetch
from tests.support.java import EXTENSIONS, RUNTIME
from tests.support.programs import spark_sql, surroundings

OURS = "icebergcompactsql.Extensions"
_OURS_COLUMNS, _ICEBERG_COLUMNS = 15, 5


@pytest.mark.timeout(240)
@pytest.mark.parametrize("extensions", [f"{EXTENSIONS},{OURS}", EXTENSIONS], ids=["ours outside", "Iceberg's outside"])
def test_both_parsers_live_together(tmp_path: Path, extensions: str) -> None:
    around = surroundings(tmp_path)
    around.create("db.events")
    warehouse = around.warehouse
    jars = ",".join(map(str, [jar_path(), *fetch("runtime", RUNTIME)]))
    conf = {
        "spark.sql.extensions": extensions,
        "spark.sql.defaultCatalog": "local",
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.type": "jdbc",
        "spark.sql.catalog.local.uri": f"jdbc:sqlite:{warehouse / 'catalog.db'}",
        "spark.sql.catalog.local.jdbc.schema-version": "V1",
        "spark.sql.catalog.local.warehouse": warehouse.as_uri(),
        "spark.sql.catalog.local.cache-enabled": "false",
    }
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    with spark_sql(around, *settings, jars=jars) as shell:
        lines, stderr = shell.run("CALL compact_table('db.events', dry_run => true)")
        assert lines and "rewrite" in lines[0], stderr
        # A qualified call stays Iceberg's, with what only its parser can read.
        lines, stderr = shell.run(
            "CALL local.system.rewrite_data_files(table => 'db.events', strategy => 'sort',"
            " sort_order => 'zorder(id, kind)', options => map('rewrite-all', 'true'))"
        )
        rows = [line.split("\t") for line in lines if "\t" in line]
        assert [len(row) for row in rows] == [_ICEBERG_COLUMNS], stderr
        assert rows[0][:2] == ["6", "1"]
        shell.run("ALTER TABLE db.events ADD PARTITION FIELD bucket(4, id)")
        with around.catalog() as catalog:
            assert [field.name for field in catalog.load_table("db.events").spec().fields] == ["id_bucket_4"]
        _, stderr = shell.run("ALTER TABLE db.events ADD PARTITION FIELD nonsense(4, id")
        assert "UndeclaredThrowable" not in stderr and "ICEBERG_COMPACT" not in stderr
        # The same name without the catalog is ours, and so is the qualified one when the session says so.
        lines, _ = shell.run("CALL rewrite_data_files(table => 'db.events')")
        assert [len(line.split("\t")) for line in lines] == [_OURS_COLUMNS]
        shell.run("SET spark.iceberg_compact_sql.takeover=true")
        # In Iceberg's form, with Iceberg's positional order and Iceberg's columns.
        lines, stderr = shell.run("CALL local.system.rewrite_data_files('db.events', 'binpack', NULL, map())")
        assert [len(line.split("\t")) for line in lines if "\t" in line] == [_ICEBERG_COLUMNS], (lines, stderr)
        lines, stderr = shell.run("CALL local.system.expire_snapshots('db.events', NULL, 1, 2, false, array())")
        assert [line for line in lines if "\t" in line] == ["\t".join(["0"] * 6)], (lines, stderr)
        # And it fails as Iceberg's does.
        _, stderr = shell.run("CALL local.system.rewrite_data_files(table => 'db.events', where => 'nope = 1')")
        assert "IllegalArgumentException: Cannot parse predicates in where option: nope = 1\n" in stderr
        _, stderr = shell.run("CALL local.system.rewrite_data_files()")
        assert "[REQUIRED_PARAMETER_NOT_FOUND] Cannot invoke routine `rewrite_data_files` because" in stderr
    assert around.state("db.events")[1] == list(range(12))
