"""The recipes in sql_examples/deploy: parsed, rendered, and their commands executed on a real table."""

from __future__ import annotations

import configparser
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import yaml
from croniter import croniter

from iceberg_compact_sql.flat_command.work import Flags, plan_work
from tests.support.plain import PlainLake
from tests.unit.service.test_http import Serve, serve

__all__ = ["serve"]

RECIPES = Path(__file__).parents[2] / "sql_examples" / "deploy"
CONFIG = "/etc/iceberg-compact/config.yaml"


class Recorder:
    """Stands in for the classes of a scheduler that is not installed: keeps what a recipe gives to them."""

    made: list[tuple[str, dict[str, Any]]]

    def __init__(self) -> None:
        self.made = []

    def kind(self, name: str) -> Callable[..., Any]:
        class Made:
            def __init__(made, *arguments: Any, **values: Any) -> None:
                self.made.append((name, values))
                made.task_id = values.get("task_id", "")

            def __rshift__(made, following: Any) -> Any:
                return following

            def __enter__(made) -> Any:
                return made

            def __exit__(made, *error: object) -> None:
                return None

        return Made

    def values(self, name: str) -> list[dict[str, Any]]:
        return [values for kind, values in self.made if kind == name]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, dict[str, dict[str, Any]]], ModuleType]]:
    """Import a recipe with stand-ins for the modules of its scheduler."""

    def load_recipe(name: str, modules: dict[str, dict[str, Any]]) -> ModuleType:
        for path, contents in modules.items():
            parts = path.split(".")
            for depth in range(1, len(parts)):
                parent = ".".join(parts[:depth])
                if parent not in sys.modules:
                    monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
            module = ModuleType(path)
            vars(module).update(contents)
            monkeypatch.setitem(sys.modules, path, module)
        spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
        assert spec is not None and spec.loader is not None
        recipe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(recipe)
        return recipe

    yield load_recipe


@pytest.fixture
def place(plain_lake: PlainLake, tmp_path: Path) -> Path:
    """A folder with the configuration of a real table `db.events`, and with the command for the PATH."""
    plain_lake.create("db.events", *(pa.table({"id": pa.array([number], pa.int64())}) for number in range(6)))
    (tmp_path / "config.yaml").write_text(
        f"catalog: {{name: plain, type: sql, uri: 'sqlite:///{plain_lake.folder}/catalog.db'}}\n"
        "tables: [{name: db.events}]\n"
    )
    program = tmp_path / "bin" / "iceberg-compact"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m iceberg_compact_sql.flat_command.command "$@"\n')
    program.chmod(0o755)
    return tmp_path


def execute(command: str, place: Path) -> list[dict[str, Any]]:
    """Run a recipe's command as a shell would, with the folder's files in place of those in /etc, /tmp and /var."""
    text = command.replace(CONFIG, str(place / "config.yaml")).replace("/var/log", str(place))
    text = text.replace("/tmp/iceberg-compact.lock", str(place / "lock"))
    environment = os.environ | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(text, shell=True, capture_output=True, text=True, env=environment, check=False)
    log = place / "iceberg-compact.log"
    output = done.stdout or (log.read_text() if log.exists() else "")
    assert done.returncode == 0, done.stderr + output
    return [json.loads(line) for line in output.splitlines()]


def test_cron(place: Path) -> None:
    (line,) = [line for line in (RECIPES / "crontab").read_text().splitlines() if not line.startswith("#")]
    *schedule, command = line.split(maxsplit=5)
    assert croniter.is_valid(" ".join(schedule))
    steps = execute(command, place)
    assert [step["step"] for step in steps] == ["compact", "expire", "orphans"]
    assert steps[0]["outcome"] == "done"


