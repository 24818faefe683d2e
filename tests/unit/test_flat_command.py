"""`iceberg-compact`: the flat command for cron, with both shapes of its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click.testing
import pyarrow as pa
import pytest

from iceberg_compact_sql.flat_command.command import main
from iceberg_compact_sql.flat_command.work import Flags, plan_work
from tests.support.plain import PlainLake

GOES_INTO_SPARK = "spark.sql.catalog.default"


def make(lake: PlainLake, name: str = "db.t", files: int = 6) -> None:
    lake.create(name, *(pa.table({"id": pa.array([number], pa.int64())}) for number in range(files)))


def config(lake: PlainLake, folder: Path, more: str = "") -> Path:
    """A configuration of the first shape whose catalog is the lake."""
    path = folder / "config.yaml"
    path.write_text(
        f"catalog: {{name: plain, type: sql, uri: 'sqlite:///{lake.folder}/catalog.db', namespace: db}}\n{more}"
    )
    return path


def invoke(*arguments: object) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, [str(argument) for argument in arguments])


def lines(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    done = invoke(*arguments, "--format", "json")
    assert done.exit_code == code, done.output + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_compaction_always_and_the_rest_when_asked(plain_lake: PlainLake, tmp_path: Path) -> None:
    make(plain_lake)
    path = config(plain_lake, tmp_path)
    (line,) = lines("--config", path, "--table", "t")
    assert (line["step"], line["table"], line["outcome"]) == ("compact", "plain.db.t", "done")
    assert line["result"][0]["rewritten_data_files_count"] == 6 and line["elapsed_ms"] >= 0
    (again,) = lines("--config", path, "--table", "db.t")
    assert again["outcome"] == "nothing to do"
    assert len(plain_lake.load("db.t").snapshots()) == 7
    steps = lines("--config", path, "--table", "t", "--expire-snapshots", "--expire-older-than", "1ms", "--orphans")
    assert [(line["step"], line["outcome"]) for line in steps] == [
        ("compact", "nothing to do"),
        ("expire", "done"),
        ("orphans", "nothing to do"),
    ]
    assert len(plain_lake.load("db.t").snapshots()) == 1
    assert sorted(plain_lake.load("db.t").scan().to_arrow()["id"].to_pylist()) == list(range(6))


def test_a_dry_run_changes_nothing(plain_lake: PlainLake, tmp_path: Path) -> None:
    make(plain_lake)
    before = plain_lake.load("db.t").metadata_location
    files = sorted(tmp_path.rglob("*"))
    path = config(plain_lake, tmp_path)
    steps = lines("--config", path, "--table", "t", "--dry-run", "--expire-snapshots", "--expire-older-than", "1ms")
    assert [(line["step"], line["outcome"]) for line in steps] == [("compact", "planned"), ("expire", "planned")]
    assert steps[0]["result"][0]["action"] == "rewrite"
    assert plain_lake.load("db.t").metadata_location == before
    assert sorted(tmp_path.rglob("*")) == sorted([*files, path])


def test_the_defaults_of_the_flags() -> None:
    work = plan_work(Flags(table="db.t", expire=True, orphans=True))
    compact, expire, orphans = work.calls("db.t", {})
    assert compact.arguments == {"table": "db.t", "dry_run": False}
    assert {name: expire.arguments[name] for name in ("older_than", "retain_last", "keep_files")} == {
        "older_than": "168h",
        "retain_last": 1,
        "keep_files": False,
    }
    assert orphans.arguments["older_than"] == "72h"


def test_tables_of_the_file_with_their_options_and_a_failure_that_ends_one_table(
    plain_lake: PlainLake, tmp_path: Path
) -> None:
    for name in ("db.a1", "db.a2", "db.b"):
        make(plain_lake, name)
    more = (
        "compaction: {target_file_size: 64MB}\n"
        "tables:\n"
        "  - {name: db.gone}\n"
        "  - {name: 'db.a*', options: {partition_filter: 'id >= 0', target_file_size: 1MB}}\n"
        "  - {name: db.b, enabled: false}\n"
    )
    found = lines("--config", config(plain_lake, tmp_path, more), "--orphans", code=1)
    assert [(line["step"], line["table"], line["outcome"]) for line in found] == [
        ("compact", "plain.db.gone", "failed"),
        ("orphans", "plain.db.gone", "not run"),
        ("compact", "plain.db.a1", "done"),
        ("orphans", "plain.db.a1", "nothing to do"),
        ("compact", "plain.db.a2", "done"),
        ("orphans", "plain.db.a2", "nothing to do"),
    ]
    assert "there is no table 'db.gone'" in found[0]["error"]
    assert len(plain_lake.load("db.b").snapshots()) == 6


def test_flags_win_over_the_file(plain_lake: PlainLake, tmp_path: Path) -> None:
    more = "compaction: {target_file_size: 64MB, strategies: {full: {enabled: true}}}\ntables: [{name: db.t}]\n"
    path = config(plain_lake, tmp_path, more)
    work = plan_work(Flags(config=path, strategy="full", target_bytes=5, catalog_uri="sqlite:////elsewhere.db"))
    assert work.tables == (("db.t", {"rewrite_all": True, "target": 5}),)
    assert work.settings["spark.sql.catalog.plain.uri"] == "jdbc:sqlite:/elsewhere.db"
    assert plan_work(Flags(config=path)).tables == (("db.t", {"target": "64MB", "rewrite_all": True}),)


@pytest.mark.parametrize(
    ("uri", "settings"),
    [
        ("http://catalog:8181", {"type": "rest", "uri": "http://catalog:8181"}),
        ("thrift://metastore:9083", {"type": "hive", "uri": "thrift://metastore:9083"}),
        ("sqlite:////data/catalog.db", {"type": "jdbc", "uri": "jdbc:sqlite:/data/catalog.db"}),
        ("postgresql+psycopg://host/lake", {"type": "jdbc", "uri": "jdbc:postgresql://host/lake"}),
    ],
)
def test_a_catalog_by_its_address_alone(uri: str, settings: dict[str, str]) -> None:
    work = plan_work(Flags(table="db.t", catalog_uri=uri))
    for name, value in settings.items():
        assert work.settings[f"{GOES_INTO_SPARK}.{name}"] == value


DEPLOY = """
postgres: {dsn: 'postgresql://ice:${PG_PASSWORD}@pg/lake'}
iceberg: {warehouse: lake, lakekeeper_endpoint: 'http://lakekeeper:8181/catalog', namespace: db}
s3:
  {endpoint: 'minio:9000', region: eu, access_key: 'a$$k', secret_key: '${S3:-hidden-1}', use_ssl: false}
