"""The command line on a real session: results in every format, exit codes, Ctrl-C."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import iceberg_compact_sql
from iceberg_compact_sql import events
from iceberg_compact_sql.cli import main
from iceberg_compact_sql.demo.lake import TABLE, make_demo_table
from iceberg_compact_sql.procedures.registry import procedures

FILES = 24


@pytest.fixture
def lake(tmp_path: Path, java_spark: SparkSession) -> Iterator[Path]:
    """A small demo lake; the command line finds the session of this process."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    make_demo_table(catalog, commits=FILES // 4, rows_per_file=10)
    yield tmp_path
    iceberg_compact_sql.unregister(java_spark)
    java_spark.conf.unset("spark.iceberg_compact_sql.catalog")
    catalog.close()


@pytest.fixture
def run(lake: Path) -> Callable[..., Result]:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--warehouse", str(lake), "--master", "local[2]"])

    return invoke


def test_one_statement_in_every_format(run: Callable[..., Result]) -> None:
    statement = f"CALL score_partitions('{TABLE}', target => '1MB')"
    shown = run("run", statement)
    assert shown.exit_code == 0, shown.output
    assert "day=2026-01-01" in shown.stdout and "recommendation" in shown.stdout
    as_json = json.loads(run("run", statement, "--format", "json").stdout)
    as_csv = list(csv.DictReader(io.StringIO(run("run", statement, "--format", "csv").stdout)))
    assert sum(row["data_files"] for row in as_json) == FILES
    assert [row["partition"] for row in as_csv] == [row["partition"] for row in as_json]
    assert list(as_csv[0]) == list(as_json[0])


def test_a_file_of_statements(run: Callable[..., Result], tmp_path: Path) -> None:
    script = tmp_path / "night.sql"
    call = f"compact_table('{TABLE}', target => '1MB')"
    script.write_text(
        f"-- nothing here; yet\nUSE default;\nSELECT ';' AS semicolon;\nCALL {call};\n"
        f"SELECT count(*) AS groups FROM {call} WHERE action = 'rewrite';\n/* end */"
    )
    done = run("run", "-f", str(script), "--format", "csv")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[:2] == ["semicolon", ";"] and lines[-2:] == ["groups", "0"]
    assert lines[3].startswith(f"{FILES},4,")


ODD = r"""SELECT NULL AS nothing, true AS yes, 'a,"b"\n;' AS odd, '\U0001F600' AS face, array(1, NULL) AS many,
map('k', 1.5) AS pairs, named_struct('at', DATE '2026-01-02') AS inner, X'4142' AS raw, double('nan') AS nan,
12345678901234567890.5 AS long, TIMESTAMP '2026-01-02 03:00:00Z' AS at, 1e-7 AS small"""


def test_values_of_every_type(run: Callable[..., Result], java_spark: SparkSession) -> None:
    java_spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        [as_json] = json.loads(run("run", ODD, "--format", "json").stdout)
        [as_csv] = csv.DictReader(io.StringIO(run("run", ODD, "--format", "csv").stdout))
        table = run("run", ODD).stdout
    finally:
        java_spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert as_json["nothing"] is None and as_json["yes"] is True and as_json["nan"] is None
    assert as_csv["nothing"] == "" and as_csv["yes"] == "true"
    for row in (as_json, as_csv):
        assert (row["odd"], row["face"]) == ('a,"b"\n;', "\U0001f600")
        assert (row["raw"], row["long"], row["at"]) == ("4142", "12345678901234567890.5", "2026-01-02 12:00:00")
    assert as_json["many"] == json.loads(as_csv["many"]) == [1, None]
    assert as_json["inner"] == json.loads(as_csv["inner"]) == {"at": "2026-01-02"}
    assert as_json["pairs"] == json.loads(as_csv["pairs"]) == {"k": "1.5"}
    assert float(as_csv["small"]) == as_json["small"] == 1e-7
    assert "2026-01-02 12:00:00" in table and "[1, null]" in table and "NULL" in table


def test_statements_from_standard_input(lake: Path) -> None:
    flags = ["--warehouse", str(lake), "--master", "local[2]", "--format", "csv"]
    done = CliRunner().invoke(
        main, ["run", "-f", "-", *flags], input="\ufeffSELECT 1 AS one;\n-- end;\nSELECT 'ü' AS two"
    )
    assert (done.exit_code, done.stdout) == (0, "one\n1\ntwo\nü\n")


