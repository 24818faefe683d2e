"""Iceberg's own REST catalog server (its test fixture) on loopback, in a JVM of its own.

    def test_something(rest_server):
        catalog = rest_server.open()                       # pyiceberg's RestCatalog
        conf = rest_server.spark_conf("lake")              # the same server as a Spark catalog of that name

One server serves all tests of a pytest process: take a namespace of your own (`rest_server.new_namespace()`).
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.support.jars import PYSPARK_JARS, Jar, fetch
from tests.support.s3 import free_port, stop_process, wait_for_port

_ICEBERG = "1.11.0"
_JETTY = "12.1.8"
SERVER = [
    Jar("org.apache.iceberg", "iceberg-open-api", _ICEBERG, classifier="test-fixtures"),
    Jar("org.apache.iceberg", "iceberg-core", _ICEBERG, transitive=True),
    Jar("org.apache.iceberg", "iceberg-core", _ICEBERG, classifier="tests", transitive=True),
    Jar("org.eclipse.jetty.ee10", "jetty-ee10-servlet", _JETTY, transitive=True),
    Jar("org.eclipse.jetty.compression", "jetty-compression-server", _JETTY, transitive=True),
    Jar("org.eclipse.jetty.compression", "jetty-compression-gzip", _JETTY, transitive=True),
    Jar("org.junit.jupiter", "junit-jupiter-api", "5.12.2", transitive=True),
    Jar("org.xerial", "sqlite-jdbc", "3.50.3.0"),
]
_FROM_PYSPARK = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar", "slf4j-api-*.jar", "commons-logging-*.jar")


@dataclass(frozen=True)
class RestServer:
    """A running server; tables are files under `warehouse`, which Java and pyiceberg both reach."""

    uri: str
    warehouse: Path

    def open(self, name: str = "rest", **properties: str) -> RestCatalog:
        return RestCatalog(name, uri=self.uri, **properties)

    def new_namespace(self) -> str:
        """A namespace that no other test uses."""
        namespace = f"ns_{secrets.token_hex(4)}"
        self.open().create_namespace(namespace)
        return namespace

    def spark_conf(self, name: str) -> dict[str, str]:
        """The settings with which Spark calls this server by that catalog name."""
        return {
            f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{name}.type": "rest",
            f"spark.sql.catalog.{name}.uri": self.uri,
            f"spark.sql.catalog.{name}.cache-enabled": "false",
        }


def start_server(folder: Path, port: int, settings: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """The server's process; `settings` are catalog properties (`io-impl`, `s3.endpoint`, ...)."""
    jars = [str(jar) for jar in fetch("rest-server", SERVER)]
    for pattern in _FROM_PYSPARK:
        jars += [str(jar) for jar in PYSPARK_JARS.glob(pattern)]
    properties = {
        "warehouse": (folder / "warehouse").as_uri(),
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        **(settings or {}),
    }
    environment = {**os.environ, "CATALOG_REST_PORT": str(port), "REST_PORT": str(port)}
    for key, value in properties.items():
        environment["CATALOG_" + key.replace("-", "__").replace(".", "_").upper()] = value
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]
    command = ["java", *options, "-cp", os.pathsep.join(jars), "org.apache.iceberg.rest.RESTCatalogServer"]
    log = (folder / "server.log").open("wb")
    with log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder)


@pytest.fixture(scope="session")
def rest_server() -> Iterator[RestServer]:
    """Iceberg's REST catalog on a free loopback port, on SQLite and local files."""
    with tempfile.TemporaryDirectory(prefix="rest-server-", ignore_cleanup_errors=True) as scratch:
        folder, port = Path(scratch), free_port()
        process = start_server(folder, port)
        try:
            try:
                wait_for_port(port, process)
            except (RuntimeError, TimeoutError) as error:
                raise RuntimeError((folder / "server.log").read_text()[-4000:]) from error
            yield RestServer(f"http://127.0.0.1:{port}", folder / "warehouse")
        finally:
            stop_process(process)
