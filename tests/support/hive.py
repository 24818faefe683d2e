"""A Hive metastore on loopback, from the jars of pip's pyspark, with an embedded Derby database."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.jars import PYSPARK_JARS
from tests.support.s3 import free_port, stop_process, wait_for_port

_PROGRAM = """
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

public class Metastore {
    public static void main(String[] arguments) throws Throwable {
        TxnDbUtil.prepDb(new HiveConf());
        HiveMetaStore.main(arguments);
    }
}
"""
_OPENED = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.net", "java.util")]


@dataclass(frozen=True)
class HiveServer:
    """A running metastore."""

    port: int

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"


def _site(folder: Path) -> str:
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        # Not there: BoneCP, and the disruptor of asynchronous logs.
        "datanucleus.connectionPoolingType": "HikariCP",
        "hive.async.log.enabled": "false",
        "hive.metastore.warehouse.dir": f"file://{folder}/warehouse",
    }
    listed = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
    return f"<configuration>{listed}</configuration>"


@pytest.fixture(scope="session")
def hive_server() -> Iterator[HiveServer]:
    """A metastore on a free loopback port; it takes some 10 s to start."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="hive-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "Metastore.java").write_text(_PROGRAM)
        (folder / "conf").mkdir()
        (folder / "conf" / "hive-site.xml").write_text(_site(folder))
        class_path = os.pathsep.join([str(folder / "conf"), f"{PYSPARK_JARS}/*"])
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_OPENED]
        command = ["java", *options, "-cp", class_path, str(folder / "Metastore.java"), "-p", str(port)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            try:
                wait_for_port(port, process, seconds=120)
                yield HiveServer(port)
            finally:
                stop_process(process)
