"""Two services on one PostgreSQL database: one leads, the other waits and takes over when the leader is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.support.oracle import rows
from tests.support.plain import PlainLake
from tests.support.postgres import PostgresServer
from tests.support.service import ServiceProcess
from tests.unit.actions.test_compact_faults import fragmented


def test_a_standby_takes_over_when_the_leader_is_killed(
    plain_lake: PlainLake, postgres: PostgresServer, tmp_path: Path
) -> None:
    before = rows(fragmented(plain_lake))
    url = postgres.url("postgresql+psycopg")
    document = {"spark": {"conf": plain_lake.conf}, "state": {"url": url, "folder": str(tmp_path / "state")}}
    with ServiceProcess(tmp_path, document) as leader, ServiceProcess(tmp_path, document) as standby:
        _until(lambda: leader.get("/health")["status"] == "ok")
        assert standby.get("/health")["checks"]["lease"] == "standby"
        refused = standby.post("/api/v1/compact", {"table": "db.t"})
        assert "standby" in refused["error"]["message"]
        leader.kill()
        _until(lambda: standby.get("/health")["status"] == "ok")
        job_id = standby.post("/api/v1/compact", {"table": "db.t", "options": {"min_input_files": 2}})["job_id"]
        _until(lambda: standby.get(f"/api/v1/jobs/{job_id}")["status"] == "success")
    assert rows(plain_lake.load("db.t")) == before


def _until(reached: Callable[[], bool]) -> None:
    for _ in range(600):
        if reached():
            return
        time.sleep(0.1)
    raise AssertionError("it does not come to that")
