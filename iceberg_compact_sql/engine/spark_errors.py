"""The cause of a failed Spark job in one line, and the packages that its Python workers lack."""

from __future__ import annotations

import re

from iceberg_compact_sql.errors import MissingDependencyError
from iceberg_compact_sql.redaction import redact

# Packages that our code needs on the executors; `shipping` checks them before it imports our package.
NEEDED_PACKAGES = ("pyarrow", "pyiceberg", "numpy", "pyroaring")
_LONGEST = 1000
_ERROR_LINE = re.compile(r"[\w.]*(Error|Exception)\b")
_OUR_CLASS = re.compile(r"iceberg_compact_sql\.[\w.]+: ")
_NO_MODULE = re.compile(r"No module named '(\w+)")


def describe_error(error: BaseException) -> str:
    """Return the line of a Spark error that says what happened: the last line of a Python worker's traceback."""
    text = redact(error)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    error_lines = [line for line in lines if _ERROR_LINE.match(line)]
    line = " ".join((error_lines or lines or [type(error).__name__])[-1].split())
    return _OUR_CLASS.sub("", line, count=1)[:_LONGEST]


def missing_package(error: BaseException) -> MissingDependencyError | None:
    """Return the error for the user when a job failed because its workers lack a package, else None."""
    match = _NO_MODULE.search(str(error))
    if match is None or match[1] not in NEEDED_PACKAGES:
        return None
    return MissingDependencyError(
        f"the Python package '{match[1]}' is missing on the Spark workers",
        hint="Install pyiceberg[pyarrow,pyiceberg-core] and numpy in the Python environment of the executors.",
    )
