"""A Google Cloud Storage on loopback: an emulator in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.s3 import free_port, wait_for_port

BUCKET = "lake"


class GcsServer:
    """An emulator with one bucket, which can be stopped, silenced and started again with the same files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def properties(self) -> dict[str, str]:
        return {
            "gcs.service.host": f"http://127.0.0.1:{self.port}",
            "gcs.oauth2.token": "gcs-token-4711",
            "gcs.oauth2.token-expires-at": "4102444800000",
            "gcs.project-id": "test",
        }

    def start(self) -> None:
        program = "from gcp_storage_emulator.__main__ import main; main()"
        arguments = ["start", "--host", "127.0.0.1", "--port", str(self.port), "--default-bucket", BUCKET, "--quiet"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, "--data-dir", str(self._folder), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for_port(self.port, self._process)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def silent(self) -> bool:
        return False

    @silent.setter
    def silent(self, value: bool) -> None:
        """A stopped process takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if value else signal.SIGCONT)


@pytest.fixture
def gcs_server(tmp_path: Path) -> Iterator[GcsServer]:
    """The emulator on a free loopback port, with the bucket `lake`.

    It is a process of its own, and no proxy in this one: pyarrow's client holds the interpreter's lock at times.
    """
    server = GcsServer(tmp_path / "gcs")
    server.start()
    yield server
    server.stop()
