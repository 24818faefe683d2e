"""The service under load on loopback: `python -m tests.benchmarks.service_load [--spark] [--json FILE]`.

Measures submits over many tables, reads while a compaction uses the cores, the list of a large store, a submit on a
table of many files, memory, and a cancel. Bounded in count and time. Every accepted job must reach one final state.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import pyarrow as pa

from iceberg_compact_sql.service.store import JOBS, Store, columns_of
from tests.benchmarks.planning import fill_big_table
from tests.support.plain import PlainLake, open_plain
from tests.support.service import ServiceProcess

_CLIENTS = 8
_READS = ("/api/v1/jobs?limit=50", "/health", "/api/v1/tables", "/metrics")
_FINAL = ("success", "failed", "cancelled", "interrupted")


@dataclass(frozen=True)
class Load:
    """How much: the defaults are the figures of the handbook."""

    tables: int = 100
    submits: int = 500
    stored_jobs: int = 100_000
    files: int = 10_000
    busy_rows: int = 3_000_000
    read_seconds: float = 10.0


SHORT = Load(tables=6, submits=40, stored_jobs=500, files=200, busy_rows=200_000, read_seconds=1.0)


class Client:
    """One connection that stays open; `ask` gives status, answer and seconds."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes, float]:
        begun = time.perf_counter()
        headers = {} if body is None else {"Content-Type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, content, time.perf_counter() - begun


def measure(folder: Path, load: Load, *, with_spark: bool) -> dict[str, Any]:
    """Start a service, load it, and return the figures; raises AssertionError when an answer or a job is wrong."""
    with open_plain(folder / "plain") as lake:
        _make_tables(lake, load)
        _fill_store(folder / "state", load.stored_jobs)
        spark = {"conf": lake.conf, **({"master": "local[2]"} if with_spark else {})}
        document = {"spark": spark, "state": {"folder": str(folder / "state")}}
        begun = time.perf_counter()
        with ServiceProcess(folder, document, with_spark=with_spark) as service:
            figures: dict[str, Any] = {"http_seconds": round(time.perf_counter() - begun, 2)}
            client = Client(service.url)
            _until(lambda: client.ask("GET", "/health")[0] == 200)
            figures["ready_seconds"] = round(time.perf_counter() - begun, 2)
            figures["list_ms"] = _times([client.ask("GET", "/api/v1/jobs?limit=50")[2] for _ in range(50)])
            # A dry run: the files of this table exist in its metadata only.
            options = ({"dry_run": True, "max_files": 100 + number} for number in range(5))
            submits = [client.ask("POST", "/api/v1/compact", {"table": "db.big", "options": o})[2] for o in options]
            figures["submit_many_files_ms"] = _times(submits)
            figures |= _reads_beside_a_compaction(service, load)
            figures |= _submits(service, load)
            process = psutil.Process(service.process.pid)
            figures["python_mb"] = process.memory_info().rss // 1024**2
    return figures


def _make_tables(lake: PlainLake, load: Load) -> None:
    for number in range(load.tables):
        lake.create(f"db.t{number}", *(pa.table({"id": pa.array([part], pa.int64())}) for part in range(2)))
    generator = np.random.default_rng(0)
    part = load.busy_rows // 10
    batches = (
        pa.table({"id": generator.integers(0, 2**60, part), "text": generator.integers(0, 2**60, part).astype(str)})
        for _ in range(10)
    )
    lake.create("db.busy", *batches)
    fill_big_table(lake.catalog, load.files, max(1, load.files // 100))


def _fill_store(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    store = Store(f"sqlite:///{folder / 'state.db'}")
    now_ms = int(time.time() * 1000)
    result = [{"rewritten_data_files_count": 20, "added_data_files_count": 1, "snapshot_id": 1}]
    finished = [
        columns_of(
            job_id=str(uuid.uuid4()),
            status="success",
            procedure="compact_table",
            table_name=f"plain.db.t{number % 100}",
            arguments={"target": "1MB"},
            fingerprint=f"{number:064d}",
            source="api:local",
            created_ms=now_ms - count + number,
            started_ms=now_ms,
            finished_ms=now_ms,
            result=result,
            outcome="changed",
        )
        for number in range(count)
    ]
    with store.transaction() as connection:
        for first in range(0, count, 5000):
            connection.execute(JOBS.insert(), finished[first : first + 5000])
    store.close()


def _reads_beside_a_compaction(service: ServiceProcess, load: Load) -> dict[str, Any]:
    """Reads of several clients while a large table is rewritten; then the job is cancelled."""
    client = Client(service.url)
    body = {"table": "db.busy", "options": {"rewrite_all": True, "copy": "never", "target": "4MB"}}
    status, content, _ = client.ask("POST", "/api/v1/compact", body)
    assert status == 202, content
    job_id = json.loads(content)["job_id"]
    path = f"/api/v1/jobs/{job_id}"
    _until(lambda: (json.loads(client.ask("GET", path)[1])["progress"] or {}).get("step") == "rewriting")
    ended = threading.Event()
    until = time.perf_counter() + load.read_seconds

    def read(number: int) -> list[float]:
        own, taken = Client(service.url), list[float]()
        while time.perf_counter() < until and not ended.is_set():
            status, content, seconds = own.ask("GET", (*_READS, path)[(number + len(taken)) % 5])
            assert status == 200, content
            taken.append(seconds)
            if (number + len(taken)) % 5 == 0 and json.loads(content).get("finished_at"):
                ended.set()
        return taken

    begun = time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        taken = [seconds for times in pool.map(read, range(_CLIENTS)) for seconds in times]
    elapsed = time.perf_counter() - begun
    asked = time.perf_counter()
    status = client.ask("POST", f"{path}/cancel", {})[0]
    _until(lambda: json.loads(client.ask("GET", path)[1])["status"] in _FINAL, pause=0.01)
    cancelled = json.loads(client.ask("GET", path)[1])["status"]
    assert (status, cancelled) in ((202, "cancelled"), (202, "success"), (409, "success"))
    return {
        "reads_per_second": round(len(taken) / elapsed),
        "read_ms": _times(taken),
        "cancel_seconds": round(time.perf_counter() - asked, 2) if cancelled == "cancelled" else None,
    }


def _submits(service: ServiceProcess, load: Load) -> dict[str, Any]:
    """Submits of several clients over all tables; waits until every job is over."""

    def submit(numbers: range) -> list[tuple[int, bytes, float]]:
        own = Client(service.url)
        options = {"target": "1MB", "min_input_files": 2}
        return [
            own.ask(
                "POST",
                "/api/v1/compact",
                {"table": f"db.t{n % load.tables}", "options": {**options, "max_files": 100 + n}},
            )
            for n in numbers
        ]

    begun = time.perf_counter()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        shares = [range(first, load.submits, _CLIENTS) for first in range(_CLIENTS)]
        answers = [answer for share in pool.map(submit, shares) for answer in share]
    elapsed = time.perf_counter() - begun
    codes = Counter(status for status, _, _ in answers)
    assert set(codes) <= {200, 202}, codes
    accepted = {json.loads(content)["job_id"] for _, content, _ in answers}
    client = Client(service.url)
    waiting = "/api/v1/jobs?status=queued&status=running&limit=1"
    _until(lambda: not json.loads(client.ask("GET", waiting)[1])["jobs"], seconds=600)
    states = Counter(json.loads(client.ask("GET", f"/api/v1/jobs/{job_id}")[1])["status"] for job_id in accepted)
    assert set(states) == {"success"} and len(accepted) == load.submits, states
    return {
        "submits_per_second": round(len(answers) / elapsed, 1),
        "submit_ms": _times([seconds for _, _, seconds in answers]),
        "jobs_per_second": round(len(accepted) / (time.perf_counter() - begun), 1),
    }


def _times(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"median": round(statistics.median(ordered) * 1000, 1), "p99": round(last * 1000, 1), "count": len(ordered)}


def _until(reached: Callable[[], bool], *, seconds: float = 120, pause: float = 0.05) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until, "it does not come to that"
        time.sleep(pause)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", action="store_true", help="the real command, with Spark in it")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="service-load-", ignore_cleanup_errors=True) as scratch:
        found = measure(Path(scratch), SHORT if given.short else Load(), with_spark=given.spark)
    text = json.dumps(found, indent=2)
    print(text)
    if given.json is not None:
        given.json.write_text(text)
