"""All errors that users see: what is wrong, where, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from pyspark.errors import AnalysisException

_LONGEST = 10_000


class IcebergKind(str, Enum):
    """The Java exception that a caller of Iceberg's own procedure gets."""

    ANALYSIS = "AnalysisException"
    ILLEGAL_ARGUMENT = "IllegalArgumentException"
    VALIDATION = "ValidationException"
    RUNTIME = "RuntimeException"


@dataclass(frozen=True)
class IcebergError:
    """The same failure in the words of Iceberg's own procedure, or of Spark's binding of its arguments.

    `condition` and `sql_state` are those of Spark; Iceberg's own exceptions have none.
    """

    message: str
    kind: IcebergKind = IcebergKind.ILLEGAL_ARGUMENT
    condition: str | None = None
    sql_state: str | None = None

    @property
    def text(self) -> str:
        """The message as the exception shows it."""
        return f"[{self.condition}] {self.message} SQLSTATE: {self.sql_state}" if self.condition else self.message


class IcebergCompactError(AnalysisException):
    """A procedure refused or failed; the message starts with the procedure and ends with the next step.

    It is an ``AnalysisException``, so notebooks and dbt show it like an error of Spark. The session raises a
    subclass that is also the session's own AnalysisException, classic or Connect: see ``doors.session_errors``.
    """

    condition = "ICEBERG_COMPACT_FAILED"
    sql_state = "38000"

    def __init__(
        self,
        message: str,
        *,
        procedure: str | None = None,
        argument: str | None = None,
        value: object = None,
        line: int | None = None,
        column: int | None = None,
        excerpt: str | None = None,
        hint: str | None = None,
        iceberg: IcebergError | None = None,
    ) -> None:
        self.detail = message
        self.procedure = procedure
        self.argument = argument
        self.value = value
        self.line = line
        self.column = column
        self.excerpt = excerpt
        self.hint = hint
        self.iceberg = iceberg
        # Set when the error is shown as Iceberg's own procedure shows it.
        self.shown_as: IcebergError | None = None
        super().__init__(message=self._text())

    def _text(self) -> str:
        # Keep the message short when a value is megabytes long.
        detail = self.detail if len(self.detail) <= _LONGEST else f"{self.detail[:_LONGEST]}..."
        text = f"{self.procedure}: {detail}" if self.procedure else detail
        if self.line is not None and self.column is not None:
            text = f"{text} (line {self.line}, column {self.column})"
        if self.hint:
            text = f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {self.hint}"
        if self.excerpt:
            text = f"{text}\n\n{self.excerpt}"
        return text

    def with_procedure(self, procedure: str) -> IcebergCompactError:
        """Set the procedure's name if the error has none; return the error."""
        if self.procedure is None:
            self.procedure = procedure
            self._message = self._text()
            self.args = (self._message,)
        return self

    def show_as(self, iceberg: IcebergError) -> None:
        """Show the error as Iceberg's own procedure does: with its condition, and its message before ours."""
        self.shown_as = iceberg
        if iceberg.condition is not None:
            self.condition = iceberg.condition
        self.sql_state = iceberg.sql_state or self.sql_state
        self._message = str(self)
        self.args = (self._message,)

    def __str__(self) -> str:
        text = self._text()
        return text if self.shown_as is None or self.shown_as.text == text else f"{self.shown_as.text}\n{text}"

    def getCondition(self) -> str:
        return self.condition

    getErrorClass = getCondition

    def getSqlState(self) -> str:
        return self.sql_state

    def getMessage(self) -> str:
        return f"[{self.condition}] {self}" if self.shown_as is None else str(self)

    def __reduce__(self) -> tuple[object, ...]:
        # Spark's exceptions cannot be pickled, but errors of tasks are sent back to the driver.
        fields = ("procedure", "argument", "value", "line", "column", "excerpt", "hint", "iceberg")
        return _rebuild, (_public_class(type(self)), self.detail, {name: getattr(self, name) for name in fields})


class CallSyntaxError(IcebergCompactError):
    """The text of a CALL cannot be read."""

    condition = "ICEBERG_COMPACT_SYNTAX"
    sql_state = "42601"


class InvalidArgumentError(IcebergCompactError):
    """An argument is unknown, missing, given twice, of the wrong type or out of bounds."""

    condition = "ICEBERG_COMPACT_INVALID_ARGUMENT"
    sql_state = "22023"


class NotFoundError(IcebergCompactError):
    """A catalog, table, branch, snapshot or column does not exist."""

    condition = "ICEBERG_COMPACT_NOT_FOUND"
    sql_state = "42704"


class UnsupportedError(IcebergCompactError):
    """The table or the request uses something that this version refuses to touch."""

    condition = "ICEBERG_COMPACT_UNSUPPORTED"
    sql_state = "0A000"


class MissingDependencyError(IcebergCompactError):
    """Something must be installed first; the message says what and where."""

    condition = "ICEBERG_COMPACT_MISSING_DEPENDENCY"
    sql_state = "58000"


class RewriteFailedError(IcebergCompactError):
    """Files could not be rewritten; nothing of the failed groups is in the table."""

    condition = "ICEBERG_COMPACT_REWRITE_FAILED"


class CommitConflictError(IcebergCompactError):
    """A commit conflicts with a concurrent change; the table has only the changes of other writers."""

    condition = "ICEBERG_COMPACT_CONFLICT"
    sql_state = "40001"


class CommitUnknownError(IcebergCompactError):
    """The catalog did not say whether the commit landed; no file was deleted."""

    condition = "ICEBERG_COMPACT_COMMIT_UNKNOWN"
    sql_state = "08007"


class RunCancelledError(IcebergCompactError):
    """The run was cancelled from outside; `result` holds what it had done until then."""

    condition = "ICEBERG_COMPACT_CANCELLED"
    # As Spark's own OPERATION_CANCELED.
    sql_state = "HY008"
    result: object = None


def did_you_mean(given: str, candidates: Iterable[str], *, least_similarity: float = 0.6) -> str | None:
    """Return a suggestion for a misspelled name, or None.

    >>> did_you_mean("targt", ["table", "target"])
    "Did you mean 'target'?"
    """
    close = difflib.get_close_matches(given.lower(), [c.lower() for c in candidates], n=1, cutoff=least_similarity)
    return f"Did you mean '{close[0]}'?" if close else None


def _public_class(cls: type) -> type[IcebergCompactError]:
    """Return the class of this module that a session's subclass was made from."""
    return next(c for c in cls.__mro__ if c.__module__ == __name__)


def _rebuild(cls: type[IcebergCompactError], detail: str, fields: dict[str, object]) -> IcebergCompactError:
    return cls(detail, **fields)  # type: ignore[arg-type]
