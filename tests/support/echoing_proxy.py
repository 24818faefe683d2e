"""A loopback proxy before a REST catalog that vends credentials and refuses requests with a text that repeats them.

with EchoingProxy(rest_server.uri, {"s3.secret-access-key": "..."}) as proxy:
    proxy.refuse(400, "text", commits_before=1)     # the second commit and all later ones are refused
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.rewriting_proxy import RewritingProxy


class EchoingProxy(RewritingProxy):
    """`vended` stands in the `config` of every table that is loaded; refusals repeat the request's authorization."""

    def __init__(self, upstream: str, vended: Mapping[str, str]) -> None:
        def vend(path: str, answer: dict[str, Any]) -> dict[str, Any]:
            return {**answer, "config": {**answer.get("config", {}), **vended}} if "metadata" in answer else answer

        super().__init__(upstream, vend)
        self._refusal: tuple[int, str] | None = None
        self._passing = {"commit": 0, "load": 0}
        self.refused = 0
        # The authorizations that refused requests had: a token of the server's own is among them.
        self.authorizations: set[str] = set()

    def refuse(self, status: int, text: str, *, commits_before: int = 0, loads_before: int | None = None) -> None:
        """Refuse commits, and loads too if `loads_before` is given, after that many of them have passed."""
        self._refusal = status, text
        self._passing = {"commit": commits_before, "load": 10_000 if loads_before is None else loads_before}
        self.refused = 0

    def serve(self) -> None:
        """Refuse nothing any more."""
        self._refusal = None

    def _apply(self, request: BaseHTTPRequestHandler, fault: str, body: bytes) -> None:
        kind = _kind(request, body)
        if self._refusal is None or kind is None or self._passes(kind):
            return super()._apply(request, fault, body)
        status, text = self._refusal
        sent = request.headers.get("Authorization", "")
        self.refused += 1
        self.authorizations.add(sent)
        answer = {"error": {"message": f"refused for {sent}: {text}", "type": "Refused", "code": status}}
        # Gateways answer in plain text.
        content = json.dumps(answer) if status != 503 else f"refused for {sent}: {text}"
        return self._answer(request, status, [("Content-Type", "application/json")], content.encode())

    def _passes(self, kind: str) -> bool:
        self._passing[kind] -= 1
        return self._passing[kind] >= 0


def _kind(request: BaseHTTPRequestHandler, body: bytes) -> str | None:
    if "/tables/" not in request.path:
        return None
    if request.command == "POST" and b"requirements" in body:
        return "commit"
    return "load" if request.command == "GET" else None
