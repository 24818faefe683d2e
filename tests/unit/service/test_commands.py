"""`jobs` and `submit` against a real service on a real port, in the process of the test and without Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from click.testing import CliRunner, Result

from iceberg_compact_sql.cli import main
from iceberg_compact_sql.service.configuration.config import service_config
from iceberg_compact_sql.service.http.app import create_app
from iceberg_compact_sql.service.process import Service
from tests.support.oracle import rows
from tests.support.plain import PlainLake
from tests.unit.actions.test_compact_faults import fragmented

TOKEN = "command-token-0123456789"
SUBMIT = ("submit", "db.t", "--option", "target=1MB", "--option", "min_input_files=2")
Run = Callable[..., Result]


@pytest.fixture
def service(plain_lake: PlainLake, tmp_path: Path) -> Iterator[Service]:
    fragmented(plain_lake)
    document = {
        "spark": {"conf": plain_lake.conf},
        "state": {"folder": str(tmp_path / "state")},
        "server": {"token": TOKEN},
    }
    opened = Service(service_config(document), with_spark=False)
    opened.open()
    yield opened
    opened.close()


@pytest.fixture
def run(service: Service) -> Iterator[Run]:
    server = uvicorn.Server(uvicorn.Config(create_app(service), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    environment = {"ICEBERG_COMPACT_SQL_URL": f"http://127.0.0.1:{port}", "ICEBERG_COMPACT_SQL_TOKEN": TOKEN}

    def invoke(*arguments: str, **changes: Any) -> Result:
        return CliRunner().invoke(main, list(arguments), env={**environment, **changes})

    yield invoke
    server.should_exit = True
    thread.join(30)


def test_submit_follow_show_and_list(run: Run, plain_lake: PlainLake) -> None:
    before = rows(plain_lake.load("db.t"))
    waited = run(*SUBMIT, "--wait")
    assert waited.exit_code == 0, waited.output
    job_id, end = waited.stdout.split("\n", 1)
    assert end == "success: changed\n" and rows(plain_lake.load("db.t")) == before
    followed = run("jobs", "follow", job_id)
    assert (followed.exit_code, followed.stdout) == (0, "success: changed\n")
    shown = json.loads(run("jobs", "show", job_id).stdout)
    assert (shown["job_id"], shown["table"], shown["source"]) == (job_id, "plain.db.t", "api:token")
    listed = run("jobs", "list")
    assert listed.stdout == f"{job_id}  success      100%  compact_table  plain.db.t\n"
    as_json = run("jobs", "list", "--format", "json", "--status", "success", "--table", "plain.db.t", "--limit", "1")
    assert [job["job_id"] for job in json.loads(as_json.stdout)] == [job_id]
    assert run("jobs", "list", "--status", "queued", "--status", "failed").stdout == ""


def test_cancel_of_a_running_job_and_of_one_that_is_over(run: Run, service: Service, plain_lake: PlainLake) -> None:
    head = plain_lake.load("db.t").metadata.current_snapshot_id
    held, claimed = threading.Event(), threading.Event()
    original = service.runner._context_of

    def hold(observer: Any) -> Any:
        claimed.set()
        assert held.wait(60)
        return original(observer)

    # Held between claim and work, so that the cancel certainly comes while it runs.
    service.runner._context_of = hold
    try:
        job_id = run(*SUBMIT).stdout.strip()
        assert claimed.wait(60)
        assert run("jobs", "cancel", job_id).stdout == "cancelling\n"
    finally:
        held.set()
    followed = run("jobs", "follow", job_id)
    assert followed.exit_code == 1 and followed.stderr.startswith("cancelled: compact_table: ")
    over = run("jobs", "cancel", job_id)
    assert (over.exit_code, over.stderr) == (1, f"job {job_id} is over: its status is cancelled (HTTP 409)\n")
    assert plain_lake.load("db.t").metadata.current_snapshot_id == head


def test_what_is_wrong_is_one_sentence_and_an_exit_code(run: Run) -> None:
    failures = [
        (run("submit", "db.none"), 1, "there is no table 'db.none'"),
        (run("submit", "db.t", "--option", "targt=1"), 1, "unknown argument 'targt'. Did you mean 'target'?"),
        (run("submit", "db.t", "--option", "target"), 2, "--option takes key=value, not 'target'"),
        (run("submit", "db.t", "--strategy", "ful"), 1, "Did you mean 'full'?"),
        (run("jobs", "show", "none"), 1, "there is no job 'none' (HTTP 404)"),
        (run("jobs", "list", ICEBERG_COMPACT_SQL_TOKEN="wrong-token-0123456789"), 1, "(HTTP 401)"),
        (run("jobs", "list", "--url", "http://127.0.0.1:9"), 1, "the service at http://127.0.0.1:9 does not answer"),
    ]
    for failed, code, sentence in failures:
        assert (failed.exit_code, sentence in failed.stderr, failed.stdout) == (code, True, ""), failed.output
        assert TOKEN not in failed.output and "Traceback" not in failed.output
