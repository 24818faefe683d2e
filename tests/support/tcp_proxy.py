"""A loopback proxy for any protocol: it goes down, falls silent, or loses the answer to a certain request.

with TcpProxy(server_port) as proxy:
    proxy.lose_answer(b"COMMIT")     # the next request with these bytes is carried out, its answer is lost
    proxy.refuse(b"UpdateTable")     # the next one is not even forwarded
    proxy.answer(b"UpdateTable", HTTP_503)
    proxy.repeat(b"UpdateTable")     # forwarded twice, the second answer is given
    proxy.silent = True              # connections are taken, nothing is answered
    proxy.stop(); proxy.start()      # connections are refused in between
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from types import TracebackType

HTTP_503 = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CHUNK = 1 << 20


class TcpProxy:
    """Forwards connections to a port of this machine, in threads of this process."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._listener: socket.socket | None = None
        self._faults: list[tuple[str, bytes, bytes]] = []
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self.port = 0
        self.silent = False
        # The faults that were applied, in order.
        self.applied: list[str] = []

    def lose_answer(self, pattern: bytes) -> None:
        self._faults.append(("lose answer", pattern, b""))

    def refuse(self, pattern: bytes) -> None:
        self._faults.append(("refuse", pattern, b""))

    def answer(self, pattern: bytes, content: bytes) -> None:
        self._faults.append(("answer", pattern, content))

    def repeat(self, pattern: bytes) -> None:
        self._faults.append(("repeat", pattern, b""))

    def start(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """Cut every connection and refuse new ones; `start` opens the same port again."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> TcpProxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._upstream_port), timeout=30)
        except OSError:
            client.close()
            return
        with self._lock:
            self._connections |= {client, server}
        try:
            self._pump(client, server)
        except OSError:
            pass
        finally:
            with self._lock:
                self._connections -= {client, server}
            for connection in (client, server):
                with contextlib.suppress(OSError):
                    connection.close()

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        sent = b""
        while True:
            if self.silent:
                time.sleep(0.05)
                continue
            ready, _, _ = select.select([client, server], [], [], 0.05)
            if self.silent:
                continue
            if client in ready:
                content = client.recv(_CHUNK)
                if not content:
                    return
                # A pattern may be cut by the borders of packets.
                sent = (sent + content)[-_CHUNK:]
                fault = self._next_fault(sent)
                if fault is None:
                    server.sendall(content)
                elif not self._apply(fault, content, client, server):
                    return
                else:
                    sent = b""
            if server in ready:
                content = server.recv(_CHUNK)
                if not content:
                    return
                client.sendall(content)
                sent = b""

    def _next_fault(self, sent: bytes) -> tuple[str, bytes] | None:
        with self._lock:
            if self._faults and self._faults[0][1] in sent:
                kind, _, content = self._faults.pop(0)
                self.applied.append(kind)
                return kind, content
        return None

    def _apply(self, fault: tuple[str, bytes], content: bytes, client: socket.socket, server: socket.socket) -> bool:
        """Return whether the connection lives on."""
        kind, answer = fault
        if kind == "refuse":
            return False
        if kind == "answer":
            # Take the rest of the request first: a reset would hide the answer.
            client.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                while client.recv(_CHUNK):
                    pass
            client.sendall(answer)
            return False
        server.sendall(content + _rest(client))
        server.settimeout(30)
        server.recv(_CHUNK)
        if kind == "lose answer":
            return False
        # The rest of the first answer.
        _rest(server)
        server.sendall(content)
        return True


def _rest(connection: socket.socket) -> bytes:
    """Return what else arrives within a moment."""
    content = b""
    while select.select([connection], [], [], 0.2)[0]:
        more = connection.recv(_CHUNK)
        if not more:
            break
        content += more
    return content
