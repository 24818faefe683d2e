"""The session of the command line: plain settings, and Spark only when a call or a statement needs it."""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import given_arguments
from iceberg_compact_sql.call.declaration import Column, Procedure
from iceberg_compact_sql.call.detect import CalledName, called_name
from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX, SessionView
from iceberg_compact_sql.doors.results import Answer
from iceberg_compact_sql.doors.session import (
    CONF_PREFIXES,
    ESCAPED_LITERALS,
    LTZ,
    TIMESTAMP_TYPE,
    run_call,
)
from iceberg_compact_sql.procedures.registry import iceberg_names, names
from iceberg_compact_sql.units import zone

_TIME_ZONE = "spark.sql.session.timeZone"
_CATALOG = "spark.sql.catalog."
# A setting of the environment can give Spark catalogs and defaults that only Spark can read.
_SPARK_ENVIRONMENT = ("PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_DEFAULT_LINE = re.compile(r"\s*([^#!\s=:][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$")


class CommandSession:
    """Runs calls with the settings of the command line. `start` starts and registers the Spark session.

    A call runs without Spark if its text means the same without it; work that is too large for this process starts
    Spark then. With `spark_first` everything runs in the Spark session.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        warehouse: str | None,
        start: Callable[[], Any],
        spark_first: bool = False,
    ) -> None:
        self._settings = {**spark_defaults(), **settings}
        self._warehouse = warehouse
        self._start = start
        self._spark: Any = None
        self._spark_first = spark_first or any(os.environ.get(name) for name in _SPARK_ENVIRONMENT)

    def spark(self) -> Any:
        """Return the Spark session; starts it on the first use."""
        if self._spark is None:
            self._spark = self._start()
        return self._spark

    def needs_spark(self, statements: Sequence[str] = ()) -> bool:
        """Whether these statements need Spark from the start: any of them is not a call of ours, or may not be."""
        if self._spark_first or self._spark is not None:
            return True
        return any("${" in text or not self._is_ours(called_name(text)) for text in statements)

    def call(self, procedure: Procedure, values: Mapping[str, Any]) -> Answer:
        """Run a procedure with values from flags, without Spark where possible."""
        return run_call(procedure, self._context(), given_arguments(**values), procedure.name)

    def statement(self, sql: str) -> Answer:
        """Run a CALL of ours, without Spark where possible. `needs_spark` must have been false for it."""
        # Imported late for start-up time: sqlglot is not needed for calls from flags.
        from iceberg_compact_sql.call.grammar import parse_call
        from iceberg_compact_sql.call.literals import TextSettings

        now_ms = int(time.time() * 1000)
        settings = TextSettings(
            time_zone=self.view.time_zone,
            escapes=self._settings.get(ESCAPED_LITERALS, "false").lower() != "true",
            zoneless=self._settings.get(TIMESTAMP_TYPE, LTZ).upper() != LTZ,
        )
        call = parse_call(sql, now_ms=now_ms, settings=settings)
        assert call is not None
        context = self._context(now_ms=now_ms, catalog=call.catalog)
        return run_call(names()[call.procedure], context, call.arguments, call.procedure, qualified=call.qualified)

    def _context(self, *, now_ms: int | None = None, catalog: str | None = None) -> Context:
        return Context(self.view, now_ms=now_ms, catalog=catalog, start_spark=self.spark)

    @property
    def view(self) -> SessionView:
        """The view that a Spark session with these settings would give."""
        catalog = self._settings.get("spark.sql.defaultCatalog", "spark_catalog")
        namespace = self._settings.get(f"{_CATALOG}{catalog}.default-namespace", "default")
        return SessionView(
            conf={key: value for key, value in self._settings.items() if key.startswith(CONF_PREFIXES)},
            current_catalog=catalog,
            current_namespace=tuple(namespace.split(".")),
            time_zone=self._settings.get(_TIME_ZONE) or local_time_zone(),
            embedded_warehouse=self._settings.get(f"{SETTING_PREFIX}warehouse") or _absolute(self._warehouse),
            case_sensitive=self._settings.get("spark.sql.caseSensitive", "false").lower() == "true",
        )

    def _is_ours(self, name: CalledName | None) -> bool:
        """Whether the call is certainly ours: Spark decides where Iceberg's jar could serve a qualified name."""
        if name is None or name.procedure not in names():
            return False
        if len(name.parts) == 1:
            return True
        if len(name.parts) > 3 or name.parts[-2].lower() != "system":
            return False
        if self._settings.get(f"{SETTING_PREFIX}takeover", "false").lower() == "true":
            return True
        catalogs = [name.parts[0]] if len(name.parts) == 3 else [self.view.current_catalog]
        return name.procedure not in iceberg_names() and not any(_CATALOG + each in self._settings for each in catalogs)


def shown_rows(answer: Answer, time_zone: str) -> list[tuple[Any, ...]]:
    """Return the rows with timestamps as text in the session's time zone, as Spark casts them."""
    moments = {index for index, column in enumerate(answer.columns) if _is_timestamp(column)}
    if not moments:
        return [tuple(row) for row in answer.rows]
    session_zone = zone(time_zone)
    return [
        tuple(
            _timestamp_text(value, session_zone) if index in moments and isinstance(value, dt.datetime) else value
            for index, value in enumerate(row)
        )
        for row in answer.rows
    ]


def _is_timestamp(column: Column) -> bool:
    return column.type == "timestamp"


def _timestamp_text(value: dt.datetime, session_zone: dt.tzinfo) -> str:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
    text = moment.astimezone(session_zone).strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{moment.microsecond:06d}".rstrip("0") if moment.microsecond else text


def spark_defaults() -> dict[str, str]:
    """Return the settings of `spark-defaults.conf`, where Spark itself would read it; empty without one."""
    path = _spark_conf_folder() / "spark-defaults.conf"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    matches = filter(None, map(_DEFAULT_LINE.match, lines))
    return {match[1]: match[2] for match in matches if match[1].startswith("spark.")}


def _spark_conf_folder() -> Path:
    if folder := os.environ.get("SPARK_CONF_DIR"):
        return Path(folder)
    if home := os.environ.get("SPARK_HOME"):
        return Path(home) / "conf"
    spec = find_spec("pyspark")
    package = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    return package / "conf"


def local_time_zone() -> str:
    """Return the time zone of this machine by name, as Java finds it: TZ, then the system's own setting."""
    candidates = [os.environ.get("TZ", "").lstrip(":")]
    local = os.path.realpath("/etc/localtime")
    if "/zoneinfo/" in local:
        candidates.append(local.split("/zoneinfo/", 1)[1])
    try:
        candidates.append(Path("/etc/timezone").read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        # Many systems have no such file.
        candidates.append("")
    for name in filter(None, candidates):
        try:
            zone(name)
        except ValueError:
            continue
        return name
    offset = dt.datetime.now().astimezone().strftime("%z")
    return f"{offset[:3]}:{offset[3:5]}" if offset.strip("+-0") else "UTC"


def _absolute(folder: str | None) -> str | None:
    return None if folder is None else str(Path(folder).expanduser().resolve())
