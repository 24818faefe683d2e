"""Starts the service: HTTP first, Spark behind it; ends it on SIGTERM within 30 s."""

from __future__ import annotations

import contextlib
import json
import logging.config
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.redaction import MASK, is_secret, masked_logger
from iceberg_compact_sql.service.configuration.config import LOOPBACK, ServiceConfig, service_config
from iceberg_compact_sql.service.configuration.read_yaml import read_yaml
from iceberg_compact_sql.service.configuration.settings import spark_settings
from iceberg_compact_sql.service.http.app import create_app
from iceberg_compact_sql.service.jobs import iso_time
from iceberg_compact_sql.service.process import Service
from iceberg_compact_sql.service.schedules import schedules_of
from iceberg_compact_sql.service.tokens import TOKEN_VARIABLE
from iceberg_compact_sql.service.tracing import start_tracing

_log = masked_logger(__name__)
# Short turns of Python's interpreter lock: requests are answered while a compaction uses the cores.
_SWITCH_SECONDS = 0.001
# Lines of this package; of libraries only what needs attention.
_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"level": "WARNING", "handlers": ["stderr"]},
    "loggers": {"iceberg_compact_sql": {"level": "INFO"}},
}


def read_config(path: str | None, overrides: dict[str, Any], *, host: str | None, port: int | None) -> ServiceConfig:
    """The configuration of a file, or of the command line alone; raises ConfigurationError."""
    document = {} if path is None else read_yaml(Path(path), os.environ)
    document |= {key: value for key, value in overrides.items() if value is not None}
    server = {"host": host, "port": port}
    given = {key: value for key, value in server.items() if value is not None}
    if given:
        document["server"] = {**(document.get("server") or {}), **given}
    return service_config(document)


def explain(config: ServiceConfig) -> str:
    """What a configuration means, as JSON; secrets are masked."""
    now_ms = int(time.time() * 1000)
    server = config.server
    secrets = [server.token, server.read_token, server.token_file, os.environ.get(TOKEN_VARIABLE), *server.tokens]
    auth = "token" if any(secrets) else "none" if server.host in LOOPBACK else "token made at the start"
    settings = {key: MASK if is_secret(key) else value for key, value in spark_settings(config).items()}
    catalogs = sorted(config.all_catalogs()) + (["local"] if config.warehouse is not None else [])
    document = {
        "listen": f"{server.host}:{server.port}",
        "auth": auth,
        "catalogs": {
            name: {
                key.removeprefix(f"spark.sql.catalog.{name}."): value
                for key, value in settings.items()
                if key.startswith(f"spark.sql.catalog.{name}.")
            }
            for name in catalogs
        },
        "schedules": [
            {
                "name": schedule.name,
                "table": schedule.table,
                "schedule": schedule.cron,
                "time_zone": schedule.time_zone,
                "next": iso_time(schedule.next_ms(now_ms)),
                "procedure": schedule.procedure,
                "arguments": dict(schedule.arguments),
                "when": None if schedule.when is None else schedule.when.thresholds(),
                "dry": schedule.dry,
            }
            for schedule in schedules_of(config)
        ],
    }
    return json.dumps(document, indent=2)


class _Server(uvicorn.Server):
    """Signals end the server only: the service then ends its jobs, and the exit code is ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        def stop(number: int, frame: object) -> None:
            self.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        yield


def serve(config: ServiceConfig, *, demo: bool = False) -> int:
    """Run until SIGTERM; returns the exit code. Raises StateError when another process has the state."""
    logging.config.dictConfig(_LOGGING)
    sys.setswitchinterval(_SWITCH_SECONDS)
    lost = threading.Event()

    def lose() -> None:
        lost.set()
        server.should_exit = True

    service = Service(config, environment=os.environ, on_lost_lease=lose)
    server = _Server(
        uvicorn.Config(
            create_app(service),
            host=config.server.host,
            port=config.server.port,
            access_log=False,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=3,
        )
    )
    stop_tracing = start_tracing(config.tracing.otlp_endpoint)
    try:
        service.open()
        _log.info("serving on http://%s:%s/", config.server.host, config.server.port)
        if demo:
            threading.Thread(target=_make_demo, args=(service,), name="demo", daemon=True).start()
        server.run()
    finally:
        service.close()
        stop_tracing()
    return 1 if lost.is_set() or not server.started else 0


def _make_demo(service: Service) -> None:
    """Create the table of the quickstart in the embedded catalog, unless it is there.

    Spark comes first: the service is ready as early as without a demo.
    """
    # Imported late for start-up time: only --demo needs it.
    from iceberg_compact_sql.catalogs.open_table import open_catalog
    from iceberg_compact_sql.demo.lake import TABLE, make_demo_table

    while service.engine is not None and service.engine.state == "starting" and service.accepts_jobs:
        time.sleep(0.1)
    try:
        catalog = open_catalog(service.context().view, "local")
        if not catalog.table_exists(TABLE):
            make_demo_table(catalog)
            _log.info("the demo table %s is ready", TABLE)
        service.scores.forget(None)
    except IcebergCompactError as error:
        _log.error("the demo table could not be made: %s", error)
    except Exception:
        _log.exception("the demo table could not be made")
