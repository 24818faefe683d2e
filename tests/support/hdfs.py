"""A real HDFS on loopback: Hadoop's mini cluster in a process of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.jars import PYSPARK_JARS, Jar, fetch
from tests.support.s3 import free_port, stop_process, wait_for_port

_JARS = [
    Jar("org.apache.hadoop", "hadoop-client-minicluster", "3.4.2"),
    Jar("junit", "junit", "4.13.2"),
    Jar("org.hamcrest", "hamcrest-core", "1.3"),
    Jar("org.mockito", "mockito-core", "4.11.0"),
]


@dataclass(frozen=True)
class HdfsServer:
    """A running name node with one data node."""

    port: int

    @property
    def uri(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def hdfs_server() -> Iterator[HdfsServer]:
    """HDFS on a free loopback port; it takes some 10 s to start."""
    port, http_port = free_port(), free_port()
    class_path = os.pathsep.join([*map(str, fetch("minidfs", _JARS)), f"{PYSPARK_JARS}/*"])
    arguments = ["-datanodes", "1", "-nnport", str(port), "-httpport", str(http_port), "-format"]
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    with tempfile.TemporaryDirectory(prefix="hdfs-", ignore_cleanup_errors=True) as folder:
        command = ["java", *options, "-cp", class_path, "org.apache.hadoop.test.MiniDFSClusterManager", *arguments]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            try:
                wait_for_port(port, process, seconds=120)
                _wait_for_writes(f"hdfs://127.0.0.1:{port}")
                yield HdfsServer(port)
            finally:
                stop_process(process)


def _wait_for_writes(uri: str) -> None:
    """Return once a file can be written: the data node starts after the name node."""
    from hdfs_native import Client, WriteOptions

    deadline = time.monotonic() + 60
    while True:
        try:
            with Client(uri).create("/ready", WriteOptions(overwrite=True)) as file:
                file.write(b"ready")
            return
        except (OSError, RuntimeError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)
