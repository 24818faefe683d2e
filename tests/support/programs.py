"""Spark's real programs in processes of their own: spark-sql, the Thrift server with beeline, a Connect server.

Each gets a folder of its own, listens on loopback only, and is gone when its block ends. The Python child of the jar
can be watched and steered through files in that folder:

    child.pid     its process id, written when it starts
    stall         while this file exists, a CALL stops before it does anything
    stalled       written when a CALL has come there
    interrupted   written when a CALL that had stopped there was cancelled
    on-spark      while this file exists, even a tiny compaction runs as a Spark job
    job-group     written with the job group of the last such job
    no-package    while this file exists, the interpreter has no packages at all
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyspark
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_compact_sql.jvm import jar_path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(pyspark.__file__).parent / "bin"
# spark-sql repeats what is typed after its prompt, and continued lines after another.
_PROMPT = re.compile(r"spark-sql \(| *> ")
_STEERING = """
import os
import pathlib
import time

folder = pathlib.Path(os.environ["STEERING_FOLDER"])
if "PYSPARK_GATEWAY_PORT" in os.environ and not (folder / "no-package").exists():
    from iceberg_compact_sql import events

    (folder / "child.pid").write_text(str(os.getpid()))

    def steer(point, facts):
        if point == "bridge.run" and (folder / "on-spark").exists():
            from iceberg_compact_sql.engine import task_runner

            task_runner.DRIVER_TASKS = -1
        if point == "rewrite.job":
            from pyspark import SparkContext

            group = SparkContext._active_spark_context.getLocalProperty("spark.jobGroup.id")
            (folder / "job-group").write_text(str(group))
        if point == "bridge.run" and (folder / "stall").exists():
            (folder / "stalled").touch()
            while (folder / "stall").exists() and not events.is_cancelled():
                time.sleep(0.02)
            if events.is_cancelled():
                (folder / "interrupted").touch()

    holder = events.listening(steer)
    holder.__enter__()
