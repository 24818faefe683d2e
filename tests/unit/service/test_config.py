"""The configuration: what a file means, its errors with their path, both shapes, strategies, and `--check`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iceberg_compact_sql.cli import main
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError
from iceberg_compact_sql.report.documents import read_topic
from iceberg_compact_sql.service.configuration.config import service_config
from iceberg_compact_sql.service.configuration.read_yaml import ConfigurationError, parse_yaml
from iceberg_compact_sql.service.configuration.settings import spark_settings
from iceberg_compact_sql.service.configuration.strategies import Strategy, strategy_arguments
from iceberg_compact_sql.service.schedules import Due, due, schedules_of
from iceberg_compact_sql.service.triggers import TriggerState, after_look, after_run, decide

DOCUMENTED = re.findall(r"```yaml\n(.*?)```", read_topic("service").text, re.DOTALL)[0]


def test_the_documented_example_is_a_configuration() -> None:
    config = service_config(parse_yaml(DOCUMENTED, {"ACCESS_KEY": "from-the-environment"}))
    settings = spark_settings(config)
    assert settings["spark.sql.catalog.lake.s3.access-key-id"] == "from-the-environment"
    assert settings["spark.sql.catalog.lake.default-namespace"] == "db"
    assert settings["spark.iceberg_compact_sql.catalog"] == "lake"
    events, orders, rest = schedules_of(config)
    assert events.arguments == {
        "target": "256MB",
        "idle": "1h",
        "job_order": "score-desc",
        "partial_progress": True,
        "where": "day >= current_date - 7",
    }
    assert orders.when is not None and orders.cron is None
    assert orders.arguments["min_file_size"] == "64MB" and orders.arguments["delete_file_threshold"] == 1
    assert (rest.name, rest.procedure, rest.time_zone) == ("*", "maintain_tables", "Europe/Berlin")


WRONG = [
    ("tables: [{name: t, options: {targt: 1}}]", "tables[0].options.targt: unknown option. Did you mean 'target'?"),
    ("tables: [{name: t, shedule: x}]", "tables[0].shedule: unknown key. Did you mean 'schedule'?"),
    ("servr: {}", "servr: unknown key. Did you mean 'server'?"),
    ("server: {port: 8080, port: 8081}", "the key 'port' is given twice (line 1)"),
    ("server: {token: short}", "server.token: a token of 5 characters is too short"),
    ("server: {max_body: lots}", "server.max_body:"),
    (
        "scheduler: {default_schedule: '61 * * * *'}",
        "scheduler.default_schedule: '61 * * * *' is not a cron expression",
    ),
    ("scheduler: {time_zone: Mars/Base}", "scheduler.time_zone:"),
    ("spark: {master: 'local[*]', connect: 'sc://x'}", "spark: give one of master and connect"),
    ("tables: [{name: t, strategy: fast}]", "there is no strategy 'fast'"),
    ("tables: [{name: t, when: {every: 5m}}]", "tables[0].when: give at least one threshold"),
    ("tables: [{name: t, window: late}]", "tables[0].window: 'late' is not a window: write 22:00-06:00"),
    ("catalog: {uri: '${NOT_THERE}'}", "catalog.uri: the environment variable NOT_THERE is not set"),
    ("x: !!python/object:os.system {}", "the YAML uses a tag, which is refused"),
    ("a: [", "the YAML cannot be read"),
    ("- a", "the file holds no mapping"),
    ("iceberg: {warehouse: w}", "give exactly one of s3 and azure"),
    ("iceberg: {warehuse: w}\ns3: {}", "iceberg.warehuse: unknown key"),
    ("server: {tokens: [{name: a}]}", "server.tokens[0]: give exactly one of token and token_hash"),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_faults_name_their_path(text: str, sentence: str) -> None:
    with pytest.raises(IcebergCompactError) as raised:
        service_config(parse_yaml(text, {}))
    assert sentence in str(raised.value)


def test_the_other_deployment_shape() -> None:
    text = """
