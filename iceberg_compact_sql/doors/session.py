"""The Python door: `SparkSession.sql` answers our CALLs; everything else goes to Spark untouched."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import Given, bind
from iceberg_compact_sql.call.declaration import Procedure
from iceberg_compact_sql.call.detect import CalledName, called_name
from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX, SessionView
from iceberg_compact_sql.doors import session_errors as flavour
from iceberg_compact_sql.doors import table_functions as functions
from iceberg_compact_sql.doors.results import Answer, as_dataframe
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.procedures.registry import names, procedures
from iceberg_compact_sql.units import plain_python

_SESSION_CLASSES = ("pyspark.sql.session", "pyspark.sql.connect.session")
_CONF_PREFIXES = ("spark.sql.catalog.", "spark.hadoop.", SETTING_PREFIX)
# Procedures that Iceberg's own jar serves: a qualified call to one of them stays Iceberg's.
_ICEBERG_SERVES = frozenset(
    (
        "rewrite_data_files",
        "rewrite_manifests",
        "rewrite_position_delete_files",
        "remove_orphan_files",
        "expire_snapshots",
    )
)
_FUNCTION = re.compile(r"\b(?:compact_table|expire_snapshots|remove_orphans|score_partitions)\s*`?\s*\(", re.IGNORECASE)
_LTZ = "TIMESTAMP_LTZ"
_VARIABLE = re.compile(r"\$\{(?:(\w+?):)?(\S+?)\}")

_lock = threading.Lock()
_warehouse: str | None = None
_WAREHOUSE = "_iceberg_compact_warehouse"


def register(spark: Any, warehouse: str | Path | None = None) -> Any:
    """Make every procedure available on a session; returns the session.

    May be called again. With `warehouse` the embedded catalog `local` is there too: a SQLite file and tables in that
    folder. Changes nothing in any table.
    """
    global _warehouse
    with _lock:
        if warehouse is not None:
            # New sessions of this process find it too; a session of its own keeps the last one it was given.
            _warehouse = str(Path(warehouse).expanduser().resolve())
            setattr(spark, _WAREHOUSE, _warehouse)
        _use_this_python(spark)
        for module in _SESSION_CLASSES:
            if module in sys.modules:
                _patch(sys.modules[module].SparkSession)
        _patch(_session_class(type(spark)))
    return spark


def unregister(spark: Any) -> Any:
    """Take everything back that `register` did; returns the session."""
    global _warehouse
    with _lock:
        _warehouse = None
        vars(spark).pop(_WAREHOUSE, None)
        for module in _SESSION_CLASSES:
            cls = getattr(sys.modules.get(module), "SparkSession", None)
            original = getattr(getattr(cls, "sql", None), "_iceberg_compact_original", None)
            if cls is not None and original is not None:
                cls.sql = original
        functions.unregister_all()
        catalogs = sys.modules.get("iceberg_compact_sql.catalogs.open_table")
        if catalogs is not None:
            catalogs.close_catalogs()
    return spark


def session_view(spark: Any) -> SessionView:
    """What decides, in this session at this moment, which table a name means."""
    conf = _all_settings(spark)
    kept = {key: value for key, value in conf.items() if key.startswith(_CONF_PREFIXES)}
    return SessionView(
        conf=kept,
        current_catalog=spark.catalog.currentCatalog(),
        current_namespace=tuple(_namespace_parts(spark.catalog.currentDatabase())),
        time_zone=conf.get("spark.sql.session.timeZone") or spark.conf.get("spark.sql.session.timeZone"),
        embedded_warehouse=kept.get(f"{SETTING_PREFIX}warehouse") or getattr(spark, _WAREHOUSE, _warehouse),
    )


def _all_settings(spark: Any) -> dict[str, str]:
    if flavour.is_connect(spark):
        return dict(spark.conf.getAll)
    # `getAll` asks the JVM once for every entry; as one JSON text it is one question.
    mapper = spark._jvm.com.fasterxml.jackson.databind.ObjectMapper()
    settings: dict[str, str] = json.loads(mapper.writeValueAsString(spark._jsparkSession.conf().getAllAsJava()))
    return settings


def _use_this_python(spark: Any) -> None:
    """Let the workers of a local session run this interpreter, which has the packages, unless another was chosen."""
    if flavour.is_connect(spark):
        return
    context = spark.sparkContext
    # What pyspark falls back to; the variable may have been set after the context had looked at it.
    if context.pythonExec != "python3" or os.environ.get("PYSPARK_PYTHON") == "python3":
        return
    # One question: `getConf` copies entry by entry, and `spark.conf` would set up the whole SQL session for it.
    if context.master.startswith("local") and context._conf.get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable


def answer(
    spark: Any, sql: str, args: Mapping[str, Any] | Sequence[Any] | None = None, *, bound_only: bool = False
) -> Answer | None:
    """Run the CALL in `sql` once and give its rows, or None when the statement is not ours.

    With `bound_only` the call is read and bound but not run: the answer has columns and no rows.
    """
    name = called_name(sql)
    if name is None:
        return None
    procedure = names().get(name.procedure)
    if procedure is None or not _is_ours(spark, name):
        return None
    try:
        return _answer(spark, procedure, sql, args, bound_only)
    except IcebergCompactError as error:
        flavour.apply(error, spark)
        raise


def run_procedure(spark: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """A procedure by name with Python values: what the Python twins call; returns the DataFrame of its rows."""
    procedure = names()[name]
    given = [Given(plain_python(value)) for value in args]
    given += [Given(plain_python(value), key) for key, value in kwargs.items()]
    context = Context(functools.partial(session_view, spark), spark=spark)
    try:
        return as_dataframe(spark, _run(procedure, context, given, name, bound_only=False))
    except IcebergCompactError as error:
        flavour.apply(error, spark)
        raise


def _answer(
    spark: Any, procedure: Procedure, sql: str, args: Mapping[str, Any] | Sequence[Any] | None, bound_only: bool
) -> Answer:
    from iceberg_compact_sql.call.grammar import parse_call

    now_ms = int(time.time() * 1000)
    call = parse_call(sql, args=args, now_ms=now_ms, reading=_reading(spark, sql))
    assert call is not None
    context = Context(functools.partial(session_view, spark), spark=spark, now_ms=now_ms, catalog=call.catalog)
    return _run(procedure, context, call.arguments, call.procedure, bound_only=bound_only)


def _reading(spark: Any, sql: str) -> Any:
    """The session's settings that decide what the text means; those that it does not touch are not asked for."""
    from iceberg_compact_sql.call.literals import Reading

    quoting = any(mark in sql for mark in ("\\", "''", '""'))
    return Reading(
        time_zone=spark.conf.get("spark.sql.session.timeZone"),
        escapes=not (quoting and spark.conf.get("spark.sql.parser.escapedStringLiterals", "false") == "true"),
        zoneless="timestamp" in sql.lower() and spark.conf.get("spark.sql.timestampType", _LTZ) != _LTZ,
    )


