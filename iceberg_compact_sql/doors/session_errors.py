"""Errors as the session's users expect them: with Spark's exception classes, Iceberg's text, and no credential."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from iceberg_compact_sql.call.iceberg_errors import as_iceberg_error
from iceberg_compact_sql.engine.cluster import is_connect
from iceberg_compact_sql.errors import IcebergCompactError, IcebergKind, NotFoundError, did_you_mean
from iceberg_compact_sql.redaction import mask_remembered

_T = TypeVar("_T")
# Spark's errors for a CALL of a procedure that no catalog has: conditions in 4.x, a syntax error at CALL in 3.5.
_NO_SUCH_PROCEDURE = re.compile(
    r"\[(?:MISSING_CATALOG_ABILITY\.PROCEDURES|UNRESOLVED_(?:ROUTINE|PROCEDURE)|(?:ROUTINE|PROCEDURE)_NOT_FOUND"
    r"|FAILED_TO_LOAD_ROUTINE)\b"
    r"|^\s*\[PARSE_SYNTAX_ERROR\] Syntax error at or near 'CALL'"
    r"|[Pp]rocedure \S+ (?:does not exist|not found)|(?:Cannot find|no such) procedure",
)
# A name that is less similar is more likely another system's procedure than a typing error.
_LEAST_SIMILARITY = 0.75


def suggest_procedure(error: Exception, name: str, known: Iterable[str]) -> None:
    """Add "Did you mean" to Spark's error when no procedure has this name and one of ours is similar.

    The error keeps its class and condition; any other error of Spark stays as it is.
    """
    suggestion = did_you_mean(name, known, least_similarity=_LEAST_SIMILARITY)
    if suggestion is None or not _NO_SUCH_PROCEDURE.search(str(error)):
        return
    # The attributes that Spark's exceptions print; they differ between classic and Connect.
    for attribute in ("_desc", "_msg", "_message"):
        text = vars(error).get(attribute)
        if isinstance(text, str) and text:
            setattr(error, attribute, f"{text}\n{suggestion}")
    if suggestion not in str(error):
        raise NotFoundError(f"there is no procedure '{name}'", hint=suggestion) from error


def show_as_iceberg(error: IcebergCompactError, procedure: str) -> None:
    """Give the error the message and condition of Iceberg's own procedure, where that has such an error."""
    iceberg_error = as_iceberg_error(error, procedure)
    if iceberg_error is not None:
        error.show_as(replace(iceberg_error, message=mask_remembered(iceberg_error.message)))


def add_spark_classes(error: IcebergCompactError, spark: Any) -> None:
    """Make `error` also an AnalysisException of the session's kind, classic or Connect, for `except` clauses.

    It also becomes an IllegalArgumentException where Iceberg's procedure raises one.
    """
    cls: Any = type(error)
    if getattr(cls, "_has_spark_classes", False):
        return
    module = "pyspark.errors.exceptions.connect" if is_connect(spark) else "pyspark.errors.exceptions.captured"
    pyspark_errors = import_module(module)
    bases = [pyspark_errors.AnalysisException]
    if error.shown_as is not None and error.shown_as.kind is IcebergKind.ILLEGAL_ARGUMENT:
        bases.append(pyspark_errors.IllegalArgumentException)
    error.__class__ = _with_bases(cls, *bases)
    if not is_connect(spark):
        # Attributes that Spark's methods read; its own exceptions get them from the JVM.
        error.__dict__.update(_origin=None, _desc=str(error), _stackTrace="", _cause=None)


def guarded(procedure: str, work: Callable[[], _T]) -> _T:
    """Run `work`; its errors get the procedure's name, and neither they nor their causes show a credential."""
    try:
        return work()
    except IcebergCompactError as error:
        raise without_secrets(error.with_procedure(procedure))  # noqa: B904 - the same error, named
    except KeyboardInterrupt as interrupt:
        # An interrupt during a commit says in its text what is in the table.
        interrupt.args = tuple(mask_remembered(str(argument)) for argument in interrupt.args)
        _drop_causes_with_secrets(interrupt)
        raise
    except Exception as error:
        wrapped = wrapped_if_secret(error)
        if wrapped is None:
            raise
    # Raise after the handler: inside it, the error with the credential would become the context.
    raise wrapped.with_procedure(procedure)


def without_secrets(error: IcebergCompactError) -> IcebergCompactError:
    """Mask every credential that this process knows in the error and its causes; returns the same error."""
    _drop_causes_with_secrets(error)
    error.detail = mask_remembered(error.detail)
    error.hint = error.hint and mask_remembered(error.hint)
    error.excerpt = error.excerpt and mask_remembered(error.excerpt)
    if _has_secret(str(error.value)):
        error.value = mask_remembered(str(error.value))
    error.args = (str(error),)
    error.__dict__["_message"] = str(error)
    return error


def wrapped_if_secret(error: Exception) -> IcebergCompactError | None:
    """Return our own error, masked, for one that shows a credential; None when it shows none."""
    if not any(map(_has_secret, (*_texts(error), *_chain_texts(error)))):
        return None
    message = f"{type(error).__name__}: {mask_remembered(str(error))}"
    return IcebergCompactError(
        message, hint="Credentials are masked. Correct what the message names, then run it again."
    )


def _has_secret(text: str) -> bool:
    return mask_remembered(text) != text


def _drop_causes_with_secrets(error: BaseException) -> None:
    """Remove cause and context of an error when one of them shows a credential; mask its notes."""
    if any(map(_has_secret, _chain_texts(error))):
        error.__cause__ = error.__context__ = None
        error.__suppress_context__ = True
    if notes := getattr(error, "__notes__", None):
        error.__notes__ = [mask_remembered(str(note)) for note in notes]


def _chain_texts(error: BaseException) -> Iterator[str]:
    """The texts of all other errors that a traceback of this error shows."""
    seen, waiting = {id(error)}, _related(error)
    while waiting:
        related = waiting.pop()
        if id(related) not in seen:
            seen.add(id(related))
            yield from _texts(related)
            waiting += _related(related)


def _related(error: BaseException) -> list[BaseException]:
    # Members of an ExceptionGroup, from Python 3.11 on.
    members: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    related = (error.__cause__, error.__context__, *(members if isinstance(members, tuple) else ()))
    return [earlier for earlier in related if isinstance(earlier, BaseException)]


def _texts(error: BaseException) -> Iterator[str]:
    yield from (str(error), repr(error.args), *map(str, getattr(error, "__notes__", ())))


@cache
def _with_bases(cls: Any, *bases: Any) -> Any:
    def reduce(self: Any) -> Any:
        # pickle finds a class by its name: use the class without the added bases.
        rebuild, (_, *facts) = cls.__reduce__(self)
        return rebuild, (cls, *facts)

    members = {"__module__": cls.__module__, "__doc__": cls.__doc__, "_has_spark_classes": True, "__reduce__": reduce}
    return type(cls.__name__, (cls, *bases), members)
