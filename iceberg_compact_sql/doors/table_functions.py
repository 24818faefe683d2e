"""The same names as table functions: rows of what a call would do, never doing it.

A Python table function runs in a worker, lazily, and again for every action and retry. So it only plans: its
arguments are bound as a CALL's with `dry_run`, and the table is opened from the settings that the session had.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from iceberg_compact_sql import errors
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import LATER, Given, bind
from iceberg_compact_sql.call.declaration import Arguments, Column, Procedure, Row
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError, MissingDependencyError
from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.units import plain_python

_OURS_IN_TRACEBACK = re.compile(
    r"^iceberg_compact_sql\.errors\.(\w+): (.+?)(?: SQLSTATE: \w{5})?(?:; line \d+ pos \d+)?;?$", re.MULTILINE
)
_REGISTERED = "_iceberg_compact_functions"
# Every session has functions of its own; `unregister` takes them from all that got them.
_sessions: WeakSet[Any] = WeakSet()


def table_functions() -> tuple[Procedure, ...]:
    """The procedures that are also table functions."""
    return tuple(procedure for procedure in procedures().values() if procedure.table_function)


def keep_current(spark: Any, view: SessionView) -> None:
    """Have every table function on a session, with the catalogs, names and settings that it has now."""
    if getattr(spark, _REGISTERED, None) != view:
        for procedure in table_functions():
            _register(spark, procedure.name, view)
        setattr(spark, _REGISTERED, view)
        _sessions.add(spark)


def unregister_all() -> None:
    """Drop the table functions from every session that got them; one that has ended has none."""
    for spark in tuple(_sessions):
        delattr(spark, _REGISTERED)
        for procedure in table_functions():
            with contextlib.suppress(Exception):
                spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {procedure.name}")
    _sessions.clear()


def result_columns(name: str) -> tuple[Column, ...]:
    """The columns of a table function: those of the dry run."""
    procedure = procedures()[name]
    return procedure.dry_run_columns or procedure.columns


def planned_rows(name: str, view: SessionView, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Row]:
    """The rows that `CALL name(..., dry_run => true)` gives; changes nothing."""
    procedure = procedures()[name]
    context = Context(view)
    try:
        arguments = _bound(procedure, context, args, kwargs)
        return procedure.run(context, arguments)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the Python package '{error.name}' is missing on the Spark workers",
            procedure=name,
            hint="Install iceberg-compact-sql in the Python that spark.pyspark.python or PYSPARK_PYTHON names there.",
        ) from None
    except IcebergCompactError as error:
        raise error.with_procedure(name)  # noqa: B904 - the same error, named


def check(name: str, view: SessionView, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what these arguments of `analyze` would raise later, when a worker's traceback would stand around it.

    Spark calls `current_timestamp() - INTERVAL 7 DAYS` no constant, as it does a column of a LATERAL join: such a value
    is bound when it is there.
    """

    def known(argument: Any) -> Any:
        if argument.isTable:
            raise InvalidArgumentError(
                "a table is given as an argument", procedure=name, hint="Give the table's name as a string."
            )
        return argument.value if argument.isConstantExpression else LATER

    procedure, context = procedures()[name], Context(view)
    try:
        arguments = _bound(procedure, context, tuple(map(known, args)), {k: known(a) for k, a in kwargs.items()})
        if procedure.check is not None:
            procedure.check(context, arguments)
        if arguments["table"] is not None:
            _check_table(context, arguments)
    except IcebergCompactError as error:
        raise error.with_procedure(name)  # noqa: B904 - the same error, named


def _check_table(context: Context, arguments: Arguments) -> None:
    """Raise if the table, or what the arguments name in it, is not there."""
    from iceberg_compact_sql.reclaim.retention import refuse_unknown_ids
    from iceberg_compact_sql.table.inventory import branch_head

    table = context.open_table(arguments["table"]).table
    if "branch" in arguments:
        branch_head(table.metadata, arguments["branch"])
    if arguments.get("snapshot_ids"):
        refuse_unknown_ids(table.metadata, arguments["snapshot_ids"])
    context.read_where(arguments.get("where"), table)


def told_by_worker(error: Exception) -> IcebergCompactError | None:
    """The error of ours that a worker raised, without the worker's traceback around it; None if it is another."""
    found = _OURS_IN_TRACEBACK.search(str(error))
    if found is None:
        return None
    cls: type[IcebergCompactError] = getattr(errors, found[1], IcebergCompactError)
    return cls(found[2])


def _bound(procedure: Procedure, context: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    # Spark hands a timestamp to a Python worker on the clock of the worker's machine.
    given = [Given(plain_python(value)) for value in args]
    given += [Given(plain_python(value), key) for key, value in kwargs.items()]
    arguments = bind(procedure, given, now_ms=context.now_ms, time_zone=lambda: context.view.time_zone)
    return arguments.replace(dry_run=True) if procedure.parameter("dry_run") else arguments


def _register(spark: Any, name: str, view: SessionView) -> None:
    from pyspark.sql.functions import udtf

    class Planned:
        """Filled in by the worker that evaluates the function."""

        @staticmethod
        def analyze(*args: Any, **kwargs: Any) -> Any:
            from pyspark.sql.udtf import AnalyzeResult

            from iceberg_compact_sql.doors import table_functions as functions
            from iceberg_compact_sql.doors.results import spark_schema

            functions.check(name, view, args, kwargs)
            return AnalyzeResult(schema=spark_schema(functions.result_columns(name)))

        def eval(self, *args: Any, **kwargs: Any) -> Iterator[Row]:
            from iceberg_compact_sql.doors import table_functions as functions

            yield from functions.planned_rows(name, view, args, kwargs)

    spark.udtf.register(name, udtf(Planned))