postgres: {dsn: "postgresql://u:p@db:5432/state"}
iceberg: {warehouse: lake, lakekeeper_endpoint: "http://lakekeeper:8181/catalog", namespace: db}
s3: {endpoint: "minio:9000", region: eu, access_key: a, secret_key: b, use_ssl: false, url_style: path}
"""
    config = service_config(parse_yaml(text, {}))
    settings = spark_settings(config)
    assert config.state.url == "postgresql+psycopg://u:p@db:5432/state"
    assert settings["spark.sql.catalog.default.uri"] == "http://lakekeeper:8181/catalog"
    assert settings["spark.sql.catalog.default.s3.endpoint"] == "http://minio:9000"
    assert settings["spark.sql.catalog.default.s3.path-style-access"] == "true"
    sql = service_config({"catalog": {"type": "sql", "uri": "postgresql+psycopg2://u:p@h:1/d"}})
    assert spark_settings(sql)["spark.sql.catalog.default.uri"] == "jdbc:postgresql://h:1/d"


def test_strategies_as_arguments() -> None:
    configured = {"full": Strategy(enabled=False), "delete_files": Strategy(fragment_ratio_threshold=0.2)}
    assert strategy_arguments("delete-files", configured) == {"delete_file_threshold": 1, "min_fragment_ratio": 0.2}
    assert strategy_arguments("zorder", {}) == {"strategy": "zorder"}
    assert strategy_arguments("small_files", {}, target="1GB") == {"target": "1GB"}
    with pytest.raises(InvalidArgumentError, match="strategy 'full' is not enabled"):
        strategy_arguments("full", configured)
    both = {"small_files": Strategy(threshold="32MB"), "delete_files": Strategy(threshold=0.2)}
    assert strategy_arguments(None, both) == {"min_file_size": "32MB", "delete_file_threshold": 1}


HOUR = 3_600_000


def test_windows_catch_up_and_missed_runs() -> None:
    document: dict[str, Any] = {"tables": [{"name": "db.t", "schedule": "0 * * * *", "window": "22:00-06:00"}]}
    [schedule] = schedules_of(service_config(document))
    assert schedule.window_left_ms(12 * HOUR) == 0
    assert schedule.window_left_ms(23 * HOUR) == 7 * HOUR and schedule.window_left_ms(5 * HOUR) == HOUR
    assert schedule.run_arguments(5 * HOUR)["time_budget"] == "60m"
    states = {"db.t": {"last_ms": 0}}
    late = 5 * HOUR + 10 * 60_000
    assert due([schedule], states, late, catch_up=True) == [Due(schedule, 5)]
    assert due([schedule], states, late, catch_up=False) == [Due(schedule, 0)]
    assert due([schedule], states, HOUR + 1000, catch_up=False) == [Due(schedule, 1)]
    assert due([schedule], {"db.t": {"last_ms": 0, "paused": True}}, late, catch_up=True) == []
    assert due([schedule], {}, late, catch_up=True) == []


def test_triggers_wait_back_off_and_run_restless_tables_anyway() -> None:
    document: dict[str, Any] = {
        "tables": [{"name": "db.t", "when": {"small_files": 10, "min_interval": "30m", "quiet": "10m"}}]
    }
    when = service_config(document).tables[0].when
    assert when is not None
    minute = 60_000
    now = 1000 * minute
    few = TriggerState(figures={"small_files": 9})
    many = TriggerState(figures={"small_files": 10, "score": 0.1})
    assert not decide(when, few, now).run
    assert decide(when, many, now).reason == "small_files 10 >= 10" and decide(when, many, now).run
    busy = TriggerState(figures=many.figures, written_ms=now - minute)
    assert not decide(when, busy, now).run
    restless = after_look(busy, when, now)
    later = now + 6 * 30 * minute
    assert decide(when, TriggerState(**{**vars(restless), "written_ms": later - 1}), later).run
    ended = after_run(many, saved=False, now_ms=now)
    ended = TriggerState(**{**vars(ended), "figures": many.figures})
    assert ended.factor == 2 and not decide(when, ended, now + 59 * minute).run
    assert decide(when, ended, now + 60 * minute).run
    assert after_run(ended, saved=True, now_ms=now).factor == 1


def test_check_explains_and_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(DOCUMENTED + "server2: 1\n")
    failed = CliRunner().invoke(main, ["serve", "--config", str(file), "--check"])
    assert failed.exit_code == 2 and "server2: unknown key" in failed.output
    file.write_text(DOCUMENTED.replace("${ACCESS_KEY:-none}", "A-VERY-SECRET-KEY"))
    done = CliRunner().invoke(main, ["serve", "--config", str(file), "--port", "9000", "--check"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document["listen"] == "127.0.0.1:9000" and document["auth"] == "none"
    assert "A-VERY-SECRET-KEY" not in done.output and document["catalogs"]["lake"]["s3.access-key-id"] == "***"
    assert document["schedules"][0]["next"] is not None
    missing = CliRunner().invoke(main, ["serve", "--config", str(tmp_path / "none.yaml"), "--check"])
    assert missing.exit_code == 2 and "cannot be read" in missing.output
    assert CliRunner().invoke(main, ["serve"]).exit_code == 2


def test_a_fault_of_a_file_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError):
        service_config({"tables": 3})
