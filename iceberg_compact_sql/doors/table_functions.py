"""Procedures as table functions: `SELECT * FROM compact_table(...)` gives the rows of a dry run.

A Python table function runs in a worker, lazily, and again for every action and retry. So it only plans: its
arguments are bound like those of a CALL with `dry_run`, and the table is opened with the session's settings.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from weakref import WeakSet

from iceberg_compact_sql import errors
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import LATER, bind, given_arguments
from iceberg_compact_sql.call.declaration import Arguments, Procedure, Row
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.doors.results import spark_schema
from iceberg_compact_sql.doors.session_errors import guarded
from iceberg_compact_sql.engine.cluster import Cluster
from iceberg_compact_sql.engine.shipping import code_loader, packed, unpacked
from iceberg_compact_sql.engine.spark_errors import missing_package
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError, MissingDependencyError
from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.procedures.run_procedure import check_call
from iceberg_compact_sql.redaction import mask_rows

_T = TypeVar("_T")
_OUR_ERROR_IN_TRACEBACK = re.compile(
    r"^iceberg_compact_sql\.errors\.(\w+): (.+?)(?: SQLSTATE: \w{5})?(?:; line \d+ pos \d+)?;?$", re.MULTILINE
)
_REGISTERED = "_iceberg_compact_functions"
# Each session has its own functions; `unregister` removes them from all sessions in this set.
_sessions: WeakSet[Any] = WeakSet()


def table_functions() -> tuple[Procedure, ...]:
    """The procedures that are also table functions."""
    return tuple(procedure for procedure in procedures().values() if procedure.table_function)


def register_current(spark: Any, view: SessionView) -> None:
    """Register every table function again when the session's catalogs, names or settings have changed."""
    if getattr(spark, _REGISTERED, None) != view:
        for procedure in table_functions():
            _register(spark, procedure.name, view)
        setattr(spark, _REGISTERED, view)
        _sessions.add(spark)


def unregister_all() -> None:
    """Drop the table functions from every session that has them; a session that has ended is skipped."""
    for spark in tuple(_sessions):
        delattr(spark, _REGISTERED)
        for procedure in table_functions():
            with contextlib.suppress(Exception):
                spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {procedure.name}")
    _sessions.clear()


def planned_rows(name: str, packed_view: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
    """Return the rows of `CALL name(..., dry_run => true)`; changes nothing. Runs in a Python worker."""
    procedure, context = procedures()[name], Context(unpacked(packed_view))
    return _in_worker(name, lambda: mask_rows(procedure.run(context, _bound(procedure, context, args, kwargs))))


def analyzed(name: str, packed_view: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the columns of a table function: those of the dry run. Runs in a Python worker.

    Raises for wrong arguments: an error of `planned_rows` would be wrapped in a worker's traceback.
    `current_timestamp() - INTERVAL 7 DAYS` is not a constant to Spark, and neither is a column of a LATERAL join. Such
    a value is checked only when the function runs.
    """
    from pyspark.sql.udtf import AnalyzeResult

    def constant(argument: Any) -> Any:
        if argument.isTable:
            raise InvalidArgumentError(
                "a table is given as an argument", procedure=name, hint="Give the table's name as a string."
            )
        return argument.value if argument.isConstantExpression else LATER

    procedure, context = procedures()[name], Context(unpacked(packed_view))

    def check() -> None:
        arguments = _bound(procedure, context, tuple(map(constant, args)), {k: constant(a) for k, a in kwargs.items()})
        check_call(procedure, context, arguments)

    _in_worker(name, check)
    return AnalyzeResult(schema=spark_schema(procedure.dry_run_columns or procedure.columns))


def error_from_worker(error: Exception) -> IcebergCompactError | None:
    """Return our error that a worker raised, without the worker's traceback; None for any other error."""
    match = _OUR_ERROR_IN_TRACEBACK.search(str(error))
    if match is None:
        return missing_package(error)
    cls: type[IcebergCompactError] = getattr(errors, match[1], IcebergCompactError)
    return cls(match[2])


def _in_worker(name: str, work: Callable[[], _T]) -> _T:
    """Run `work`; a package that the worker lacks is named in one sentence."""

    def run() -> _T:
        try:
            return work()
        except ModuleNotFoundError as error:
            # Only some tables and arguments need it: sqlalchemy for JDBC catalogs, sqlglot for `where`.
            raise MissingDependencyError(
                f"the Python package '{error.name}' is missing on the Spark workers",
                hint="Install iceberg-compact-sql in the Python that spark.pyspark.python or PYSPARK_PYTHON names"
                " there.",
            ) from None

    return guarded(name, run)


def _bound(procedure: Procedure, context: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    # Spark gives a timestamp to a Python worker as local time of the worker's machine.
    given = given_arguments(*args, **kwargs)
    arguments = bind(procedure, given, now_ms=context.now_ms, time_zone=lambda: context.view.time_zone)
    return arguments.replace(dry_run=True) if procedure.parameter("dry_run") else arguments


def _register(spark: Any, name: str, view: SessionView) -> None:
    from pyspark.sql.functions import udtf

    # A worker may not have this package: the class refers to our code and to the view only through these two.
    load, payload = code_loader(prefer_shipped=not Cluster.of(spark).is_local), packed(view)
    module_name = __name__

    class Planned:
        """The table function; `analyze` and `eval` run in a Python worker."""

        @staticmethod
        def analyze(*args: Any, **kwargs: Any) -> Any:
            return load(module_name, "analyzed")(name, payload, args, kwargs)

        def eval(self, *args: Any, **kwargs: Any) -> Iterator[Row]:
            yield from load(module_name, "planned_rows")(name, payload, args, kwargs)

    spark.udtf.register(name, udtf(Planned))
