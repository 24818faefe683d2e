"""The service as other programs see it: an OTLP receiver, and a client that a generator makes of its description."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.plain import PlainLake
from tests.support.service import ServiceProcess
from tests.unit.actions.test_compact_faults import fragmented

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CLIENT = """
import sys
from service_client import Client
from service_client.api.default import compact, finished_job, health, list_jobs, show_job
from service_client.models import CompactBody, CompactBodyOptions
client = Client(base_url=sys.argv[1])
body = CompactBody(table="db.t", options=CompactBodyOptions.from_dict({"target": "1MB", "min_input_files": 2}))
accepted = compact.sync(client=client, body=body)
while finished_job.sync_detailed(accepted.job_id, client=client).status_code != 200:
    pass
job = show_job.sync(accepted.job_id, client=client)
assert job["status"] == "success" and job["outcome"] == "changed", job.to_dict()
assert list_jobs.sync(client=client)["jobs"][0]["job_id"] == accepted.job_id
missing = compact.sync(client=client, body=CompactBody(table="db.none"))
assert "there is no table" in missing.error.message
print(health.sync_detailed(client=client).status_code)
"""


class Receiver:
    """Takes spans as an OTLP collector does: protobuf over HTTP."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    names = {entry.key: entry.value.string_value for entry in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        spans.extend((names["service.name"], span) for span in scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    threading.Thread(target=receiver.server.serve_forever, daemon=True).start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


def test_spans_of_a_job_arrive_at_an_otlp_receiver(
    plain_lake: PlainLake, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragmented(plain_lake)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    document = {
        "spark": {"conf": plain_lake.conf},
        "state": {"folder": str(tmp_path / "state")},
        "tracing": {"otlp_endpoint": receiver.url},
    }
    with ServiceProcess(tmp_path, document) as service:
        body: dict[str, Any] = {"table": "db.t", "options": {"target": "1MB", "min_input_files": 2}}
        answer = requests.post(
            f"{service.url}/api/v1/compact", json=body, headers={"traceparent": PARENT}, timeout=60
        ).json()
        until(lambda: "compact_table" in {span.name for _, span in receiver.spans})
    assert {name for name, _ in receiver.spans} == {"iceberg-compact-sql"}
    spans = {span.name: span for _, span in receiver.spans if span.trace_id.hex() in PARENT}
    # Versions of FastAPI with spans of their own add those of the request.
    assert {"compact_table", "planning", "execution", "group", "commit"} <= set(spans)
    own = spans["compact_table"]
    values = {entry.key: entry.value.string_value for entry in own.attributes}
    assert values["job_id"] == answer["job_id"] and values["table"].endswith("db.t")
    assert f"{own.trace_id.hex()}-{own.parent_span_id.hex()}" in PARENT
    for name in ("planning", "execution", "commit"):
        assert spans[name].parent_span_id == own.span_id


def test_a_generated_client_submits_waits_and_reads_errors(plain_lake: PlainLake, tmp_path: Path) -> None:
    fragmented(plain_lake)
    document = {"spark": {"conf": plain_lake.conf}, "state": {"folder": str(tmp_path / "state")}}
    with ServiceProcess(tmp_path, document) as service:
        described = tmp_path / "openapi.json"
        described.write_text(json.dumps(service.get("/openapi.json")))
        command = ["generate", "--path", str(described), "--meta", "none", "--fail-on-warning"]
        made = tmp_path / "service_client"
        generated = run("openapi_python_client", *command, "--output-path", str(made), folder=tmp_path)
        assert "warning" not in generated.lower(), generated
        script = tmp_path / "use_it.py"
        script.write_text(CLIENT)
        done = subprocess.run(
            [sys.executable, str(script), service.url], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout.strip()) == (0, "200"), done.stderr


def run(module: str, *arguments: str, folder: Path) -> str:
    """The output of a module's command; fails with it."""
    command = [sys.executable, "-m", module, *arguments]
    # The generator formats its code with ruff, which it looks for on the PATH.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def until(reached: Callable[[], bool]) -> None:
    for _ in range(600):
        if reached():
            return
        time.sleep(0.05)
    raise AssertionError("it does not come to that")