def _run(procedure: Procedure, context: Context, given: Sequence[Given], called_as: str, *, bound_only: bool) -> Answer:
    try:
        arguments = bind(
            procedure, given, now_ms=context.now_ms, time_zone=lambda: context.view.time_zone, called_as=called_as
        )
        rows = [] if bound_only else procedure.run(context, arguments)
    except IcebergCompactError as error:
        raise error.with_procedure(called_as)  # noqa: B904 - the same error, named
    return Answer(procedure.name, procedure.result_columns(arguments), rows)


def _patch(cls: Any) -> None:
    original = cls.sql
    if hasattr(original, "_iceberg_compact_original"):
        return

    @functools.wraps(original)
    def sql(self: Any, sqlQuery: Any, args: Any = None, **kwargs: Any) -> Any:
        if isinstance(sqlQuery, str):
            if called_name(sqlQuery) is not None:
                result = answer(self, _substituted(self, _formatted(self, sqlQuery, kwargs)), args)
                if result is not None:
                    return as_dataframe(self, result)
            elif _FUNCTION.search(sqlQuery):
                functions.keep_current(self, session_view(self))
                return _selected(self, functools.partial(untouched, self, sqlQuery, args, kwargs))
        return untouched(self, sqlQuery, args, kwargs)

    def untouched(self: Any, query: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return original(self, query, args, **kwargs) if args is not None else original(self, query, **kwargs)

    sql._iceberg_compact_original = original  # type: ignore[attr-defined]
    cls.sql = sql


def _selected(spark: Any, select: Callable[[], Any]) -> Any:
    """Run a statement with a table function; what is wrong with its arguments is told as a CALL would tell it."""
    try:
        return select()
    except AnalysisException as error:
        told = functions.told_by_worker(error)
        if told is None:
            raise
        flavour.apply(told, spark)
        raise told from None


def _session_class(cls: Any) -> Any:
    """The class that defines `sql`: patching it there serves subclasses and new sessions too."""
    return next(base for base in cls.__mro__ if "sql" in vars(base))


def _formatted(spark: Any, sql: str, values: Mapping[str, Any]) -> str:
    """Python-style `{name}` fields filled in by Spark's own formatter."""
    if not values:
        return sql
    module = "pyspark.sql.connect.sql_formatter" if flavour.is_connect(spark) else "pyspark.sql.sql_formatter"
    formatter: Any = import_module(module).SQLStringFormatter(spark)
    try:
        return str(formatter.format(sql, **values))
    finally:
        clear: Callable[[], None] = getattr(formatter, "clear", lambda: None)
        clear()


def _substituted(spark: Any, sql: str) -> str:
    """The text with its `${variables}` filled in, as Spark's parser does before it reads a statement."""
    if "${" not in sql:
        return sql
    if not flavour.is_connect(spark):
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
        return str(spark._jvm.org.apache.spark.sql.internal.VariableSubstitution().substitute(sql))
    if spark.conf.get("spark.sql.variable.substitute", "true") != "true":
        return sql

    def filled(match: re.Match[str]) -> str:
        if match[1] in ("env", "system"):
            # The server's own, and nothing that a client can ask for.
            return match[0]
        return str(spark.conf.get(match[2], "") or "")

    return _VARIABLE.sub(filled, sql)


def _is_ours(spark: Any, name: CalledName) -> bool:
    """Unqualified names are ours; qualified ones too, unless Iceberg's jar serves them for that catalog."""
    if len(name.parts) == 1:
        return True
    if len(name.parts) > 3 or name.parts[-2].lower() != "system":
        return False
    if len(name.parts) == 3 and _is_anothers(spark, name.parts[0]):
        return False
    if name.procedure not in _ICEBERG_SERVES:
        return True
    if (spark.conf.get(f"{SETTING_PREFIX}takeover", "false") or "").lower() == "true":
        return True
    catalog = name.parts[0] if len(name.parts) == 3 else spark.catalog.currentCatalog()
    return not _iceberg_serves(spark, catalog)


def _is_anothers(spark: Any, catalog: str) -> bool:
    """Whether the session has a catalog of this name that is not Iceberg's: its procedures are its own."""
    from iceberg_compact_sql.catalogs.spark_conf import CATALOG_PREFIX, ICEBERG_PLUGINS

    implementation = spark.conf.get(f"{CATALOG_PREFIX}{catalog}", None)
    return bool(implementation) and implementation not in ICEBERG_PLUGINS


def _iceberg_serves(spark: Any, catalog: str) -> bool:
    """Whether the session has Iceberg's catalog under this name and can load its classes."""
    implementation = spark.conf.get(f"spark.sql.catalog.{catalog}", None) or ""
    if not implementation.startswith("org.apache.iceberg."):
        return False
    try:
        spark.sql(f"SHOW NAMESPACES IN `{catalog.replace('`', '``')}`").schema  # noqa: B018 - loads the catalog
    except Exception as error:
        # Configured without the jar: the class is not there, so nobody but us can serve the call.
        return "CATALOG_PLUGIN" not in str(error) and "Cannot find catalog plugin class" not in str(error)
    return True


def _namespace_parts(text: str) -> list[str]:
    return [part.replace("``", "`") if quoted else part for quoted, part in _split_quoted(text)]


def _split_quoted(text: str) -> list[tuple[bool, str]]:
    matches = re.findall(r"`((?:[^`]|``)+)`|([^.`]+)", text)
    return [(bool(quoted), quoted or plain) for quoted, plain in matches]


def twin(procedure: Procedure) -> Callable[..., Any]:
    """The Python function of a procedure: the same name, arguments and result as its CALL."""
    import inspect

    def call(spark: Any, *args: Any, **kwargs: Any) -> Any:
        return run_procedure(spark, procedure.name, *args, **kwargs)

    call.__name__ = call.__qualname__ = procedure.name
    call.__module__ = "iceberg_compact_sql"
    lines = [f"{p.name}: {p.meaning} ({p.shown_kind}; {p.shown_default})" for p in procedure.parameters]
    call.__doc__ = f"{procedure.summary}\n\nThe same as `{procedure.example}`.\n\n" + "\n".join(lines)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("spark", kind),
            *(
                inspect.Parameter(p.name, kind, default=inspect.Parameter.empty if p.required else None)
                for p in procedure.parameters
            ),
        ]
    )
    return call


def twins() -> dict[str, Callable[..., Any]]:
    """All Python twins by name."""
    return {name: twin(procedure) for name, procedure in procedures().items()}
