"""The ASGI application: routes, errors as JSON, health and metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from iceberg_compact_sql.errors import IcebergCompactError, NotFoundError
from iceberg_compact_sql.redaction import mask_remembered, masked_logger
from iceberg_compact_sql.service.checks import NotOverHttpError
from iceberg_compact_sql.service.http import api_jobs, api_tables, page
from iceberg_compact_sql.service.http.access import identity_of, service_of
from iceberg_compact_sql.service.http.guard import Guard
from iceberg_compact_sql.service.http.models import ErrorBody
from iceberg_compact_sql.service.process import Service
from iceberg_compact_sql.service.queue import QueueFullError, RequestConflictError
from iceberg_compact_sql.service.runner import error_json
from iceberg_compact_sql.version import VERSION

_log = masked_logger(__name__)
_STATIC = Path(__file__).parents[1] / "static"
# NotFoundError about these is a 404; about a column or a branch the request itself is wrong.
_RESOURCES = ("table", "catalog", "pattern", "job_id", "name")
_CODES = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    422: "INVALID_SHAPE",
    429: "QUEUE_FULL",
    503: "UNAVAILABLE",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text}
    for status, text in {
        400: "what is wrong with the request",
        401: "a token is needed",
        403: "not allowed, or not taken over HTTP",
        404: "there is no such thing",
        409: "the request contradicts an earlier one",
        413: "the body is too large",
        415: "the body is not JSON",
        421: "this host name is not served",
        422: "the body or a parameter has the wrong shape",
        429: "the queue is full",
        503: "the service does not take jobs now",
    }.items()
}


def create_app(service: Service) -> FastAPI:
    """The application of a service that is open."""
    # The documentation pages of FastAPI load scripts from another host, which the policy forbids.
    app = FastAPI(
        title="iceberg-compact-sql",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        responses=_ERRORS,
        # Generated clients name their functions by it.
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    app.include_router(api_jobs.router)
    app.include_router(api_tables.router)
    app.include_router(page.router)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    for path, name in (("/health", "health"), ("/api/v1/health", "api_health")):
        app.add_api_route(path, _health, methods=["GET"], name=name)
    app.add_api_route("/health/live", _live, methods=["GET"], name="live")
    for path, name in (("/metrics", "metrics"), ("/api/v1/metrics", "api_metrics")):
        app.add_api_route(path, _metrics, methods=["GET"], name=name)
    app.add_exception_handler(IcebergCompactError, _own_error)
    app.add_exception_handler(RequestValidationError, _wrong_shape)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(Guard, service=service)
    return app


def _health(request: Request) -> JSONResponse:
    """Whether the service works: 200, or 503 while it starts or fails."""
    health = service_of(request).health()
    return JSONResponse(health, 200 if health["status"] == "ok" else 503)


def _live() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


def _metrics(request: Request) -> Response:
    """The metrics in Prometheus' text format, for tokens that see all tables."""
    service, identity = service_of(request), identity_of(request)
    if not identity.sees_all:
        raise HTTPException(403, "the metrics are for tokens that see all tables")
    return Response(service.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _own_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, IcebergCompactError)
    status = 400
    if isinstance(error, NotFoundError) and error.argument in _RESOURCES:
        status = 404
    elif isinstance(error, NotOverHttpError):
        status = 403
    elif isinstance(error, RequestConflictError):
        status = 409
    elif isinstance(error, QueueFullError):
        status = 429
    return _shown(request, error_json(error), status)


async def _wrong_shape(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason = f"the body is not JSON: {first['ctx']['error']}, at character {first['loc'][-1]}"
        return JSONResponse({"error": {"code": "INVALID_JSON", "message": reason}}, 422)
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "unknown field"
    shown = f"{'.'.join(place)}: {message}" if place else message
    detail = {"code": "INVALID_SHAPE", "message": mask_remembered(shown)[:2000]}
    if place:
        detail["argument"] = place[0]
    return JSONResponse({"error": detail}, 422)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = {"code": _CODES.get(error.status_code, "FAILED"), "message": str(error.detail)}
    return _shown(request, detail, error.status_code, error.headers)


def _shown(request: Request, detail: dict[str, Any], status: int, headers: Any = None) -> Response:
    """The error as JSON; as a page for a browser that asked for one."""
    if "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/"):
        return page.render(request, "error.html", status, status=status, message=detail["message"])
    return JSONResponse({"error": detail}, status, headers=headers)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("unexpected error in %s", request.url.path, exc_info=error)
    message = "the service met an unexpected error; its log has the details"
    return JSONResponse({"error": {"code": "UNEXPECTED", "message": message}}, 500)
