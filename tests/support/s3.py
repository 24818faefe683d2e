"""An S3 endpoint on loopback: moto's server in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes] | None = None, *, seconds: float = 60) -> None:
    """Return once something listens on the port; raise if its process ended or the time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"the server for port {port} ended with code {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port} after {seconds} s")


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """End a server, politely first."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


@dataclass(frozen=True)
class S3Server:
    """A running endpoint with one bucket; the keys are only good here."""

    endpoint: str
    bucket: str = "lake"
    access_key: str = "test"
    secret_key: str = field(default="test", repr=False)
    region: str = "us-east-1"

    @property
    def properties(self) -> dict[str, str]:
        """What pyiceberg's FileIO and Java's S3FileIO both understand."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": self.region,
            "client.region": self.region,
            "s3.path-style-access": "true",
        }


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto's S3 on a free loopback port, with the bucket `lake`."""
    with running_s3() as server:
        yield server


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """Start moto's S3 with the bucket `lake`; it is gone when the block ends."""
    import boto3

    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MOTO_S3_CUSTOM_ENDPOINTS": f"http://127.0.0.1:{port}"},
    )
    try:
        wait_for_port(port, process)
        server = S3Server(f"http://127.0.0.1:{port}")
        client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            region_name=server.region,
        )
        client.create_bucket(Bucket=server.bucket)
        client.close()
        yield server
    finally:
        stop_process(process)
