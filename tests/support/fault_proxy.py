"""A loopback proxy before a REST catalog that breaks commit requests in the ways that networks do.

with FaultProxy(rest_server.uri) as proxy:
    catalog = RestCatalog("rest", uri=proxy.uri)
    proxy.script("reset-after", "pass")        # for the next requests that commit to a table
"""

from __future__ import annotations

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import urlparse

# What becomes of a commit request:
#   pass          forwarded, answered
#   503           answered at once, never forwarded
#   reset-before  the connection is cut, never forwarded
#   reset-after   forwarded, then the connection is cut
#   504-after     forwarded, the answer is lost behind a 504
#   duplicate     forwarded twice, the second answer (a conflict) is given
#   slow          forwarded, answered late
#   late          a 504 at once; forwarded a moment afterwards
FAULTS = ("pass", "503", "reset-before", "reset-after", "504-after", "duplicate", "slow", "late")


class FaultProxy:
    """Runs in threads of this process until the block ends."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlparse(upstream)
        self._script: list[str] = []
        self.seen: list[str] = []
        self._late: list[threading.Thread] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                commits = self.command == "POST" and "/tables/" in self.path and b"requirements" in body
                fault = proxy._script.pop(0) if commits and proxy._script else "pass"
                if commits:
                    proxy.seen.append(fault)
                proxy._apply(self, fault, body)

            do_GET = do_POST = do_DELETE = do_HEAD = _serve

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the test says what matters."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, *faults: str) -> None:
        """The fates of the next commit requests; those after them pass."""
        assert set(faults) <= set(FAULTS)
        self._script = list(faults)
        self.seen = []

    def settle(self) -> None:
        """Wait until late requests have arrived."""
        for thread in self._late:
            thread.join()

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()
        self._server.shutdown()
        self._server.server_close()

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._upstream.hostname or "", self._upstream.port or 80, timeout=30)
        try:
            headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "accept-encoding")}
            connection.request(request.command, request.path, body or None, headers)
            answer = connection.getresponse()
            kept = [(k, v) for k, v in answer.getheaders() if k.lower() in ("content-type", "etag")]
            return answer.status, kept, answer.read()
        finally:
            connection.close()

    def _apply(self, request: BaseHTTPRequestHandler, fault: str, body: bytes) -> None:
        if fault in ("503", "late"):
            if fault == "late":
                self._late.append(threading.Thread(target=self._deliver_late, args=(request, body)))
                self._late[-1].start()
            return self._answer(request, 503 if fault == "503" else 504, [], b"{}")
        if fault == "reset-before":
            return self._cut(request)
        status, headers, content = self._forward(request, body)
        if fault == "duplicate":
            status, headers, content = self._forward(request, body)
        if fault == "reset-after":
            return self._cut(request)
        if fault == "504-after":
            status, headers, content = 504, [], b"{}"
        if fault == "slow":
            time.sleep(0.5)
        return self._answer(request, status, headers, content)

    def _deliver_late(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        time.sleep(0.05)
        self._forward(request, body)

    def _answer(
        self, request: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], content: bytes
    ) -> None:
        request.send_response(status)
        for key, value in headers:
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    def _cut(self, request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        request.connection.close()