def test_systemd() -> None:
    service, timer = (configparser.ConfigParser(strict=False, interpolation=None) for _ in range(2))
    for parser in (service, timer):
        parser.optionxform = str  # type: ignore[assignment,method-assign]
    service.read_string((RECIPES / "iceberg-compact.service").read_text())
    timer.read_string((RECIPES / "iceberg-compact.timer").read_text())
    assert service["Service"]["Type"] == "oneshot"
    (cron_line,) = [line for line in (RECIPES / "crontab").read_text().splitlines() if not line.startswith("#")]
    # The same command as cron's, which is executed above.
    assert service["Service"]["ExecStart"] in cron_line
    assert re.fullmatch(r"\*-\*-\* \d\d:\d\d:\d\d", timer["Timer"]["OnCalendar"])
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_kubernetes() -> None:
    job = yaml.safe_load((RECIPES / "kubernetes-cronjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    spec = job["spec"]
    assert spec["concurrencyPolicy"] == "Forbid" and croniter.is_valid(spec["schedule"])
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never" and pod["securityContext"]["runAsNonRoot"]
    command = [*container["command"], *container["args"]]
    assert shlex.join(command) in (RECIPES / "crontab").read_text()
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {volume["name"] for volume in pod["volumes"]} == set(mounted)
    assert str(Path(CONFIG).parent) in mounted.values()


def test_airflow(load: Callable[..., ModuleType], place: Path) -> None:
    recorder = Recorder()
    recipe = load(
        "airflow_dag",
        {
            "airflow.providers.standard.operators.bash": {"BashOperator": recorder.kind("BashOperator")},
            "airflow.sdk": {"DAG": recorder.kind("DAG")},
        },
    )
    (dag,), operators = recorder.values("DAG"), recorder.values("BashOperator")
    assert croniter.is_valid(dag["schedule"]) and dag["max_active_runs"] == 1
    assert [operator["task_id"] for operator in operators] == ["compact_db_events", "compact_db_orders"]
    assert len(operators) == len(recipe.TABLES)
    assert execute(operators[0]["bash_command"], place)[0]["outcome"] == "done"


def test_airflow_with_a_service(
    load: Callable[..., ModuleType], serve: Serve, plain_lake: PlainLake, place: Path
) -> None:
    recorder = Recorder()
    recipe = load(
        "airflow_service_dag",
        {
            "airflow.providers.http.operators.http": {"HttpOperator": recorder.kind("HttpOperator")},
            "airflow.providers.http.sensors.http": {"HttpSensor": recorder.kind("HttpSensor")},
            "airflow.sdk": {"DAG": recorder.kind("DAG")},
        },
    )
    (dag,), sensors = recorder.values("DAG"), recorder.values("HttpSensor")
    assert croniter.is_valid(dag["schedule"]) and len(sensors) == len(recipe.TABLES)
    # A sensor with a check of its own does not defer.
    assert all(sensor["deferrable"] and "response_check" not in sensor for sensor in sensors)
    submit, check = recorder.values("HttpOperator")[:2]
    client = serve()
    # Nothing runs yet, so that the job is still waiting below.
    client.service.queue.claim = lambda: None  # type: ignore[attr-defined]
    taken = client.post(submit["endpoint"], content=submit["data"], headers=submit["headers"])
    assert taken.status_code == 202
    job_id = submit["response_filter"](taken)
    waiting, checked = (values["endpoint"].rpartition("/")[0] + f"/{job_id}" for values in (sensors[0], check))
    unfinished = client.get(waiting)
    assert unfinished.status_code == 404 and "its status is queued" in unfinished.json()["error"]["message"]
    client.post(f"/api/v1/jobs/{job_id}/cancel")
    assert client.get(waiting).status_code == 200
    with pytest.raises(RuntimeError, match="cancelled"):
        check["response_check"](client.get(checked))


def test_dagster(load: Callable[..., ModuleType], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    recipe = load(
        "dagster_job",
        {
            "dagster": {
                "Definitions": recorder.kind("Definitions"),
                "OpExecutionContext": object,
                "ScheduleDefinition": recorder.kind("ScheduleDefinition"),
                "job": lambda function: function,
                "op": lambda function: function,
            }
        },
    )
    (schedule,) = recorder.values("ScheduleDefinition")
    assert croniter.is_valid(schedule["cron_schedule"]) and schedule["job"] is recipe.iceberg_compact
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    recipe.CONFIG = str(place / "config.yaml")
    assert [step["outcome"] for step in recipe.maintain("db.events")] == ["done", "nothing to do"]
    with pytest.raises(RuntimeError, match=r"there is no table 'db\.gone'"):
        recipe.maintain("db.gone")


def test_both_shapes_of_the_configuration_are_read() -> None:
    work = plan_work(Flags(config=RECIPES / "config.yaml"), {"CATALOG_URI": "http://c:1"})
    assert [name for name, _ in work.tables] == ["db.events", "db.orders_*"]
    assert work.tables[1][1] == {"target": "512MB", "where": "day >= current_date - 7"}
    assert work.settings["spark.sql.catalog.lake.uri"] == "http://c:1" and work.dsn is None
    secrets = {"POSTGRES_DSN": "postgresql://pg/lake", "S3_ACCESS_KEY": "a", "S3_SECRET_KEY": "b"}
    other = plan_work(Flags(config=RECIPES / "deploy.yaml"), secrets)
    assert (other.tables, other.dsn) == ((("events", {}),), "postgresql://pg/lake")
    assert other.settings["spark.sql.catalog.default.s3.endpoint"] == "http://minio:9000"
