"""Connections of catalogs end in time."""

from __future__ import annotations

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from requests import ReadTimeout, Session

from iceberg_compact_sql.catalogs.open_table import open_catalog
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.pyiceberg_internals.catalog_timeouts import with_limited_clients, with_time_limit


@pytest.mark.parametrize(
    ("uri", "limited"),
    [
        ("postgresql+psycopg2://u:p@h/lake", "postgresql+psycopg2://u:p@h/lake?connect_timeout=4"),
        ("mysql+pymysql://h/lake?charset=utf8", "mysql+pymysql://h/lake?charset=utf8&connect_timeout=4"),
        ("postgresql://h/lake?connect_timeout=9", "postgresql://h/lake?connect_timeout=9"),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db"),
    ],
)
def test_a_database_gets_a_limit_for_connecting(uri: str, limited: str) -> None:
    assert with_limited_clients({"type": "sql", "uri": uri})["uri"] == limited


def test_glue_sends_a_request_as_often_as_the_setting_says() -> None:
    properties = {"type": "glue", "iceberg-compact.request.attempts": "2"}
    assert with_limited_clients(properties)["glue.max-retries"] == 2


def test_a_rest_server_that_does_not_answer_is_a_clear_error() -> None:
    """The server accepts connections and is silent."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        conf = {
            "spark.sql.catalog.silent.type": "rest",
            "spark.sql.catalog.silent.uri": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "spark.iceberg_compact_sql.answer_timeout": "300ms",
            "spark.iceberg_compact_sql.attempts": "1",
        }
        with pytest.raises(IcebergCompactError, match=r"'silent' cannot be opened.*timed out"):
            open_catalog(SessionView(conf=conf), "silent")


class _Slow(BaseHTTPRequestHandler):
    """Answers each request after half a second."""

    def do_GET(self) -> None:
        time.sleep(0.5)
        self.send_response(204)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_commit_may_take_longer_than_other_requests() -> None:
    """After a timeout the outcome of a commit is unknown, which is worse than waiting."""
    limits = {"iceberg-compact.request.answer-seconds": "0.1", "iceberg-compact.request.attempts": "1"}
    with ThreadingHTTPServer(("127.0.0.1", 0), _Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        session = with_time_limit(Session(), limits)
        tables = f"http://127.0.0.1:{server.server_port}/v1/warehouse/namespaces/db/tables"
        for url in (f"{tables}/t", f"http://127.0.0.1:{server.server_port}/v1/transactions/commit"):
            assert session.post(url, data=b"{}").status_code == 204
        with pytest.raises(ReadTimeout):
            session.get(f"{tables}/t")
        with pytest.raises(ReadTimeout):
            session.post(f"{tables}/t/metrics", data=b"{}")
        short = with_time_limit(Session(), {**limits, "iceberg-compact.request.commit-seconds": "0.2"})
        with pytest.raises(ReadTimeout):
            short.post(f"{tables}/t", data=b"{}")
        server.shutdown()
