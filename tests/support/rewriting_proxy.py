"""A loopback proxy before a REST catalog that rewrites the JSON of its answers.

with RewritingProxy(rest_server.uri, rewrite) as proxy:
    catalog = RestCatalog("rest", uri=proxy.uri)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.fault_proxy import FaultProxy

Rewrite = Callable[[str, dict[str, Any]], "dict[str, Any] | None"]


class RewritingProxy(FaultProxy):
    """`rewrite` gets a request's path and the answer, and gives the answer to send; None is sent as a 403."""

    def __init__(self, upstream: str, rewrite: Rewrite) -> None:
        super().__init__(upstream)
        self._rewrite = rewrite

    def _answer(
        self, request: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], content: bytes
    ) -> None:
        if status == 200 and content:
            changed = self._rewrite(request.path, json.loads(content))
            status = 403 if changed is None else status
            content = json.dumps(changed or {"error": {"message": "no", "type": "Forbidden", "code": 403}}).encode()
        super()._answer(request, status, headers, content)
