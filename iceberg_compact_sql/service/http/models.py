"""The bodies of requests, for validation and OpenAPI. Types at module level: FastAPI resolves them by name."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr, model_validator

_NAME = Field(max_length=1000)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CompactBody(_Body):
    """A compaction of one table, by strategy and options."""

    table: StrictStr = _NAME
    catalog: StrictStr | None = Field(default=None, max_length=200)
    namespace: StrictStr | None = Field(default=None, max_length=1000)
    strategy: StrictStr | None = Field(default=None, max_length=100)
    options: dict[str, Any] = {}


class JobBody(_Body):
    """A call of a procedure: by name and arguments, or as the text of one CALL."""

    procedure: StrictStr | None = Field(default=None, max_length=100)
    table: StrictStr | None = Field(default=None, max_length=1000)
    arguments: dict[str, Any] = {}
    call: StrictStr | None = Field(default=None, max_length=60_000)

    @model_validator(mode="after")
    def _one_form(self) -> JobBody:
        if (self.procedure is None) == (self.call is None):
            raise ValueError("give either procedure (with table and arguments) or call")
        if self.call is not None and (self.table is not None or self.arguments):
            raise ValueError("call stands alone, without table and arguments")
        return self


class EventsBody(_Body):
    """Tables that were committed to."""

    table: StrictStr | None = Field(default=None, max_length=1000)
    tables: list[StrictStr] = Field(default=[], max_length=1000)

    @model_validator(mode="after")
    def _some(self) -> EventsBody:
        if (self.table is None) == (not self.tables):
            raise ValueError("give either table or tables")
        return self

    def all(self) -> list[str]:
        return [*self.tables, *([] if self.table is None else [self.table])]


class Accepted(BaseModel):
    """A job that was taken."""

    job_id: str
    status: str
    created_at: str | None
    estimated_duration_seconds: float | None
    joined: bool


class ErrorDetail(BaseModel):
    code: str
    message: str
    argument: str | None = None
    hint: str | None = None


class ErrorBody(BaseModel):
    error: ErrorDetail