"""


@dataclass(frozen=True)
class Surroundings:
    """A folder with a steered interpreter, and an embedded warehouse with catalog `local`."""

    folder: Path
    environment: dict[str, str] = field(repr=False)

    @property
    def warehouse(self) -> Path:
        return self.folder / "lake"

    @contextlib.contextmanager
    def catalog(self) -> Iterator[SqlCatalog]:
        """The embedded catalog, as pyiceberg sees it."""
        self.warehouse.mkdir(exist_ok=True)
        catalog = SqlCatalog(
            "local", uri=f"sqlite:///{self.warehouse / 'catalog.db'}", warehouse=self.warehouse.as_uri()
        )
        try:
            yield catalog
        finally:
            catalog.close()

    def create(self, name: str, files: int = 6) -> None:
        """A table of `files` small files with the rows 0, 1, 2, ..."""
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists(name.split(".")[0])
            table = catalog.create_table(name, pa.schema([("id", pa.int64()), ("kind", pa.string())]))
            for number in range(files):
                table.append(pa.table({"id": [2 * number, 2 * number + 1], "kind": ["a", "b"]}))

    def state(self, name: str) -> tuple[int, list[int], int]:
        """Live files, the ids in order, and the number of snapshots."""
        with self.catalog() as catalog:
            table = catalog.load_table(name)
            ids = sorted(table.scan().to_arrow()["id"].to_pylist())
            return len(list(table.scan().plan_files())), ids, len(table.snapshots())

    def put(self, name: str) -> None:
        (self.folder / name).touch()

    def take(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def await_file(self, name: str) -> None:
        """Wait for a file, and take it away."""
        wait_until(lambda: (self.folder / name).exists(), f"no file '{name}'")
        self.take(name)

    def child_pid(self) -> int:
        return int((self.folder / "child.pid").read_text())

    def options(self, *, jars: str | None = None, catalog: str = "in-memory") -> list[str]:
        """Arguments for spark-submit: our jar, quiet and quick to start, nothing written outside the folder."""
        java = f"-Dderby.system.home={self.folder} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        conf = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.catalogImplementation": catalog,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": (self.folder / "spark-warehouse").as_uri(),
            "spark.local.dir": str(self.folder),
            "spark.iceberg_compact_sql.warehouse": str(self.warehouse),
        }
        settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        memory = ["--driver-memory", "768m", "--driver-java-options", java]
        return ["--master", "local[2]", "--jars", jars or str(jar_path()), *memory, *settings]


def surroundings(folder: Path) -> Surroundings:
    """A steered interpreter and environment in `folder`."""
    site = folder / "steering"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_STEERING)
    interpreter = folder / "python"
    interpreter.write_text(
        f'#!/bin/sh\n[ -e "{folder}/no-package" ] && exec "{sys.executable}" -I -S "$@"\nexec "{sys.executable}" "$@"\n'
    )
    interpreter.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {
        "PYSPARK_PYTHON": str(interpreter),
        "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
        "STEERING_FOLDER": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return Surroundings(folder, environment)


@contextlib.contextmanager
def running(
    command: list[str], around: Surroundings, name: str, stdin: int | None = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """A program with its output in `<name>.out` and `<name>.err`; it and its children are gone afterwards."""
    with (around.folder / f"{name}.out").open("w") as out, (around.folder / f"{name}.err").open("w") as err:
        process = subprocess.Popen(
            command,
            cwd=around.folder,
            env=around.environment,
            stdin=stdin,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
            # A test run in the background ignores SIGINT, and so would everything below it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
            if process.stdin is not None:
                process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


class Shell:
    """An interactive spark-sql: a statement goes in, what it printed comes back."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        assert process.stdin is not None
        self._stdin: IO[str] = process.stdin
        self._out = (folder / "spark-sql.out").open()
        self._err = (folder / "spark-sql.err").open()
        self._unfinished_line = ""
        self._count = 0

    def close(self) -> None:
        self._out.close()
        self._err.close()

    def send(self, statement: str) -> None:
        """Type a statement without waiting for its end."""
        self._count += 1
        self._stdin.write(f"{statement};\nSELECT 'end-{self._count}';\n")
        self._stdin.flush()

    def result(self, timeout_seconds: float = 60) -> tuple[list[str], str]:
        """The lines that the last statement printed, and what stood on standard error."""
        lines: list[str] = []
        deadline = time.monotonic() + timeout_seconds
        while f"end-{self._count}" not in lines:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"spark-sql gave no answer: {lines}\n{self._err.read()}")
            # The prompt of the next statement stands there already, without an end of line.
            *whole, self._unfinished_line = (self._unfinished_line + self._out.read()).split("\n")
            lines += whole
            time.sleep(0.01)
        time.sleep(0.05)
        return [line for line in lines[:-1] if not _PROMPT.match(line)], self._err.read()

    def run(self, statement: str, timeout_seconds: float = 60) -> tuple[list[str], str]:
        self.send(statement)
        return self.result(timeout_seconds)


@contextlib.contextmanager
def spark_sql(around: Surroundings, *extra: str, jars: str | None = None) -> Iterator[Shell]:
    """A spark-sql that is up and has answered once."""
    command = [str(BIN / "spark-sql"), *around.options(jars=jars), *extra]
    with running(command, around, "spark-sql", subprocess.PIPE) as process:
        shell = Shell(process, around.folder)
        try:
            shell.run("SELECT 1", 120)
            yield shell
        finally:
            shell.close()


@contextlib.contextmanager
def server(
    around: Surroundings, main_class: str, port_setting: str, *extra: str, catalog: str = "in-memory"
) -> Iterator[int]:
    """A server of Spark's on a free port of loopback, once it listens."""
    port = free_port()
    command = [str(BIN / "spark-submit"), "--class", main_class, *around.options(catalog=catalog)]
    command += ["--conf", f"{port_setting}={port}", *extra, "spark-internal"]
    with running(command, around, "server") as process:
        log = around.folder / "server.err"
        wait_until(
            lambda: listening(port) or process.poll() is not None, "the server does not listen", 120, log.read_text
        )
        assert process.poll() is None, log.read_text()
        yield port


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(
    holds: Callable[[], bool], otherwise: str, seconds: float = 30, detail: Callable[[], str] = lambda: ""
) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"{otherwise} after {seconds:.0f} s {detail()}")
        time.sleep(0.02)
