"""The one family of errors that users see: what was wrong, where, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyspark.errors import AnalysisException

_LONGEST = 10_000


class IcebergCompactError(AnalysisException):
    """A procedure refused or failed; the message starts with the procedure and ends with the next step.

    It is an ``AnalysisException``, so notebooks and dbt show it as one of Spark's own. The session's door
    raises it in the session's flavour (classic or Connect), see ``sql.session``.
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
    ) -> None:
        self.detail = message
        self.procedure = procedure
        self.argument = argument
        self.value = value
        self.line = line
        self.column = column
        self.excerpt = excerpt
        self.hint = hint
        super().__init__(message=self._text())

    def _text(self) -> str:
        # A name of megabytes that nobody has helps nobody in a message.
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
        """The same error under a procedure's name; one that already has a name keeps it."""
        if self.procedure is None:
            self.procedure = procedure
            self._message = self._text()
            self.args = (self._message,)
        return self

    def __str__(self) -> str:
        return self._text()

    def getCondition(self) -> str:
        return self.condition

    getErrorClass = getCondition

    def getSqlState(self) -> str:
        return self.sql_state

    def getMessage(self) -> str:
        return f"[{self.condition}] {self}"

    def __reduce__(self) -> tuple[object, ...]:
        # Spark's exceptions do not pickle by themselves: an error must survive the way back from a task.
        fields = ("procedure", "argument", "value", "line", "column", "excerpt", "hint")
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
    """A concurrent change won; the table is as the others left it."""

    condition = "ICEBERG_COMPACT_CONFLICT"
    sql_state = "40001"


class CommitUnknownError(IcebergCompactError):
    """The catalog did not say whether the commit landed; no file was deleted."""

    condition = "ICEBERG_COMPACT_COMMIT_UNKNOWN"
    sql_state = "08007"


def did_you_mean(given: str, candidates: Iterable[str]) -> str | None:
    """A closing question for a name that is nearly right, or None.

    >>> did_you_mean("targt", ["table", "target"])
    "Did you mean 'target'?"
    """
    close = difflib.get_close_matches(given.lower(), [c.lower() for c in candidates], n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else None


def _public_class(cls: type) -> type[IcebergCompactError]:
    """The class declared in this module that a session-flavoured one was made from."""
    return next(c for c in cls.__mro__ if c.__module__ == __name__)


def _rebuild(cls: type[IcebergCompactError], detail: str, fields: dict[str, object]) -> IcebergCompactError:
    return cls(detail, **fields)  # type: ignore[arg-type]
