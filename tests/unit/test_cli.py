"""The command line before it starts anything: flags from declarations, usage errors, no Java."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX
from iceberg_compact_sql.cli import main
from iceberg_compact_sql.demo.lake import TABLE, make_demo_table
from iceberg_compact_sql.demo.tour import prepare_folder
from iceberg_compact_sql.procedures.registry import procedures

ROOT = Path(__file__).parents[2]
SESSION_FLAGS = {"catalog", "warehouse", "settings", "master", "style"}


def test_every_procedure_is_a_subcommand_with_a_flag_an_argument() -> None:
    for name, procedure in procedures().items():
        command = main.commands[name.replace("_", "-")]
        flags = {parameter.name for parameter in command.params}
        assert flags == {parameter.name for parameter in procedure.parameters} | SESSION_FLAGS
        arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
        assert [argument.name for argument in arguments] == [procedure.parameters[0].name]
        required = {argument.name for argument in arguments if argument.required}
        assert required == {parameter.name for parameter in procedure.parameters if parameter.required}
        shown = CliRunner().invoke(main, [name.replace("_", "-"), "--help"])
        assert shown.exit_code == 0 and procedure.summary.split(";")[0][:40] in shown.output


def test_help_and_version_and_jar() -> None:
    shown = CliRunner().invoke(main, ["-h"])
    assert shown.exit_code == 0
    assert {"quickstart", "run", "jar", "compact-table"} <= set(shown.output.split())
    jar = CliRunner().invoke(main, ["jar"])
    assert jar.exit_code == 0 and Path(jar.output.strip()).is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "give either a statement or -f FILE"),
        (["run", "SELECT 1", "-f", __file__], "give either a statement or -f FILE"),
        (["run", " ; -- nothing"], "there is no statement to run"),
        (["run", "-f", "/no/such/file.sql"], "does not exist"),
        (["run", "-f", sys.executable], "is not UTF-8 text"),
        (["run", "SELECT 1", "--conf", "=v"], "--conf takes key=value, not '=v'"),
        (["run", "SELECT 1", "--format", "xml"], "'xml' is not one of"),
        (["run", "SELECT 1", "--conf", "novalue"], "--conf takes key=value, not 'novalue'"),
        (["run", "SELECT 1", "--master", "locl[2]"], "'locl[2]' is not a Spark master"),
        (["quickstart", "--master", "localhost"], "'localhost' is not a Spark master"),
        (["compact-table"], "Missing argument 'TABLE'"),
        (["compact-table", "db.t", "--targt", "1MB"], "--target"),
        (["compact-table", "db.t", "--option", "novalue"], "--option takes key=value"),
        (["compact-tabel"], "No such command"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize("home", [None, "/no/such/jdk"])
def test_without_java_one_clear_sentence(tmp_path: Path, home: str | None) -> None:
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    if home is not None:
        environment["JAVA_HOME"] = home
    for arguments in (["run", "SELECT 1"], ["quickstart", "--warehouse", str(tmp_path / "lake")]):
        done = subprocess.run(
            [sys.executable, "-m", "iceberg_compact_sql.cli", *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("Spark needs Java, and ")
        assert lines[0].endswith("Install a JDK 17 and set JAVA_HOME.")
        assert done.stdout == "" and list(tmp_path.iterdir()) == []


@pytest.fixture
def without_java(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command on a demo lake in a process that has no Java."""
    lake = tmp_path / "lake"
    lake.mkdir()
    with contextlib.closing(
        SqlCatalog("local", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=lake.as_uri())
    ) as catalog:
        make_demo_table(catalog, commits=6, rows_per_file=10)
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "TZ": "Asia/Tokyo"}

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "iceberg_compact_sql.cli", *arguments, "--warehouse", str(lake)]
        return subprocess.run(
            command, env={**environment, **more}, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


def test_work_that_needs_no_spark_needs_no_java(
    without_java: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    before = json.loads(without_java("score-partitions", TABLE, "--format", "json").stdout)
    assert sum(row["data_files"] for row in before) == 24
    in_utc = without_java("score-partitions", TABLE, "--format", "json", "--conf", "spark.sql.session.timeZone=UTC")
    tokyo, utc = (row[0]["last_written_at"] for row in (before, json.loads(in_utc.stdout)))
    assert dt.datetime.fromisoformat(tokyo) - dt.datetime.fromisoformat(utc) == dt.timedelta(hours=9)
    refused = without_java("compact-table", TABLE, "--target", "1MB", "--conf", f"{SETTING_PREFIX}driver_bytes=0")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Spark needs Java" in refused.stderr and "Traceback" not in refused.stderr
    statement = f"CALL compact_table('{TABLE}', target => '1MB'); CALL expire_snapshots('{TABLE}', older_than => '0s')"
    done = without_java("run", statement, "--format", "csv")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("24,4,") and lines[3].startswith("24,")
    after = json.loads(without_java("tables", "--format", "json").stdout)
    assert [row["data_files"] for row in after] == [4]


def test_settings_of_spark_defaults_are_read_without_spark(
    without_java: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "# catalogs\nspark.sql.session.timeZone   Europe/Berlin\n"
        f"spark.sql.catalog.near=org.apache.iceberg.spark.SparkCatalog\nspark.sql.catalog.near.type: jdbc\n"
        f"spark.sql.catalog.near.uri jdbc:sqlite:{tmp_path / 'near.db'}\nspark.sql.catalog.near.warehouse {tmp_path}\n"
    )
    done = without_java("tables", "near.*", SPARK_CONF_DIR=str(conf))
    assert done.returncode == 1
    assert "catalog 'near': there is no SQLite file" in done.stderr


def test_results_and_help_fit_80_columns(without_java: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    for arguments in (["score-partitions", TABLE], ["compact-table", TABLE, "--dry-run"], ["compact-table", "--help"]):
        shown = without_java(*arguments).stdout
        assert shown and max(map(len, shown.splitlines())) <= 80
        assert "\x1b[" not in shown


def test_the_tour_takes_only_a_folder_of_its_own(tmp_path: Path) -> None:
    new = tmp_path / "new"
    prepare_folder(new)
    (new / "catalog.db").touch()
    prepare_folder(new)
    assert not (new / "catalog.db").exists()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "precious").touch()
    for warehouse in (foreign, foreign / "precious"):
        done = CliRunner().invoke(main, ["quickstart", "--warehouse", str(warehouse)])
        assert done.exit_code == 1
        assert "is not empty and is not a demo lake" in done.output and "--warehouse DIR" in done.output
    assert (foreign / "precious").exists()


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("a#b/lake", "has a '#' or '?' in its path"),
        ("a?b", "has a '#' or '?' in its path"),
        ("file/lake", "cannot be created: Not a directory"),
    ],
)
def test_the_tour_needs_a_folder_that_can_hold_tables(tmp_path: Path, folder: str, message: str) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["quickstart", "--warehouse", str(tmp_path / folder)])
    assert done.exit_code == 1
    assert done.output.startswith("quickstart: the warehouse") and message in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
