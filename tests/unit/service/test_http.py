"""The HTTP surface on a real service without Spark: requests, errors, tokens, guards, jobs to their end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from iceberg_compact_sql.service.configuration.config import service_config
from iceberg_compact_sql.service.http.app import create_app
from iceberg_compact_sql.service.process import Service
from tests.support.oracle import rows
from tests.support.plain import PlainLake
from tests.unit.actions.test_compact_faults import fragmented
from tests.unit.report.test_metrics import values

Serve = Callable[..., TestClient]
ADMIN, READER, TEAM = "admin-token-0123456789", "reader-token-012345678", "team-token-0123456789"


@pytest.fixture
def serve(plain_lake: PlainLake, tmp_path: Path) -> Iterator[Serve]:
    services: list[Service] = []

    def start(**document: Any) -> TestClient:
        document.setdefault("spark", {"conf": plain_lake.conf})
        document.setdefault("state", {"folder": str(tmp_path / "state")})
        service = Service(service_config(document), with_spark=False)
        service.open()
        services.append(service)
        client = TestClient(create_app(service), base_url="http://localhost", raise_server_exceptions=False)
        client.service = service  # type: ignore[attr-defined]
        return client

    yield start
    for service in services:
        service.close()


def ended(client: TestClient, job_id: str, **headers: Any) -> dict[str, Any]:
    for _ in range(600):
        job: dict[str, Any] = client.get(f"/api/v1/jobs/{job_id}", **headers).json()
        if job["finished_at"]:
            return job
        time.sleep(0.05)
    raise AssertionError(f"the job does not end: {job}")


COMPACT = {"table": "db.t", "options": {"target": "1MB", "min_input_files": 2}}


def test_a_compaction_from_submit_to_history(serve: Serve, plain_lake: PlainLake) -> None:
    before = rows(fragmented(plain_lake))
    client = serve()
    answer = client.post("/api/v1/compact", json=COMPACT)
    assert answer.status_code == 202
    accepted = answer.json()
    assert set(accepted) == {"job_id", "status", "created_at", "estimated_duration_seconds", "joined"}
    assert answer.headers["Location"] == f"/api/v1/jobs/{accepted['job_id']}"
    job = ended(client, accepted["job_id"])
    assert (job["status"], job["outcome"], job["source"]) == ("success", "changed", "api:local")
    assert job["table"] == "plain.db.t" and job["created_at"].endswith("Z")
    assert rows(plain_lake.load("db.t")) == before
    # A list takes the name that the request had, too.
    for listed in ("jobs?table=db.t", "jobs?table=plain.db.t"):
        assert client.get(f"/api/v1/{listed}").json()["jobs"][0]["job_id"] == job["job_id"]
    assert client.get("/api/v1/jobs?table=db.other").json()["jobs"] == []
    assert client.get("/api/v1/history?table=db.t").json()["history"][0]["job_id"] == job["job_id"]
    assert client.get("/api/v1/jobs?status=success&status=failed").json()["jobs"][0]["job_id"] == job["job_id"]
    assert client.get("/api/v1/jobs?status=queued").json() == {"jobs": [], "next_cursor": None}
    assert client.get(f"/api/v1/history/{job['job_id']}").json() == client.get(f"/api/v1/jobs/{job['job_id']}").json()
    over = client.post(f"/api/v1/jobs/{job['job_id']}/cancel")
    assert over.status_code == 409 and "is over" in over.json()["error"]["message"]
    text = client.get("/metrics").text
    counted = values(text)
    for _ in range(600):
        # The job is stored as ended just before it is counted.
        if counted["compaction_duration_seconds_count"]:
            break
        time.sleep(0.05)
        counted = values(client.get("/metrics").text)
    assert counted['compaction_jobs_total{status="success"}'] == counted["compaction_duration_seconds_count"] == 1
    assert counted["files_compacted_total"] == job["committed"]["removed_data_files"] > 1
    assert counted["bytes_read_total"] == job["result"][0]["rewritten_bytes_count"]
    assert counted["bytes_written_total"] == counted["file_size_bytes_sum"] == job["result"][0]["added_bytes_count"]
    assert counted["cost_dollars_total"] > 0 and counted["active_compactions"] == counted["pending_compactions"] == 0
    assert counted['last_compaction_timestamp{table="plain.db.t"}'] > 1.7e9
    assert 'route="/api/v1/compact"' in text
    audit = client.get("/api/v1/audit").json()["audit"]
    assert audit[0]["action"] == "submit" and audit[0]["who"] == "api:local"
    table = client.get("/api/v1/tables/db.t").json()
    assert table["table"] == "plain.db.t" and table["partitions"] and table["sizes"] and table["history"]
    scored = client.post("/api/v1/tables/score").json()
    assert scored["scored_at"] and scored["tables"][0]["table"] == "plain.db.t"
    assert client.get("/api/v1/tables?pattern=db.*").json()["tables"]
    # The score estimates compactions alone.
    reading = {"procedure": "advise", "table": "db.t"}
    assert client.post("/api/v1/jobs", json=reading).json()["estimated_duration_seconds"] is None
    assert client.post("/api/v1/compact", json=COMPACT).json()["estimated_duration_seconds"] is not None
    assert values(client.get("/api/v1/metrics").text)['table_data_files{table="plain.db.t"}'] > 0
    health = client.get("/health")
    assert health.status_code == 200 and health.json()["status"] == "ok"


WRONG = [
    ("/api/v1/compact", {"table": "db.t", "options": {"targt": 1}}, 400, "unknown argument 'targt'. Did you mean"),
    ("/api/v1/compact", {"table": "db.none"}, 404, "there is no table 'db.none'"),
    ("/api/v1/compact", {}, 422, "table: Field required"),
    ("/api/v1/compact", {"table": "db.t", "optionz": {}}, 422, "optionz: unknown field"),
    ("/api/v1/compact", {"table": "db.t", "strategy": "ful"}, 400, "there is no strategy 'ful'. Did you mean 'full'?"),
    ("/api/v1/compact", {"table": "db.t", "options": {"where": "nope = 1"}}, 400, "nope"),
    ("/api/v1/compact", {"table": "db.t", "options": {"branch": "b"}}, 400, "b"),
    ("/api/v1/jobs", {"procedure": "remove_orphans", "table": "db.t", "arguments": {"force": True}}, 403, "over HTTP"),
    ("/api/v1/jobs", {"call": "DROP TABLE db.t"}, 400, "only a CALL"),
    ("/api/v1/jobs", {"call": "CALL help()"}, 400, "there is no procedure"),
    ("/api/v1/jobs", {"procedure": "a", "call": "b"}, 422, "give either procedure"),
    ("/api/v1/events", {"table": "db.none"}, 404, "there is no table"),
    ("/api/v1/schedules/none/run", {}, 404, "there is no schedule 'none'"),
]


@pytest.fixture
def client(serve: Serve, plain_lake: PlainLake) -> TestClient:
    fragmented(plain_lake)
    return serve()


def test_wrong_requests_say_what_is_wrong(client: TestClient) -> None:
    for path, body, status, sentence in WRONG:
        answer = client.post(path, json=body)
        assert (answer.status_code, sentence in answer.json()["error"]["message"]) == (status, True), answer.text
        assert "code" in answer.json()["error"]
    assert client.get("/api/v1/jobs/none").status_code == 404
    assert client.get("/api/v1/jobs?cursor=x").status_code == 400
    assert client.get("/api/v1/jobs?limit=0").status_code == 422
    assert client.get("/nowhere").json()["error"]["code"] == "NOT_FOUND"
    assert client.delete("/api/v1/jobs").status_code == 405


def test_hosts_origins_bodies_and_types_are_checked(client: TestClient) -> None:
    assert client.get("/health", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/health", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/health", headers={"Origin": "null"}).status_code == 403
    assert client.get("/health", headers={"Origin": "http://localhost"}).status_code == 200
    form = client.post("/api/v1/compact", content="{}", headers={"Content-Type": "text/plain"})
    assert form.status_code == 415
    assert client.post("/api/v1/compact", content=b"{" + b" " * 70_000 + b"}").status_code == 413

    def parts() -> Iterator[bytes]:
        for _ in range(10):
            yield b" " * 10_000

    chunked = client.post("/api/v1/compact", content=parts(), headers={"Content-Type": "application/json"})
    assert chunked.status_code == 413
    cut = client.post("/api/v1/compact", content="{", headers={"Content-Type": "application/json"})
    assert cut.status_code == 422 and cut.json()["error"]["message"].startswith("the body is not JSON: ")
    headers = client.get("/health").headers
    assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Referrer-Policy"] == "same-origin"


def test_idempotency_keys_and_joining(serve: Serve, plain_lake: PlainLake) -> None:
    fragmented(plain_lake)
    client = serve()
    first = client.post("/api/v1/compact", json=COMPACT, headers={"Idempotency-Key": "k"}).json()["job_id"]
    ended(client, first)
    again = client.post("/api/v1/compact", json=COMPACT, headers={"Idempotency-Key": "k"})
    assert again.status_code == 200 and again.json()["job_id"] == first
    other = client.post("/api/v1/compact", json={"table": "db.t"}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 409


def test_tokens_have_roles_and_tables_and_never_show(serve: Serve, plain_lake: PlainLake, tmp_path: Path) -> None:
    fragmented(plain_lake)
    file = tmp_path / "tokens"
    file.write_text("ops:file-token-0123456789\n")
    client = serve(
        server={
            "token": ADMIN,
            "read_token": READER,
            "token_file": str(file),
            "tokens": [{"name": "team", "token": TEAM, "role": "operator", "tables": ["plain.team.*"]}],
        }
    )

    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    assert client.get("/health").status_code == 200
    for path in ("/api/v1/jobs", "/metrics", "/openapi.json", "/api/v1/audit"):
        assert client.get(path).status_code == 401
        assert client.get(path, headers=bearer("wrong-token-0123456789")).status_code == 401
    assert client.get("/api/v1/jobs", headers=bearer(READER)).status_code == 200
    assert client.post("/api/v1/compact", json=COMPACT, headers=bearer(READER)).status_code == 403
    hidden = client.post("/api/v1/compact", json=COMPACT, headers=bearer(TEAM))
    assert hidden.status_code == 404
    job_id = client.post("/api/v1/compact", json=COMPACT, headers=bearer(ADMIN)).json()["job_id"]
    assert client.get(f"/api/v1/jobs/{job_id}", headers=bearer(TEAM)).status_code == 404
    assert client.post(f"/api/v1/jobs/{job_id}/cancel", headers=bearer(TEAM)).status_code == 404
    assert client.get("/api/v1/jobs", headers=bearer(TEAM)).json()["jobs"] == []
    assert client.get("/api/v1/tables/db.t", headers=bearer(TEAM)).status_code == 404
    assert client.post("/api/v1/tables/score", headers=bearer(TEAM)).status_code == 403
    assert client.get("/api/v1/jobs", headers=bearer("file-token-0123456789")).status_code == 200
    file.write_text("ops:changed-token-0123456789\n")
    assert client.get("/api/v1/jobs", headers=bearer("file-token-0123456789")).status_code == 401
    assert client.get("/api/v1/jobs", headers=bearer("changed-token-0123456789")).status_code == 200
    ended(client, job_id, headers=bearer(ADMIN))
    state = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())
    for token in (ADMIN, READER, TEAM, "changed-token-0123456789"):
        assert token.encode() not in state
    leak = client.get(f"/api/v1/jobs/{TEAM}", headers=bearer(ADMIN))
    assert TEAM not in leak.text


def test_a_cancel_over_http_ends_the_job_and_changes_nothing(serve: Serve, plain_lake: PlainLake) -> None:
    table = fragmented(plain_lake)
    before, head = rows(table), table.metadata.current_snapshot_id
    client = serve()
    service: Service = client.service  # type: ignore[attr-defined]
    # Held between claim and work, so that the cancel certainly comes while it runs.
    original = service.runner._context_of
    seen: list[str] = []

    def slow(observer: Any) -> Any:
        job_id = next(iter(service.runner._running))
        seen.append(client.post(f"/api/v1/jobs/{job_id}/cancel").json()["status"])
        return original(observer)

    service.runner._context_of = slow
    job = ended(client, client.post("/api/v1/compact", json=COMPACT).json()["job_id"])
    assert seen == ["cancelling"] and job["status"] == "cancelled" and job["committed"]["commits"] == 0
    after = plain_lake.load("db.t")
    assert after.metadata.current_snapshot_id == head and rows(after) == before


def test_a_restart_reports_what_an_interrupted_job_committed(
    serve: Serve, plain_lake: PlainLake, tmp_path: Path
) -> None:
    fragmented(plain_lake)
    first = serve()
    service: Service = first.service  # type: ignore[attr-defined]
    job = ended(first, first.post("/api/v1/compact", json=COMPACT).json()["job_id"])
    with service.store.transaction() as connection:
        # As if the process had been killed between its commit and its last write.
        connection.exec_driver_sql("UPDATE ics_jobs SET status = 'running', finished_ms = NULL, committed = NULL")
    service.close()
    second = serve()
    again = second.get(f"/api/v1/jobs/{job['job_id']}").json()
    assert again["status"] == "interrupted"
    assert again["committed"]["snapshots"] == job["committed"]["snapshots"]
    assert 'compaction_jobs_total{status="interrupted"} 1.0' in second.get("/metrics").text


def test_schedules_run_pause_and_survive_a_restart(serve: Serve, plain_lake: PlainLake) -> None:
    fragmented(plain_lake)
    entry = {"name": "db.t", "schedule": "0 3 * * *", "options": {"target_file_size": "1MB", "min_input_files": 2}}
    client = serve(tables=[entry], scheduler={"time_zone": "Europe/Berlin"})
    [shown] = client.get("/api/v1/schedules").json()["schedules"]
    assert shown["name"] == "db.t" and shown["paused"] is False and shown["next"] and shown["last"] is None
    run = client.post("/api/v1/schedules/db.t/run")
    assert run.status_code == 202
    job = ended(client, run.json()["job_id"])
    assert job["source"] == "schedule:db.t" and job["outcome"] == "changed"
    paused = client.post("/api/v1/schedules/db.t/pause")
    assert paused.json()["paused"] is True and paused.json()["next"] is None
    client.service.close()  # type: ignore[attr-defined]
    client = serve(tables=[entry])
    assert client.get("/api/v1/schedules").json()["schedules"][0]["paused"] is True
    assert client.post("/api/v1/schedules/db.t/resume").json()["paused"] is False
    table = client.get("/api/v1/tables/plain.db.t").json()
    assert table["schedule"][0]["name"] == "db.t"


def test_the_openapi_document_names_every_operation(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids)) > 15
