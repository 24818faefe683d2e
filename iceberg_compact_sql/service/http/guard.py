"""What every request passes before a handler: host, origin, body, token; and the headers of every answer."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from iceberg_compact_sql.service.configuration.config import LOOPBACK
from iceberg_compact_sql.service.process import Service
from iceberg_compact_sql.service.tokens import ANYBODY, Identity

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
COOKIE = "iceberg_compact_session"
# Signing out is open too: a page may outlive its session.
_OPEN = ("/health", "/health/live", "/api/v1/health", "/login", "/logout")
_HEADERS = {
    b"content-security-policy": b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    b"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    b"x-content-type-options": b"nosniff",
    # Not no-referrer: browsers then send `Origin: null` with the sign-in form.
    b"referrer-policy": b"same-origin",
    b"cache-control": b"no-store",
}


class Refused(Exception):
    """A request that no handler sees."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Guard:
    """ASGI middleware. Handlers find the owner of the token in `request.state.identity`."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service
        server = service.config.server
        self._hosts = {name.lower() for name in (*LOOPBACK, server.host, *server.allowed_hosts)}
        self._any_host = server.host in ("0.0.0.0", "::") and not server.allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name.lower() for name, _ in message["headers"]}
                # The report of a table has a policy of its own.
                message["headers"] = [*message["headers"], *((k, v) for k, v in _HEADERS.items() if k not in given)]
            await send(message)

        try:
            body = await self._admit(scope, receive)
            await self._app(scope, _replay(body, receive), send_with_headers)
        except Refused as refused:
            await _answer(refused, scope, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            seconds = time.perf_counter() - begun
            self._service.metrics.http_duration.labels(route, _method(scope), str(status)).observe(seconds)

    async def _admit(self, scope: Scope, receive: Receive) -> bytes:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self._check_host(headers)
        scope.setdefault("state", {})["identity"] = self._identity(scope, headers)
        if scope["method"] not in ("POST", "PUT", "PATCH", "DELETE"):
            return b""
        body = await self._read(headers, receive)
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        wanted = "application/x-www-form-urlencoded" if scope["path"] in ("/login", "/logout") else "application/json"
        if (body or kind) and kind != wanted:
            raise Refused(415, "UNSUPPORTED_MEDIA_TYPE", f"the body must be {wanted}")
        return body

    def _check_host(self, headers: dict[bytes, str]) -> None:
        host = urlsplit(f"//{headers.get(b'host', '')}").hostname or ""
        if not self._any_host and host.lower() not in self._hosts:
            raise Refused(421, "MISDIRECTED", "this host name is not served; add it to server.allowed_hosts")
        origin = headers.get(b"origin")
        if origin is not None:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or parts.netloc.lower() != headers.get(b"host", "").lower():
                raise Refused(403, "FOREIGN_ORIGIN", "requests of pages of other origins are refused")

    def _identity(self, scope: Scope, headers: dict[bytes, str]) -> Identity | None:
        tokens = self._service.tokens
        path = scope["path"]
        if not tokens.required:
            return ANYBODY
        kind, _, token = headers.get(b"authorization", "").partition(" ")
        identity = None
        if kind.lower() == "bearer":
            identity = tokens.identify(token.strip())
        elif session := session_of(headers.get(b"cookie", "")):
            identity = tokens.of_session(session)
        if identity is None and path not in _OPEN and not path.startswith("/static/"):
            raise Refused(401, "UNAUTHORIZED", "a token is needed: Authorization: Bearer <token>")
        return identity

    async def _read(self, headers: dict[bytes, str], receive: Receive) -> bytes:
        limit = self._service.config.server.max_body
        too_large = Refused(413, "BODY_TOO_LARGE", f"the body is larger than {limit} bytes")
        length = headers.get(b"content-length", "0")
        if length.isdigit() and int(length) > limit:
            raise too_large
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refused(400, "DISCONNECTED", "the request ended early")
            parts.append(message.get("body", b""))
            # Counted while it comes: a length may be missing or wrong.
            size += len(parts[-1])
            if size > limit:
                raise too_large
            if not message.get("more_body"):
                return b"".join(parts)


def session_of(cookies: str) -> str | None:
    """The id of the browser session in the Cookie header."""
    try:
        morsel = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _method(scope: Scope) -> str:
    method = str(scope["method"])
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def receive_again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def _answer(refused: Refused, scope: Scope, send: Send) -> None:
    wants_page = any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
    if refused.status == 401 and wants_page and scope["method"] == "GET":
        await send({"type": "http.response.start", "status": 303, "headers": [(b"location", b"/login")]})
        await send({"type": "http.response.body", "body": b""})
        return
    body = json.dumps({"error": {"code": refused.code, "message": refused.message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
