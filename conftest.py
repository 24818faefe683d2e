"""Fixtures for every test, and the seeds that make a run repeatable; how to use them: tests/support/java.py."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

# A module that another one imports comes before it: pytest rewrites the assertions of a module when it is first loaded.
pytest_plugins = [
    "tests.support.java",
    "tests.support.plain",
    "tests.support.s3",
    "tests.support.hdfs",
    "tests.support.gcs",
    "tests.support.hive",
    "tests.support.rest",
    "tests.support.postgres",
]

SEED = int(os.environ.get("TEST_SEED", "20260101"))

_UNIT = Path(__file__).parent / "tests" / "unit"
_EXAMPLES = Path(tempfile.gettempdir()) / "iceberg-compact-sql-hypothesis"
_QUIET = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=_QUIET, print_blob=True
)
settings.register_profile(
    "explore", database=DirectoryBasedExampleDatabase(_EXAMPLES), deadline=None, suppress_health_check=_QUIET
)
# The suite repeats itself exactly; HYPOTHESIS_PROFILE=explore looks for new examples each time.
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_report_header() -> str:
    return f"seed {SEED} (TEST_SEED), hypothesis profile {os.environ.get('HYPOTHESIS_PROFILE', 'repeatable')}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of single rooms, which start no Spark, for `pytest -m quick`."""
    for item in items:
        if (
            _UNIT in item.path.parents
            and not any(item.iter_markers("soak"))
            and not any(item.iter_markers("benchmark"))
        ):
            item.add_marker(pytest.mark.quick)


@pytest.fixture(autouse=True)
def seeded_random() -> None:
    """The same random numbers in every run and in any order of tests."""
    random.seed(SEED)


@pytest.fixture
def seed() -> int:
    """For generators of one's own: numpy.random.default_rng(seed)."""
    return SEED