def test_help_takes_the_procedure_as_it_comes(run: Callable[..., Result]) -> None:
    rows = json.loads(run("help", "compact_table", "--format", "json").stdout)
    assert rows[0]["argument"] == "table"
    assert {row["procedure"] for row in json.loads(run("help", "--format", "json").stdout)} == set(procedures())


def test_a_script_stops_at_the_first_failure(run: Callable[..., Result], tmp_path: Path) -> None:
    script = tmp_path / "night.sql"
    script.write_text(f"CALL compact_table('demo.missing'); CALL compact_table('{TABLE}')")
    done = run("run", "-f", str(script))
    assert done.exit_code == 1
    assert done.stderr.startswith("compact_table: there is no table 'demo.missing' in catalog 'local'")
    assert done.stdout == ""


def test_every_procedure_by_its_own_subcommand(run: Callable[..., Result]) -> None:
    for name, procedure in procedures().items():
        arguments = [TABLE] if procedure.parameter("table") else []
        arguments += ["--dry-run"] if procedure.parameter("dry_run") else []
        done = run(name.replace("_", "-"), *arguments, "--format", "json")
        assert done.exit_code == 0, f"{name}: {done.output}"
        json.loads(done.stdout)
    flags = ["--target", "1MB", "--option", "min-input-files=2", "--no-remove-dangling-deletes", "--where", "id >= 0"]
    [row] = json.loads(run("compact-table", TABLE, *flags, "--format", "json").stdout)
    assert (row["rewritten_data_files_count"], row["added_data_files_count"]) == (FILES, 4)
    [gone] = json.loads(run("expire-snapshots", TABLE, "--older-than", "0s", "--format", "json").stdout)
    assert gone["deleted_data_files_count"] == FILES


def test_tables_are_listed_worst_first(run: Callable[..., Result]) -> None:
    for pattern in ([], ["local.*"], ["demo.*"]):
        [row] = json.loads(run("tables", *pattern, "--format", "json").stdout)
        assert (row["table"], row["data_files"], row["error"]) == (f"local.{TABLE}", FILES, None)
    missing = run("tables", "nothing.*")
    assert missing.exit_code == 1 and "no table matches the pattern 'nothing.*'" in missing.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compact-table", TABLE, "--target", "1QB"], "compact_table: argument 'target': '1QB'"),
        (["run", "CALL compact_table()"], "compact_table: argument 'table' is missing"),
        (["run", "SELEC 1"], "PARSE_SYNTAX_ERROR"),
        (["score-partitions", TABLE, "--catalog", "nowhere"], "nowhere"),
    ],
)
def test_a_failure_is_told_in_short_with_exit_code_1(
    run: Callable[..., Result], arguments: list[str], message: str
) -> None:
    done = run(*arguments)
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stdout == "" and "Traceback" not in done.output and "at org.apache" not in done.output


def test_settings_and_a_catalog_of_sparks(lake: Path, java_spark: SparkSession) -> None:
    settings = {
        "spark.sql.catalog.local.type": "jdbc",
        "spark.sql.catalog.local.uri": f"jdbc:sqlite:{lake / 'catalog.db'}",
        "spark.sql.catalog.local.warehouse": lake.as_uri(),
    }
    flags = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    try:
        done = CliRunner().invoke(
            main, ["score-partitions", TABLE, "--catalog", "local", "--format", "json", *flags, "--master", "local[2]"]
        )
        assert done.exit_code == 0, done.output
        assert sum(row["data_files"] for row in json.loads(done.stdout)) == FILES
    finally:
        for key in settings:
            java_spark.conf.unset(key)


def test_ctrl_c(run: Callable[..., Result], lake: Path) -> None:
    def interrupt(point: str, facts: Mapping[str, object]) -> None:
        if point == "rewrite.start":
            raise KeyboardInterrupt

    with events.listening(interrupt):
        done = run("compact-table", TABLE)
    assert done.exit_code == 1
    assert done.stderr.strip() == "cancelled" and done.stdout == ""