tables: [{name: events}]
"""


def test_the_other_shape(tmp_path: Path) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text(DEPLOY)
    work = plan_work(Flags(config=path), {"PG_PASSWORD": "geheim-1"})
    assert work.dsn == "postgresql://ice:geheim-1@pg/lake"
    assert work.tables == (("events", {}),)
    prefix = f"{GOES_INTO_SPARK}."
    found = {key.removeprefix(prefix): value for key, value in work.settings.items() if key.startswith(prefix)}
    assert found == {
        "type": "rest",
        "uri": "http://lakekeeper:8181/catalog",
        "warehouse": "lake",
        "default-namespace": "db",
        "s3.endpoint": "http://minio:9000",
        "s3.region": "eu",
        "s3.access-key-id": "a$k",
        "s3.secret-access-key": "hidden-1",
        "s3.path-style-access": "true",
    }
    assert "geheim-1" not in repr(work) and "hidden-1" not in repr(work)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tables: [{name: db.t, options: {targt: 1MB}}]", "tables[0].options.targt: unknown option. Did you mean"),
        ("tabels: []", "tabels: unknown key. Did you mean 'tables'?"),
        ("warehouse: a\nwarehouse: b", "the key 'warehouse' is given twice (line 2)"),
        ("warehouse: !!python/name:os.system x", "the YAML uses a tag, which is refused"),
        ("warehouse: ${NOWHERE_TO_BE_FOUND}", "warehouse: the environment variable NOWHERE_TO_BE_FOUND is not set"),
        ("- a", "the file holds no mapping"),
        ("a: [", "the YAML cannot be read"),
        ("compaction: {target_file_size: 5 apples}", "compaction"),
        ("tables: [{name: db.t, strategy: smal_files}]", "there is no strategy 'smal_files'"),
        ("iceberg: {warehouse: w}", "give exactly one of s3 and azure"),
        ("warehouse: lake", "give --table, or tables in the configuration"),
    ],
)
def test_faults_of_the_file_are_usage_errors(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    done = invoke("--config", path)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --table, or --config with tables"),
        (["--table", "t", "--strategy", "smal"], "there is no strategy 'smal'"),
        (["--table", "t", "--target-size-mb", "-1"], "--target-size-mb"),
        (["--table", "t", "--orphan-age", "soon"], "--orphan-age"),
        (["--table", "t", "--expire-retain-last", "0"], "--expire-retain-last"),
        (["--config", "/no/such.yaml"], "/no/such.yaml cannot be read: No such file or directory"),
        (["--tabel", "t"], "No such option"),
    ],
)
def test_wrong_flags(arguments: list[str], message: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == ""


def test_a_catalog_that_is_down_is_one_failed_step() -> None:
    (line,) = lines("--catalog-uri", "http://127.0.0.1:9", "--table", "db.t", code=1)
    assert line["outcome"] == "failed" and "catalog 'default' cannot be opened" in line["error"]


def test_lines_for_people(plain_lake: PlainLake, tmp_path: Path) -> None:
    make(plain_lake)
    path = config(plain_lake, tmp_path)
    done = invoke("--config", path, "--table", "t")
    assert done.stdout.startswith("compact plain.db.t: done: rewritten_data_files_count 6, added_data_files_count 1")
    assert invoke("--config", path, "--table", "t").stdout == "compact plain.db.t: nothing to do\n"


@pytest.mark.parametrize("strategy", ["small-files", "delete_files", "time_series", "full"])
def test_every_strategy_is_a_call_that_runs(plain_lake: PlainLake, tmp_path: Path, strategy: str) -> None:
    make(plain_lake)
    (line,) = lines("--config", config(plain_lake, tmp_path), "--table", "t", "--strategy", strategy, "--dry-run")
    assert line["outcome"] == ("nothing to do" if strategy == "time_series" else "planned")
