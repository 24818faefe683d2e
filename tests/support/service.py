"""A service in a process of its own: `python -m tests.support.service CONFIG.json PORT` is one without Spark."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import requests
import uvicorn

from iceberg_compact_sql.service.configuration.config import service_config
from iceberg_compact_sql.service.http.app import create_app
from iceberg_compact_sql.service.process import Service
from iceberg_compact_sql.service.tracing import start_tracing


class ServiceProcess:
    """A running service; `kill` ends it as kill -9 does. With `with_spark` it is the command `serve`."""

    def __init__(self, folder: Path, document: Mapping[str, Any], *, with_spark: bool = False) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        file = folder / "config.json"
        file.write_text(json.dumps(document))
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "tests.support.service", str(file), str(port)]
        if with_spark:
            # A document of JSON is one of YAML too.
            serve = ["serve", "--config", str(file), "--port", str(port)]
            command = [sys.executable, "-m", "iceberg_compact_sql.cli", *serve]
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        for _ in range(1200):
            try:
                requests.get(f"{self.url}/health/live", timeout=5)
                return
            except requests.ConnectionError:
                assert self.process.poll() is None, "the service has ended"
                time.sleep(0.05)
        raise AssertionError("the service does not answer")

    def get(self, path: str) -> Any:
        return requests.get(self.url + path, timeout=60).json()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return requests.post(self.url + path, json=body, timeout=60).json()

    def __enter__(self) -> ServiceProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End the process and the Spark that it has started."""
        started = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _main(config: str, port: str) -> None:
    service = Service(service_config(json.loads(Path(config).read_text())), with_spark=False)
    stop_tracing = start_tracing(service.config.tracing.otlp_endpoint)
    service.open()
    try:
        uvicorn.run(create_app(service), host="127.0.0.1", port=int(port), log_level="warning")
    finally:
        service.close()
        stop_tracing()


if __name__ == "__main__":
    _main(*sys.argv[1:3])
