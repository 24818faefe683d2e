"""Rules of the Python door that need no Spark: start-up, namespaces, exception classes, secrets."""

from __future__ import annotations

import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.captured import AnalysisException as ClassicAnalysisException

import iceberg_compact_sql
from iceberg_compact_sql import IcebergCompactError
from iceberg_compact_sql.catalogs.open_table import open_catalog, open_table
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.doors import session_errors, table_functions
from iceberg_compact_sql.doors.session import _namespace_parts
from iceberg_compact_sql.engine.shipping import packed
from iceberg_compact_sql.errors import InvalidArgumentError, MissingDependencyError, NotFoundError
from iceberg_compact_sql.plan.options import resolve_options
from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.rewrite.job import build_job
from tests.support.plain import PlainLake

ROOT = Path(__file__).parents[3]
SECRET = "hunter2-very-secret"


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = (
        "import json, sys; import iceberg_compact_sql; from iceberg_compact_sql.procedures.registry import names;"
        "names(); print(json.dumps([m for m in ('pyiceberg', 'pyarrow', 'sqlglot', 'sqlalchemy', 'pandas', 'rich',"
        "'click', 'boto3') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [("default", ["default"]), ("a.b", ["a", "b"]), ("`a.b`.c", ["a.b", "c"]), ("`a``b`", ["a`b"]), ("", [])],
)
def test_current_namespace_as_spark_tells_it(text: str, parts: list[str]) -> None:
    assert _namespace_parts(text) == parts


class ClassicSession:
    """Stands in a module that is not Connect's."""


def test_an_error_gets_the_exception_classes_of_its_session_and_still_pickles() -> None:
    error: IcebergCompactError = NotFoundError("no table 't'", argument="table", hint="Look again.")
    session_errors.add_spark_classes(error.with_procedure("compact_table"), ClassicSession())
    session_errors.add_spark_classes(error, ClassicSession())
    assert isinstance(error, (NotFoundError, AnalysisException)) and isinstance(error, ClassicAnalysisException)
    assert type(error).__name__ == "NotFoundError"
    assert str(error) == "compact_table: no table 't'. Look again."
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is NotFoundError and str(back) == str(error)


def test_every_procedure_has_a_twin_with_its_signature() -> None:
    for name, procedure in procedures().items():
        twin = getattr(iceberg_compact_sql, name)
        assert list(inspect.signature(twin).parameters) == ["spark", *(p.name for p in procedure.parameters)]
        assert procedure.summary in (twin.__doc__ or "")


def secret_view(lake: PlainLake) -> SessionView:
    conf = {f"spark.sql.catalog.{lake.name}.{key}": SECRET for key in ("token", "jdbc.password", "credential")}
    return SessionView(conf={**lake.conf, **conf}, current_catalog=lake.name, current_namespace=("db",))


def test_credentials_stay_at_home(plain_lake: PlainLake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    plain_lake.create("db.t", pa.table({"id": [1]}))
    view = secret_view(plain_lake)
    assert SECRET not in repr(view)
    opened = open_table(view, "t")
    assert SECRET not in repr(opened)
    options = resolve_options()
    job = build_job(
        opened.table, options=options, overrides={}, verify="checksum", run_id="r", output_spec_id=0, cores=1
    )
    assert SECRET not in repr(job)
    assert SECRET.encode() not in pickle.dumps(job)
    with pytest.raises(IcebergCompactError) as raised:
        open_table(view, "missing")
    assert SECRET not in str(raised.value) and SECRET not in repr(raised.value)
    broken = {"spark.sql.catalog.plain.uri": f"jdbc:postgresql://joe:{SECRET}@127.0.0.1:1/x?password={SECRET}"}
    with pytest.raises(IcebergCompactError) as raised:
        open_catalog(SessionView(conf={**view.conf, **broken}, current_catalog="plain"), "plain")
    chain = [raised.value, raised.value.__cause__]
    assert all(SECRET not in f"{error} {error!r}" for error in chain)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("ending", ["", " SQLSTATE: 38000", " SQLSTATE: 38000; line 1 pos 14"])
def test_a_workers_traceback_is_left_out(ending: str) -> None:
    text = (
        "[TABLE_VALUED_FUNCTION_FAILED_TO_ANALYZE_IN_PYTHON] Failed to analyze: Traceback (most recent call last):\n"
        '  File "functions.py", line 88, in check\n    raise error\n'
        f"iceberg_compact_sql.errors.InvalidArgumentError: compact_table: unknown argument 'x'. See it.{ending}"
    )
    error = table_functions.error_from_worker(AnalysisException(text))
    assert type(error) is InvalidArgumentError and str(error) == "compact_table: unknown argument 'x'. See it."
    assert table_functions.error_from_worker(AnalysisException("[UNRESOLVED_COLUMN] no column 'x'")) is None


def test_a_worker_without_our_packages_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "iceberg_compact_sql.actions.compact", None)
    with pytest.raises(
        MissingDependencyError, match=r"^compact_table: the Python package '.*' is missing on the Spark"
    ):
        table_functions.planned_rows("compact_table", packed(SessionView()), ("db.t",), {})
