"""A real Spark cluster on loopback: a standalone master and workers, each a process of its own, one core each."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass(frozen=True)
class Cluster:
    """Where the master listens, and the process ids of the workers: executors are their children."""

    url: str
    worker_pids: tuple[int, ...]


@contextlib.contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and workers that have registered; all are gone when the block ends."""
    with contextlib.ExitStack() as stack:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        url = f"spark://127.0.0.1:{port}"
        master = ["org.apache.spark.deploy.master.Master", "-h", "127.0.0.1", "-p", str(port), "--webui-port", "0"]
        stack.enter_context(_running(master, folder, "master"))
        _await_text(folder / "master.log", "I have been elected leader", 1)
        pids = []
        for number in range(workers):
            home = folder / f"worker{number}"
            worker = ["org.apache.spark.deploy.worker.Worker", "-h", "127.0.0.1", "-c", "1", "-m", "1g"]
            worker += ["-d", str(home), "--webui-port", "0", url]
            pids.append(stack.enter_context(_running(worker, folder, f"worker{number}")))
        _await_text(folder / "master.log", "Registering worker", workers)
        yield Cluster(url, tuple(pids))


@contextlib.contextmanager
def _running(command: list[str], folder: Path, name: str) -> Iterator[int]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA}
    environment |= {"PYSPARK_PYTHON": sys.executable}
    with (folder / f"{name}.log").open("w") as log:
        # A session of its own: its executors and their Python workers end with it.
        process = subprocess.Popen(
            [str(SPARK_CLASS), *command], env=environment, stdout=log, stderr=log, start_new_session=True, cwd=folder
        )
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_text(log: Path, text: str, times: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not log.exists() or log.read_text().count(text) < times:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log.name} never said '{text}': {log.read_text()[-2000:] if log.exists() else ''}")
        time.sleep(0.1)
