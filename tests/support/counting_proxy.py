"""A loopback proxy before an S3 server that counts requests by kind, and may delay or refuse them.

with CountingProxy(s3_server.endpoint) as proxy:
    ...                                 # work through proxy.endpoint
    proxy.counts()                      # {"GET data": 20, "PUT manifest": 1, ...}
    proxy.most_in_flight

`python -m tests.support.counting_proxy UPSTREAM PORT DELAY_MS` runs it in a process of its own, for benchmarks: its
threads then do not compete with the work that is measured. `RemoteCounts` reads and resets its counts.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

_KINDS = (
    ("metadata.json", re.compile(r"\.metadata\.json(\.gz)?$|/version-hint\.text$")),
    ("manifest list", re.compile(r"/snap-[^/]*\.avro$")),
    ("manifest", re.compile(r"\.avro$")),
    ("data", re.compile(r"\.(parquet|orc|puffin)$")),
)
_CONTROL = "/-/counts"
_OF_THIS_HOP = ("connection", "expect", "transfer-encoding", "content-length")
_HOP = ("connection", "transfer-encoding", "keep-alive", "content-length", "date", "server")


def kind_of(method: str, target: str) -> str:
    """Return the kind of a request: its method and what it is about, such as `GET manifest`."""
    parts = urlsplit(target)
    path = unquote(parts.path)
    if method == "GET" and "list-type=2" in parts.query:
        return "LIST"
    if method == "POST" and parts.query.startswith("delete"):
        return "DELETE many"
    what = next((name for name, pattern in _KINDS if pattern.search(path)), "other")
    if "uploads" in parts.query or "uploadId" in parts.query:
        return f"{method} {what} multipart"
    return f"{method} {what}"


@dataclass
class _Tally:
    requests: Counter[str] = field(default_factory=Counter)
    read_bytes: int = 0
    written_bytes: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


class CountingProxy:
    """Runs in threads of this process until the block ends.

    `refuse` gets the kind of a request and its number among its kind, and returns a status to answer instead of
    forwarding, or None.
    """

    def __init__(
        self,
        upstream: str,
        *,
        port: int = 0,
        delay_ms: float = 0,
        refuse: Callable[[str, int], int | None] | None = None,
    ) -> None:
        self._upstream = urlsplit(upstream)
        self.delay_s = delay_ms / 1000
        self.refuse = refuse
        self._tally = _Tally()
        self._connections = threading.local()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and body are sent in one packet: two would wait for the client's delayed acknowledgement.
            wbufsize = -1
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                proxy._serve(self)

            def handle_expect_100(self) -> bool:
                accepted = super().handle_expect_100()
                self.wfile.flush()
                return accepted

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the counts say what matters."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.request_queue_size = 128
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def counts(self) -> dict[str, int]:
        return dict(sorted(self._tally.requests.items()))

    @property
    def total(self) -> int:
        return sum(self._tally.requests.values())

    @property
    def most_in_flight(self) -> int:
        return self._tally.most_in_flight

    @property
    def read_bytes(self) -> int:
        return self._tally.read_bytes

    def reset(self) -> None:
        self._tally = _Tally()

    def serve_forever(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def __enter__(self) -> CountingProxy:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        if request.path.startswith(_CONTROL):
            tally = self._tally
            if request.path.endswith("reset"):
                self.reset()
            facts = {"requests": tally.requests, "most": tally.most_in_flight, "read": tally.read_bytes}
            _answer(request, 200, [], json.dumps(facts).encode())
            return
        body = _read_body(request)
        kind = kind_of(request.command, request.path)
        tally = self._tally
        with tally.lock:
            tally.requests[kind] += 1
            number = tally.requests[kind]
            tally.written_bytes += len(body)
            tally.in_flight += 1
            tally.most_in_flight = max(tally.most_in_flight, tally.in_flight)
        try:
            status = self.refuse(kind, number) if self.refuse else None
            if self.delay_s:
                time.sleep(self.delay_s)
            if status is not None:
                answer = (status, [("Content-Type", "application/xml")], _refusal(status))
            else:
                answer = self._forward(request, body)
        finally:
            with tally.lock:
                tally.in_flight -= 1
        tally.read_bytes += len(answer[2])
        _answer(request, *answer)

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _OF_THIS_HOP}
        if request.command in ("PUT", "POST"):
            headers["Content-Length"] = str(len(body))
        for attempt in range(2):
            connection = getattr(self._connections, "upstream", None)
            if connection is None:
                connection = http.client.HTTPConnection(self._upstream.hostname or "", self._upstream.port, timeout=60)
                self._connections.upstream = connection
            try:
                connection.request(request.command, request.path, body or None, headers)
                # The server sends header and body in two packets, and waits for the acknowledgement of the first.
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                answer = connection.getresponse()
                content = answer.read()
                kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in _HOP]
                if request.command == "HEAD":
                    kept.append(("Content-Length", answer.getheader("Content-Length", "0")))
                return answer.status, kept, content
            except (http.client.HTTPException, OSError):
                # The server has closed an idle connection.
                connection.close()
                self._connections.upstream = None
                if attempt:
                    raise
        raise AssertionError("the second attempt returns or raises")


@dataclass(frozen=True)
class RemoteCounts:
    """The counts of a proxy in another process."""

    endpoint: str

    def take(self) -> dict[str, Any]:
        """Return the counts since the last call: `requests` by kind, `most` in flight, `read` bytes."""
        with urlopen(f"{self.endpoint}{_CONTROL}/reset") as answer:
            facts: dict[str, Any] = json.loads(answer.read())
            return facts


def _read_body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", "0")))
    body = b""
    while size := int(request.rfile.readline().split(b";")[0], 16):
        body += request.rfile.read(size)
        request.rfile.readline()
    while request.rfile.readline().strip():
        pass
    return body


def _refusal(status: int) -> bytes:
    code = {503: "SlowDown", 403: "AccessDenied", 404: "NoSuchKey"}.get(status, "InternalError")
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


def _answer(request: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
    request.send_response(status)
    for name, value in headers:
        request.send_header(name, value)
    if not any(name.lower() == "content-length" for name, _ in headers):
        request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content)
    request.wfile.flush()


if __name__ == "__main__":
    CountingProxy(sys.argv[1], port=int(sys.argv[2]), delay_ms=float(sys.argv[3])).serve_forever()
