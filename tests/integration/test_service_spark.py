"""The service on a standalone cluster and on a Connect server: Spark dies, health says so, and jobs continue."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.cluster import QUICK_JAVA, connect_server, standalone_cluster
from tests.support.oracle import rows
from tests.support.plain import PlainLake
from tests.support.service import ServiceProcess
from tests.unit.actions.test_compact_faults import fragmented

# Every rewrite is a Spark task: a job without Spark could not succeed.
ON_SPARK = {"spark.iceberg_compact_sql.driver_bytes": "0"}
REWRITE = {"table": "db.t", "strategy": "full", "options": {"target": "1MB"}}
LITTLE = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
}


@pytest.mark.soak
def test_on_a_standalone_cluster_a_dead_driver_is_started_again(plain_lake: PlainLake, tmp_path: Path) -> None:
    before = rows(fragmented(plain_lake))
    with standalone_cluster(tmp_path, workers=1) as cluster:
        spark = {"master": cluster.url, "conf": {**plain_lake.conf, **ON_SPARK, **LITTLE}}
        with ServiceProcess(tmp_path, {"spark": spark, "state": state_in(tmp_path)}, with_spark=True) as service:
            # HTTP answers before Spark does, and a job waits for it.
            first = service.post("/api/v1/compact", REWRITE)["job_id"]
            ended(service, first)
            assert cluster.executors(), "the rewrite ran on the cluster"
            (driver,) = [child for child in psutil.Process(service.process.pid).children() if "java" in child.name()]
            driver.kill()
            until(lambda: service.get("/health")["checks"]["spark"] == "failing")
            second = service.post("/api/v1/compact", REWRITE)["job_id"]
            ended(service, second)
            assert service.get("/health")["status"] == "ok"
    assert rows(plain_lake.load("db.t")) == before


def test_on_a_connect_server_that_dies_and_comes_back_jobs_continue(plain_lake: PlainLake, tmp_path: Path) -> None:
    before = rows(fragmented(plain_lake))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spark = {"connect": f"sc://127.0.0.1:{port}", "conf": {**plain_lake.conf, **ON_SPARK}}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(connect_server(tmp_path, port))
        document = {"spark": spark, "state": state_in(tmp_path)}
        service = stack.enter_context(ServiceProcess(tmp_path, document, with_spark=True))
        ended(service, service.post("/api/v1/compact", REWRITE)["job_id"])
        os.killpg(server, signal.SIGKILL)
        until(lambda: service.get("/health")["checks"]["spark"] == "failing")
        waiting = service.post("/api/v1/compact", REWRITE)["job_id"]
        stack.enter_context(connect_server(tmp_path, port))
        ended(service, waiting)
        assert service.get("/health")["status"] == "ok"
    assert rows(plain_lake.load("db.t")) == before


def state_in(folder: Path) -> dict[str, str]:
    return {"folder": str(folder / "state")}


def ended(service: ServiceProcess, job_id: str) -> dict[str, Any]:
    """The job when it has succeeded on rewritten files."""
    until(lambda: service.get(f"/api/v1/jobs/{job_id}")["finished_at"] is not None)
    job: dict[str, Any] = service.get(f"/api/v1/jobs/{job_id}")
    assert (job["status"], job["outcome"]) == ("success", "changed"), job["error"]
    return job


def until(reached: Callable[[], bool]) -> None:
    for _ in range(1200):
        if reached():
            return
        time.sleep(0.1)
    raise AssertionError("it does not come to that")
