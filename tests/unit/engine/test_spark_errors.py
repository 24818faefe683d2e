"""Errors of Spark jobs, as Spark 4 words them, in one line."""

from __future__ import annotations

import pytest

from iceberg_compact_sql.engine.spark_errors import describe_error, missing_package

IN_TASK = """An error occurred while calling o95.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 3.0 (TID 7) (host executor driver): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "worker.py", line 1990, in main
    process()
{last}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.handleTaskSetFailed(DAGScheduler.scala:2935)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1990, in main
    process()
{last}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\t... 1 more
"""
CANCELLED = "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group mine SQLSTATE: XXKDA"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IN_TASK.format(last="OSError: disk is full"), "OSError: disk is full"),
        (
            IN_TASK.format(last="iceberg_compact_sql.errors.IcebergCompactError: manifest m1 cannot be read"),
            "manifest m1 cannot be read",
        ),
        (IN_TASK.format(last="ValueError: s3.secret-access-key=hunter2x"), "ValueError: s3.secret-access-key=***"),
        (CANCELLED, CANCELLED),
        ("", "RuntimeError"),
    ],
)
def test_the_line_that_says_what_happened(text: str, expected: str) -> None:
    assert describe_error(RuntimeError(text)) == expected


@pytest.mark.parametrize("package", ["pyarrow", "pyiceberg", "numpy", "pyroaring"])
def test_a_package_that_workers_lack_is_named(package: str) -> None:
    error = missing_package(RuntimeError(IN_TASK.format(last=f"ModuleNotFoundError: No module named '{package}.x'")))
    assert error is not None
    assert str(error).startswith(f"the Python package '{package}' is missing on the Spark workers. Install ")


@pytest.mark.parametrize("last", ["OSError: disk is full", "ModuleNotFoundError: No module named 'users_own'"])
def test_other_failures_are_not_missing_packages(last: str) -> None:
    assert missing_package(RuntimeError(IN_TASK.format(last=last))) is None
