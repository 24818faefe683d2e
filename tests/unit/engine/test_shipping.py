"""Code for Spark's workers: it imports only packages that executors are asked to have."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, sys

class NotOnExecutors:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"sqlalchemy", "sqlglot", "rich", "click", "pandas", "boto3"}:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, NotOnExecutors())
importlib.import_module(sys.argv[1])
"""


@pytest.mark.parametrize(
    "module",
    [
        "iceberg_compact_sql.doors.table_functions",
        "iceberg_compact_sql.engine.blob_shuffle",
        "iceberg_compact_sql.engine.worker",
        "iceberg_compact_sql.reclaim.cluster_search",
        "iceberg_compact_sql.reclaim.visible_paths",
    ],
)
def test_modules_that_tasks_name_need_no_package_of_the_driver(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, module], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
