"""Errors in the flavour of the session that raised them: classic or Connect."""

from __future__ import annotations

from functools import cache
from typing import Any

from iceberg_compact_sql.errors import IcebergCompactError


def is_connect(spark: Any) -> bool:
    """Whether a session talks to a Spark Connect server."""
    return ".connect." in f"{type(spark).__module__}."


def apply(error: IcebergCompactError, spark: Any) -> None:
    """Make `error` an AnalysisException of the session's own family too, as `except` clauses there expect."""
    cls: Any = type(error)
    if getattr(cls, "_flavoured", False):
        return
    if is_connect(spark):
        from pyspark.errors.exceptions.connect import AnalysisException as Connect

        error.__class__ = _flavoured(cls, Connect)
        return
    from pyspark.errors.exceptions.captured import AnalysisException as Classic

    error.__class__ = _flavoured(cls, Classic)
    # What Spark's own methods read of an exception that came out of the JVM; ours did not.
    error.__dict__.update(_origin=None, _desc=str(error), _stackTrace="", _cause=None)


@cache
def _flavoured(cls: Any, base: Any) -> Any:
    def reduce(self: Any) -> Any:
        # Only the plain class can be found by name again.
        rebuild, (_, *facts) = cls.__reduce__(self)
        return rebuild, (cls, *facts)

    members = {"__module__": cls.__module__, "__doc__": cls.__doc__, "_flavoured": True, "__reduce__": reduce}
    return type(cls.__name__, (cls, base), members)
