"""A real Spark cluster on loopback: a standalone master and workers, each a process of its own, one core each."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import psutil
import pyspark

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "cluster_driver.py"
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# What the README asks for on executors; pyspark itself comes with Spark.
NEEDED_BY_EXECUTORS = ("pyiceberg", "pyarrow", "pyiceberg-core", "numpy")
# Two names of one machine are two machines to Spark, which never puts a second attempt beside the first.
_HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Cluster:
    """Where the master listens, and the process ids of the workers: executors are their children."""

    url: str
    worker_pids: tuple[int, ...]

    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs that run now."""
        found: list[psutil.Process] = []
        for pid in self.worker_pids:
            found += psutil.Process(pid).children()
        return found


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
            worker = [
                "org.apache.spark.deploy.worker.Worker",
                "-h",
                _HOSTS[number % len(_HOSTS)],
                "-c",
                "1",
                "-m",
                "1g",
            ]
            worker += ["-d", str(home), "--webui-port", "0", url]
            pids.append(stack.enter_context(_running(worker, folder, f"worker{number}")))
        _await_text(folder / "master.log", "Registering worker", workers)
        yield Cluster(url, tuple(pids))


@contextlib.contextmanager
def connect_server(folder: Path, port: int) -> Iterator[int]:
    """A Spark Connect server on loopback that answers; gives its process id. It is gone when the block ends."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} {QUICK_JAVA}",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
    }
    flags = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    submit = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", *flags]
    submit += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    # Spark starts this class as a daemon: its memory is that of daemons.
    variables = {"SPARK_DAEMON_MEMORY": "512m", "PYSPARK_PYTHON": sys.executable}
    with _running(submit, folder, f"connect{time.time_ns()}", **variables) as pid:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < deadline, "the Connect server does not answer"
            time.sleep(0.1)
        yield pid


class Driver:
    """A driver program in a process of its own that takes statements; see `cluster_driver.py`."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        # Of each executor process that was asked: the packages that it finds by itself.
        self.executors_find: list[list[str]] = self._answer()["executors_find"]

    def call(self, statement: str) -> dict[str, Any]:
        """The statement's `rows`, or the `error` that the user sees."""
        assert self._process.stdin is not None
        self._process.stdin.write(statement + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise AssertionError(f"the driver ended with {self._process.wait()}: {self._log.read_text()[-4000:]}")


@contextlib.contextmanager
def running_driver(cluster: Cluster, folder: Path, conf: Mapping[str, str], executor_python: Path) -> Iterator[Driver]:
    """A session on the cluster, of `conf` and little memory; its event log is in `folder/events` after the block."""
    (folder / "events").mkdir(parents=True)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} {QUICK_JAVA}",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.local.dir": str(folder),
        # All executors before the first task.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **conf,
    }
    environment = _environment() | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(executor_python)}
    log = folder / "driver.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, str(DRIVER), cluster.url, json.dumps(settings)],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield Driver(process, log)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
        finally:
            process.kill()


def executor_python(folder: Path, without: Collection[str] = ()) -> Path:
    """A Python as the README wants it on executors: pyarrow, pyiceberg and what they need, and nothing else of ours.

    Neither the installed package nor the folder it is developed in can be imported there.
    """
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for path in _package_paths(NEEDED_BY_EXECUTORS):
        if path.name not in without:
            (packages / path.name).symlink_to(path)
    python = folder / "python"
    interpreter = os.path.realpath(sys.executable)
    # -S: no site-packages. What Spark puts on the path stays before ours.
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{interpreter}" -S "$@"\n')
    python.chmod(0o755)
    return python


def task_ends(folder: Path, job_text: str) -> list[dict[str, Any]]:
    """Spark's own account of every task attempt of the jobs whose description has this text."""
    [log] = (folder / "events").iterdir()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    starts = [event for event in events if event["Event"] == "SparkListenerJobStart"]
    ours = [start for start in starts if job_text in start["Properties"].get("spark.job.description", "")]
    stages = {stage for start in ours for stage in start["Stage IDs"]}
    return [event for event in events if event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in stages]


def _package_paths(names: Collection[str]) -> set[Path]:
    """The modules of these distributions and of all that they require, as they lie in site-packages."""
    found: set[Path] = set()
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            # For another platform or Python.
            continue
        for file in installed.files or ():
            if ".." not in file.parts:
                found.add(Path(str(installed.locate_file(file.parts[0]))))
        wanted = (text for text in installed.requires or () if "extra ==" not in text)
        waiting += [re.split(r"[^\w.\-]", text, maxsplit=1)[0] for text in wanted]
    return found


def _environment() -> dict[str, str]:
    """Ours, without anything that tells Spark or Python where to find what."""
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
    return mine | {"SPARK_LOCAL_IP": "127.0.0.1"}


@contextlib.contextmanager
def _running(command: list[str], folder: Path, name: str, **variables: str) -> Iterator[int]:
    daemon = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA}
    environment = _environment() | daemon | variables
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
