"""The Python door: `SparkSession.sql` runs our CALLs and passes every other statement to Spark unchanged."""

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
from iceberg_compact_sql.call.binding import GivenArgument, given_arguments
from iceberg_compact_sql.call.declaration import Procedure
from iceberg_compact_sql.call.detect import CalledName, called_name
from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX, SessionView
from iceberg_compact_sql.doors import session_errors, table_functions
from iceberg_compact_sql.doors.results import Answer, as_dataframe
from iceberg_compact_sql.engine.cluster import is_connect
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.events import Observer
from iceberg_compact_sql.procedures.registry import iceberg_names, names, procedures
from iceberg_compact_sql.procedures.run_procedure import bind_call, run_procedure
from iceberg_compact_sql.redaction import mask_rows

_SESSION_CLASSES = ("pyspark.sql.session", "pyspark.sql.connect.session")
CONF_PREFIXES = ("spark.sql.catalog.", "spark.hadoop.", SETTING_PREFIX)
# Written out, so that a session starts without loading every procedure; a test compares it with the declarations.
TABLE_FUNCTIONS = ("compact_table", "expire_snapshots", "remove_orphans", "score_partitions", "score_tables")
_FUNCTION = re.compile(rf"\b(?:{'|'.join(TABLE_FUNCTIONS)})\s*`?\s*\(", re.IGNORECASE)
# Settings that decide what the text of a call means.
ESCAPED_LITERALS, TIMESTAMP_TYPE, LTZ = (
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.timestampType",
    "TIMESTAMP_LTZ",
)
_VARIABLE = re.compile(r"\$\{(?:(\w+?):)?(\S+?)\}")

_lock = threading.Lock()
_warehouse: str | None = None
_WAREHOUSE = "_iceberg_compact_warehouse"


def register(spark: Any, warehouse: str | Path | None = None) -> Any:
    """Make every procedure available on a session; returns the session.

    It may be called again. `warehouse` adds the embedded catalog `local`: a SQLite file and tables in that folder. No
    table is changed.
    """
    global _warehouse
    with _lock:
        if warehouse is not None:
            # New sessions of this process use it too. A session keeps the last warehouse that was set for it.
            _warehouse = str(Path(warehouse).expanduser().resolve())
            setattr(spark, _WAREHOUSE, _warehouse)
        _use_this_python(spark)
        for module in _SESSION_CLASSES:
            if module in sys.modules:
                _patch(sys.modules[module].SparkSession)
        _patch(_session_class(type(spark)))
    return spark


def unregister(spark: Any) -> Any:
    """Undo everything that `register` did; returns the session."""
    global _warehouse
    with _lock:
        _warehouse = None
        vars(spark).pop(_WAREHOUSE, None)
        for module in _SESSION_CLASSES:
            cls = getattr(sys.modules.get(module), "SparkSession", None)
            original = getattr(getattr(cls, "sql", None), "_iceberg_compact_original", None)
            if cls is not None and original is not None:
                cls.sql = original
        table_functions.unregister_all()
        catalogs = sys.modules.get("iceberg_compact_sql.catalogs.open_table")
        if catalogs is not None:
            catalogs.close_catalogs()
    return spark


def session_view(spark: Any) -> SessionView:
    """Read the settings that decide which table a name means in this session now."""
    conf = _all_settings(spark)
    relevant = {key: value for key, value in conf.items() if key.startswith(CONF_PREFIXES)}
    return SessionView(
        conf=relevant,
        current_catalog=spark.catalog.currentCatalog(),
        current_namespace=tuple(_namespace_parts(spark.catalog.currentDatabase())),
        time_zone=conf.get("spark.sql.session.timeZone") or spark.conf.get("spark.sql.session.timeZone"),
        embedded_warehouse=relevant.get(f"{SETTING_PREFIX}warehouse") or getattr(spark, _WAREHOUSE, _warehouse),
        case_sensitive=conf.get("spark.sql.caseSensitive", "false").lower() == "true",
    )


def _all_settings(spark: Any) -> dict[str, str]:
    if is_connect(spark):
        return dict(spark.conf.getAll)
    # `getAll` calls the JVM once for every entry. All entries as one JSON text need one call.
    mapper = spark._jvm.com.fasterxml.jackson.databind.ObjectMapper()
    settings: dict[str, str] = json.loads(mapper.writeValueAsString(spark._jsparkSession.conf().getAllAsJava()))
    return settings


