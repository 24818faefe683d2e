"""Jobs of a service that is killed at random: `python -m tests.soak.service --seconds 600 [--spark]`.

Writers append while jobs are submitted. The service is ended with kill -9, with `--spark` its JVM too. Afterwards every
acknowledged job has exactly one final state, every snapshot of ours belongs to the job that reports it, and every
acknowledged row is in its table once.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import requests
from pyiceberg.table import Table

from tests.support.oracle import assert_readable, rows
from tests.support.plain import PlainLake, open_plain
from tests.support.service import ServiceProcess

FINAL = ("success", "failed", "cancelled", "interrupted")
_TABLES = ("db.a", "db.b", "db.c")
_LONGEST_WAIT_SECONDS = 300


class Soak:
    """One lake, one state, and everything that was acknowledged."""

    def __init__(self, folder: Path, lake: PlainLake, seed: int, *, with_spark: bool) -> None:
        self.folder, self.lake, self.with_spark = folder, lake, with_spark
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.acknowledged: set[str] = set()
        self.expected: dict[str, Counter[tuple[Any, ...]]] = {}
        for name in _TABLES:
            lake.create(name, _batch(0))
            self.expected[name] = _counted(lake.load(name))
        # Every rewrite is a Spark task where there is Spark.
        conf = {**lake.conf, **({"spark.iceberg_compact_sql.driver_bytes": "0"} if with_spark else {})}
        spark = {"conf": conf, **({"master": "local[2]"} if with_spark else {})}
        self.document = {
            "spark": spark,
            "state": {"folder": str(folder / "state")},
            "compaction": {"max_parallelism": 2},
        }

    def start(self) -> ServiceProcess:
        return ServiceProcess(self.folder, self.document, with_spark=self.with_spark)

    def round(self, seconds: float) -> None:
        """Write and submit for some time, then kill the service at a random moment."""
        service = self.start()
        try:
            until = time.monotonic() + seconds
            while True:
                self._append(self.dice.choice(_TABLES))
                self._submit(service)
                if self.with_spark and self.dice.random() < 0.1:
                    self._kill_java(service)
                left = until - time.monotonic()
                if left <= 0:
                    break
                time.sleep(min(left, self.dice.random() * 0.5))
        finally:
            service.kill()
            self.counts["kills of the service"] += 1

    def check(self) -> dict[str, Any]:
        """Let the waiting jobs run, and judge; raises AssertionError at the first violation."""
        with self.start() as service:
            until = time.monotonic() + _LONGEST_WAIT_SECONDS
            while True:
                jobs = _all_jobs(service)
                if all(job["status"] in FINAL for job in jobs.values()):
                    break
                assert time.monotonic() < until, "jobs do not end"
                time.sleep(0.2)
        assert len(jobs) == len(set(jobs)) and self.acknowledged == set(jobs), "a job was lost or made up"
        reported = [snapshot for job in jobs.values() for snapshot in (job["committed"] or {}).get("snapshots", [])]
        ours: list[int] = []
        for name in _TABLES:
            table = self.lake.load(name)
            assert _counted(table) == self.expected[name], f"the rows of {name} differ"
            assert_readable(table)
            snapshots = table.metadata.snapshots
            ours += [s.snapshot_id for s in snapshots if s.summary and s.summary.get("iceberg-compact.run-id")]
        assert sorted(reported) == sorted(ours), "a commit is not reported, or reported twice"
        self.counts.update(f"jobs {job['status']}" for job in jobs.values())
        self.counts["commits"] = len(ours)
        return dict(sorted(self.counts.items()))

    def _append(self, name: str) -> None:
        batch = _batch(self.dice.randrange(2**40))
        with contextlib.suppress(Exception):
            # A commit of the service may win; then nothing was appended.
            self.lake.load(name).append(batch)
            self.expected[name].update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            self.counts["appends"] += 1

    def _submit(self, service: ServiceProcess) -> None:
        options: dict[str, Any] = {
            "target": "1MB",
            "rewrite_all": True,
            "copy": "never",
            "max_files": self.dice.randrange(900, 1000),
        }
        if self.dice.random() < 0.3:
            options |= {"partial_progress": True, "max_group_files": 2, "max_commits": 3}
        body: dict[str, Any] = {"table": self.dice.choice(_TABLES), "options": options}
        answer = requests.post(f"{service.url}/api/v1/compact", json=body, timeout=60)
        if answer.status_code in (200, 202):
            self.acknowledged.add(answer.json()["job_id"])
        if self.dice.random() < 0.2 and self.acknowledged:
            job_id = self.dice.choice(sorted(self.acknowledged))
            requests.post(f"{service.url}/api/v1/jobs/{job_id}/cancel", json={}, timeout=60)

    def _kill_java(self, service: ServiceProcess) -> None:
        for child in psutil.Process(service.process.pid).children():
            if "java" in child.name():
                child.kill()
                self.counts["kills of Spark"] += 1


def _batch(first: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 10), pa.int64()), "name": [f"n{i}" for i in range(10)]})


def _counted(table: Table) -> Counter[tuple[Any, ...]]:
    return Counter((row["id"], row["name"]) for row in rows(table))


def _all_jobs(service: ServiceProcess) -> dict[str, dict[str, Any]]:
    jobs: dict[str, dict[str, Any]] = {}
    cursor = ""
    while True:
        page = service.get(f"/api/v1/jobs?limit=1000{cursor}")
        jobs |= {job["job_id"]: job for job in page["jobs"]}
        if page["next_cursor"] is None:
            return jobs
        cursor = f"&cursor={page['next_cursor']}"


def soak(folder: Path, *, rounds: int | None, seconds: float, seed: int, with_spark: bool = False) -> dict[str, Any]:
    """Run rounds, or for some seconds; a summary of what happened."""
    with open_plain(folder / "plain") as lake:
        run = Soak(folder, lake, seed, with_spark=with_spark)
        until = time.monotonic() + seconds
        done = 0
        while done < rounds if rounds is not None else time.monotonic() < until:
            run.round(run.dice.uniform(0.1, 15.0 if with_spark else 1.0 if rounds is not None else 5.0))
            done += 1
        return run.check()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="service-soak-", ignore_cleanup_errors=True) as scratch:
        print(soak(Path(scratch), rounds=None, seconds=given.seconds, seed=given.seed, with_spark=given.spark))
