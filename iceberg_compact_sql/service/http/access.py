"""What handlers share: the service, the owner of the token, roles, and what a token may see."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.exceptions import HTTPException

from iceberg_compact_sql.errors import NotFoundError
from iceberg_compact_sql.service.jobs import Job
from iceberg_compact_sql.service.process import Service
from iceberg_compact_sql.service.tokens import ANYBODY, Identity, Role


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def identity_of(request: Request) -> Identity:
    identity: Identity | None = getattr(request.state, "identity", None)
    return identity or ANYBODY


def require_role(request: Request, role: Role) -> Identity:
    """The owner of the token; raises 403 when its role does not reach."""
    identity = identity_of(request)
    if identity.role < role:
        message = f"this token is a {identity.role.name.lower()}, and this needs the role {role.name.lower()}"
        raise HTTPException(403, message)
    return identity


def require_jobs(request: Request) -> Service:
    """The service, if it takes jobs now; raises 503 on a standby and while it stops."""
    service = service_of(request)
    if not service.accepts_jobs:
        raise HTTPException(503, "this process does not take jobs now: it is a standby or it stops")
    return service


def require_sight(identity: Identity, table: str | None) -> None:
    """Raise the error of a table that does not exist when the token may not see it."""
    if not identity.sees(table):
        raise NotFoundError(f"there is no table '{table}' for this token", argument="table", value=table)


def visible_job(request: Request, job_id: str) -> Job:
    """The job with its live progress; raises NotFoundError also for one that the token may not see."""
    service = service_of(request)
    job = service.queue.require(job_id)
    if not identity_of(request).sees(job.table):
        raise NotFoundError(f"there is no job {job_id!r}", argument="job_id", value=job_id)
    return service.live(job)


def origin_of(request: Request) -> dict[str, Any]:
    """Who asks and from where, for the audit."""
    address = request.client.host if request.client is not None else None
    return {"who": f"api:{identity_of(request).name}", "address": address}


def source_of(request: Request) -> str:
    """The source of a job: the page, or the token of an API client."""
    return "page" if request.headers.get("x-requested-by") == "page" else f"api:{identity_of(request).name}"