def _use_this_python(spark: Any) -> None:
    """Make the workers of a local session use this interpreter, which has the packages, unless another is set."""
    if is_connect(spark):
        return
    context = spark.sparkContext
    # "python3" is pyspark's fallback. The variable may have been set after the context read it.
    if context.pythonExec != "python3" or os.environ.get("PYSPARK_PYTHON") == "python3":
        return
    # Read one key: `getConf` would copy all entries, and `spark.conf` would start the whole SQL session.
    if context.master.startswith("local") and context._conf.get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable


def answer(
    spark: Any,
    sql: str,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    bound_only: bool = False,
    observer: Observer | None = None,
) -> Answer | None:
    """Run the CALL in `sql` once and return its rows; None when the statement is not ours.

    With `bound_only` the call is parsed and bound but not run: the answer has columns and no rows. `observer` receives
    the events of the run and can cancel it.
    """
    name = called_name(sql)
    if name is None:
        return None
    procedure = names().get(name.procedure)
    if procedure is None or not _is_ours(spark, name):
        return None
    try:
        return _answer(spark, procedure, sql, args, bound_only, observer)
    except IcebergCompactError as error:
        if len(name.parts) > 1 and name.procedure in iceberg_names():
            session_errors.show_as_iceberg(error, name.procedure)
        session_errors.add_spark_classes(error, spark)
        raise


