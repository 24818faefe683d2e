"""The Spark session of the command line: logs errors only, and its workers use this Python."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from iceberg_compact_sql.errors import MissingDependencyError, NotFoundError

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CONNECT_PORT = 15002
_QUIET_LOG = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def start_session(master: str, settings: Mapping[str, str]) -> Any:
    """Start a session with these settings; raises a MissingDependencyError when there is no Java."""
    require_java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1" if master.startswith("local") else "0.0.0.0")
    builder = SparkSession.builder.master(master).appName("iceberg-compact-sql")
    defaults = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    with tempfile.TemporaryDirectory(prefix="iceberg-compact-sql-") as folder:
        for key, value in {**defaults, **settings, _JAVA_OPTIONS: _java_options(settings, Path(folder))}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def connect_session(url: str, settings: Mapping[str, str]) -> Any:
    """Open a new session on a Spark Connect server; settings that the server fixes stay as they are there.

    Raises at once when nothing listens there: the client itself would repeat its request for minutes.
    """
    try:
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        raise MissingDependencyError(
            f"Spark Connect needs {error.name}, which is not installed",
            hint="Run: pip install 'iceberg-compact-sql[connect]'",
        ) from None
    if not connect_listens(url):
        raise NotFoundError(
            f"no Spark Connect server listens at {url.partition(';')[0]}",
            argument="connect",
            hint="Start the server, or correct the address.",
        )
    builder = SparkSession.builder.remote(url)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # Not getOrCreate, which returns the session of a server that has ended.
    return builder.create()


def connect_listens(url: str) -> bool:
    """Whether the server of an address such as `sc://host:15002` takes connections."""
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname or "localhost", address.port or _CONNECT_PORT), 2).close()
    except OSError:
        return False
    return True


def session_lives(session: Any) -> bool:
    """Whether Spark answers. Ask `connect_listens` before: a Connect client repeats its request for minutes."""
    try:
        # Connect sessions have no SparkContext, and both kinds have a version.
        context = getattr(session, "_sc", None)
        return bool(session.version) and (context is None or not context._jsc.sc().isStopped())
    except Exception:
        return False


def forget_dead_session() -> None:
    """Clear what pyspark remembers of a JVM that has ended, so that a new session starts a new one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with contextlib.suppress(Exception):
        gateway = SparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.kill()
            gateway.proc.wait(10)
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _java_options(settings: Mapping[str, str], folder: Path) -> str:
    """The driver's options: only errors are logged from the start, unless the user has a log configuration."""
    options = settings.get(_JAVA_OPTIONS, "")
    if "log4j" in options or "SPARK_CONF_DIR" in os.environ:
        return options
    log_config = folder / "log4j2.properties"
    log_config.write_text(_QUIET_LOG)
    return f"{options} -Dlog4j2.configurationFile={log_config.as_uri()}".strip()


def require_java() -> None:
    """Raise a MissingDependencyError when Spark could not start because there is no Java."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return
    if not home and shutil.which("java"):
        return
    where = f"JAVA_HOME is {home!r}, which has no bin/java" if home else "there is no java on the PATH"
    raise MissingDependencyError(f"Spark needs Java, and {where}", hint="Install a JDK 17 and set JAVA_HOME.")