def call_procedure(spark: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Run a procedure by name with Python values, as the Python functions do; returns the DataFrame of its rows."""
    procedure = names()[name]
    given = given_arguments(*args, **kwargs)
    context = Context(functools.partial(session_view, spark), spark=spark)
    try:
        return as_dataframe(spark, run_call(procedure, context, given, name))
    except IcebergCompactError as error:
        session_errors.add_spark_classes(error, spark)
        raise


def _answer(
    spark: Any,
    procedure: Procedure,
    sql: str,
    args: Mapping[str, Any] | Sequence[Any] | None,
    bound_only: bool,
    observer: Observer | None,
) -> Answer:
    from iceberg_compact_sql.call.grammar import parse_call

    now_ms = int(time.time() * 1000)
    call = parse_call(sql, args=args, now_ms=now_ms, settings=_text_settings(spark, sql))
    assert call is not None
    view = functools.partial(session_view, spark)
    context = Context(view, spark=spark, now_ms=now_ms, catalog=call.catalog, observer=observer)
    return run_call(procedure, context, call.arguments, call.procedure, qualified=call.qualified, bound_only=bound_only)


def _text_settings(spark: Any, sql: str) -> Any:
    """The session's settings that decide what the text means; read only those that the text depends on."""
    from iceberg_compact_sql.call.literals import TextSettings

    has_escapes = any(mark in sql for mark in ("\\", "''", '""'))
    return TextSettings(
        time_zone=spark.conf.get("spark.sql.session.timeZone"),
        escapes=not (has_escapes and spark.conf.get(ESCAPED_LITERALS, "false") == "true"),
        zoneless="timestamp" in sql.lower() and spark.conf.get(TIMESTAMP_TYPE, LTZ) != LTZ,
    )


def run_call(
    procedure: Procedure,
    context: Context,
    given: Sequence[GivenArgument],
    called_as: str,
    *,
    qualified: bool = False,
    bound_only: bool = False,
) -> Answer:
    """Bind and run a call once; its errors have the name of the procedure, and nothing of it holds a credential."""

    def run() -> Answer:
        arguments = bind_call(procedure, context, given, called_as, qualified=qualified)
        rows = [] if bound_only else mask_rows(run_procedure(procedure, context, arguments, called_as))
        return Answer(procedure.name, procedure.result_columns(arguments), rows)

    return session_errors.guarded(called_as, run)


def _patch(cls: Any) -> None:
    original = cls.sql
    if hasattr(original, "_iceberg_compact_original"):
        return

    @functools.wraps(original)
    def sql(self: Any, sqlQuery: Any, args: Any = None, **kwargs: Any) -> Any:
        if isinstance(sqlQuery, str):
            if called_name(sqlQuery) is not None:
                result = answer(self, _substitute_variables(self, _format_fields(self, sqlQuery, kwargs)), args)
                if result is not None:
                    return as_dataframe(self, result)
                return _run_foreign_call(sqlQuery, functools.partial(run_original, self, sqlQuery, args, kwargs))
            if _FUNCTION.search(sqlQuery):
                table_functions.register_current(self, session_view(self))
                return _select_from_function(self, functools.partial(run_original, self, sqlQuery, args, kwargs))
        return run_original(self, sqlQuery, args, kwargs)

    def run_original(self: Any, query: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return original(self, query, args, **kwargs) if args is not None else original(self, query, **kwargs)

    sql._iceberg_compact_original = original  # type: ignore[attr-defined]
    cls.sql = sql


def _run_foreign_call(sql: str, run: Callable[[], Any]) -> Any:
    """Run a CALL that is not ours; when Spark has no such procedure, its error suggests one of ours."""
    try:
        return run()
    except Exception as error:
        name = called_name(sql)
        if name is not None and len(name.parts) == 1 and name.procedure not in names():
            session_errors.suggest_procedure(error, name.procedure, names())
        raise


def _select_from_function(spark: Any, select: Callable[[], Any]) -> Any:
    """Run a statement with a table function; wrong arguments raise the same errors as in a CALL."""
    try:
        return select()
    except AnalysisException as error:
        worker_error = table_functions.error_from_worker(error)
        if worker_error is None:
            raise
    session_errors.add_spark_classes(session_errors.without_secrets(worker_error), spark)
    # Raise after the handler: inside it, Spark's error with the worker's traceback would become the context.
    raise worker_error


def _session_class(cls: Any) -> Any:
    """The class that defines `sql`: a patch there also reaches subclasses and new sessions."""
    return next(base for base in cls.__mro__ if "sql" in vars(base))


def _format_fields(spark: Any, sql: str, values: Mapping[str, Any]) -> str:
    """Replace Python-style `{name}` fields by Spark's own formatter."""
    if not values:
        return sql
    module = "pyspark.sql.connect.sql_formatter" if is_connect(spark) else "pyspark.sql.sql_formatter"
    formatter: Any = import_module(module).SQLStringFormatter(spark)
    try:
        return str(formatter.format(sql, **values))
    finally:
        clear: Callable[[], None] = getattr(formatter, "clear", lambda: None)
        clear()


def _substitute_variables(spark: Any, sql: str) -> str:
    """Replace `${variables}` as Spark's parser does before it reads a statement."""
    if "${" not in sql:
        return sql
    if not is_connect(spark):
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
        return str(spark._jvm.org.apache.spark.sql.internal.VariableSubstitution().substitute(sql))
    if spark.conf.get("spark.sql.variable.substitute", "true") != "true":
        return sql

    def replacement(match: re.Match[str]) -> str:
        if match[1] in ("env", "system"):
            # Environment and system properties of the server: a Connect client cannot read them.
            return match[0]
        return str(spark.conf.get(match[2], "") or "")

    return _VARIABLE.sub(replacement, sql)


def _is_ours(spark: Any, name: CalledName) -> bool:
    """Whether we run the call: `name` always, `[catalog.]system.name` unless that catalog serves the procedure itself.

    `spark.iceberg_compact_sql.takeover` gives us the calls that Iceberg's jar would serve.
    """
    if len(name.parts) == 1:
        return True
    if len(name.parts) > 3 or name.parts[-2].lower() != "system":
        return False
    if len(name.parts) == 3 and _is_foreign_catalog(spark, name.parts[0]):
        return False
    if name.procedure not in iceberg_names():
        return True
    if (spark.conf.get(f"{SETTING_PREFIX}takeover", "false") or "").lower() == "true":
        return True
    catalog = name.parts[0] if len(name.parts) == 3 else spark.catalog.currentCatalog()
    return not _iceberg_jar_serves(spark, catalog)


def _is_foreign_catalog(spark: Any, catalog: str) -> bool:
    """Whether the session has a catalog of this name that is not Iceberg's, with procedures of its own."""
    from iceberg_compact_sql.catalogs.spark_conf import CATALOG_PREFIX, ICEBERG_PLUGINS

    implementation = spark.conf.get(f"{CATALOG_PREFIX}{catalog}", None)
    return bool(implementation) and implementation not in ICEBERG_PLUGINS


def _iceberg_jar_serves(spark: Any, catalog: str) -> bool:
    """Whether the session has Iceberg's catalog under this name and can load its classes."""
    implementation = spark.conf.get(f"spark.sql.catalog.{catalog}", None) or ""
    if not implementation.startswith("org.apache.iceberg."):
        return False
    try:
        spark.sql(f"SHOW NAMESPACES IN `{catalog.replace('`', '``')}`").schema  # noqa: B018 - loads the catalog
    except Exception as error:
        # The catalog is configured but Iceberg's jar is missing: only we can run the call.
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
        return call_procedure(spark, procedure.name, *args, **kwargs)

    call.__name__ = call.__qualname__ = procedure.name
    call.__module__ = "iceberg_compact_sql"
    lines = [f"{p.name}: {p.shown_meaning} ({p.shown_kind}; {p.shown_default})" for p in procedure.parameters]
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
    """The Python functions of all procedures by name."""
    return {name: twin(procedure) for name, procedure in procedures().items()}
