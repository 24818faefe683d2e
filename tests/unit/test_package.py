"""What tools see of the package: signatures, public names, one version, declared dependencies, distributions."""

from __future__ import annotations

import ast
import inspect
import logging
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import iceberg_compact_sql
from iceberg_compact_sql.parquet.joiner import RowGroupJoiner
from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.procedures.type_stub import STUB, stub_text
from iceberg_compact_sql.version import CREATED_BY, VERSION

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "iceberg_compact_sql"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Part of a notebook, where it is always installed; the package works without it.
OPTIONAL = {"ipython"}
# Pinned by the package that is declared: a second range could only contradict the first.
COMPANIONS = {"botocore": "boto3", "pydantic_core": "pydantic"}
# Declared for pyspark, which needs it to turn Arrow tables into DataFrames.
NOT_IMPORTED = {"pandas"}
# Schedulers that a user of a recipe has; the tests stand in for them.
SCHEDULERS = {"airflow", "dagster"}

RIGHT = """
import iceberg_compact_sql
from pyspark.sql import DataFrame, SparkSession

def run(spark: SparkSession) -> DataFrame:
    iceberg_compact_sql.register(spark, warehouse="./lake").sql("SELECT 1")
    iceberg_compact_sql.expire_snapshots(spark, "db.t", older_than="7d", snapshot_ids=[1])
    iceberg_compact_sql.compact_table(spark, "db.t", "512MB", strategy="binpack", options={"rewrite-all": True})
    return iceberg_compact_sql.compact_table(spark, table="db.t", target=1024)
"""


def test_the_stub_is_made_from_the_declarations() -> None:
    expected = stub_text(procedures().values())
    assert STUB.read_text(encoding="utf-8") == expected, "python -m iceberg_compact_sql.procedures.type_stub"


def test_the_stub_has_the_arguments_that_the_functions_take() -> None:
    functions = {
        node.name: [argument.arg for argument in node.args.args]
        for node in ast.parse(STUB.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    for name in ("register", "unregister", *procedures()):
        assert functions.pop(name) == list(inspect.signature(getattr(iceberg_compact_sql, name)).parameters)
    assert functions == {}


def _mypy(folder: Path, text: str) -> str:
    script = folder / "script.py"
    script.write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), str(script)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_mypy_knows_the_functions(tmp_path: Path) -> None:
    assert _mypy(tmp_path, RIGHT).startswith("Success")
    wrong = (
        RIGHT.replace("target=1024", "targt=1024")
        .replace('"binpack"', '"binpak"')
        .replace("snapshot_ids=[1]", 'snapshot_ids=["a"]')
        .replace('sql("SELECT 1")', "sqll()")
    )
    found = _mypy(tmp_path, wrong)
    assert 'Unexpected keyword argument "targt" for "compact_table"; did you mean "target"?' in found
    assert """incompatible type "Literal['binpak']\"""" in found
    assert 'List item 0 has incompatible type "str"; expected "int"' in found
    assert '"SparkSession" has no attribute "sqll"' in found


def test_public_names() -> None:
    assert set(iceberg_compact_sql.__all__) == {
        "IcebergCompactError",
        "__version__",
        "register",
        "unregister",
        *procedures(),
    }
    assert set(iceberg_compact_sql.__all__) <= set(dir(iceberg_compact_sql))
    for name in iceberg_compact_sql.__all__:
        assert getattr(iceberg_compact_sql, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'compact_tabel'"):
        iceberg_compact_sql.compact_tabel  # type: ignore[attr-defined]  # noqa: B018


def test_one_version() -> None:
    assert iceberg_compact_sql.__version__ == VERSION
    assert PROJECT["dynamic"] == ["version"]
    assert f"iceberg-compact-sql version {VERSION}" == CREATED_BY
    assert inspect.signature(RowGroupJoiner).parameters["created_by"].default == CREATED_BY
    copies = [path for path in _sources() if f'{VERSION}"' in path.read_text(encoding="utf-8")]
    assert copies == [PACKAGE / "version.py"]


def _sources() -> Iterator[Path]:
    return PACKAGE.rglob("*.py")


def _declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~!;, ]", requirement)[0].lower() for requirement in requirements}


def _imported(sources: Iterator[Path]) -> dict[str, str]:
    """Every imported package that is neither ours nor Python's, and one file that imports it."""
    found: dict[str, str] = {}
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                found.setdefault(name.partition(".")[0], str(path.relative_to(ROOT)))
    ours = {"iceberg_compact_sql", "tests", "conftest"}
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names | ours}


def _undeclared(sources: Iterator[Path], declared: set[str]) -> dict[str, str]:
    known = packages_distributions()
    missing = {}
    for name, path in _imported(sources).items():
        distributions = {d.lower().replace("_", "-") for d in known.get(name, [name])} | {COMPANIONS.get(name, name)}
        if not distributions & declared:
            missing[name] = path
    return missing


def test_everything_imported_is_declared() -> None:
    core = _declared(PROJECT["dependencies"])
    extras = {name: _declared(entries) for name, entries in PROJECT["optional-dependencies"].items()}
    users = set().union(*(entries for name, entries in extras.items() if name != "test"))
    assert _undeclared(_sources(), core | users | OPTIONAL) == {}
    tests = (path for folder in ("tests", "sql_examples") for path in (ROOT / folder).rglob("*.py"))
    assert _undeclared(tests, core | extras["test"] | SCHEDULERS) == {}


def test_everything_declared_is_imported() -> None:
    known = packages_distributions()
    imported = {d.lower() for name in _imported(_sources()) for d in known.get(name, [name])}
    assert _declared(PROJECT["dependencies"]) - imported == NOT_IMPORTED


def test_every_module_logs_under_its_own_name() -> None:
    assert any(type(handler) is logging.NullHandler for handler in logging.getLogger("iceberg_compact_sql").handlers)
    texts = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in _sources()}
    named = {
        name: re.findall(r"(?:getLogger|masked_logger)\((?!__name__\)|name: str\))[^)]*\)", text)
        for name, text in texts.items()
    }
    # The child of the jar sends the lines of the whole package to the shell's stderr; `masked_logger` gets the name.
    # The logger of pyiceberg's SQL catalog gives advice that does not apply to Spark's catalogs.
    filtered = "pyiceberg_internals/catalog_timeouts.py"
    assert {name for name, found in named.items() if found} == {"doors/jvm_child.py", "redaction.py", filtered}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names of the files in the source distribution and in the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        metadata = next(name for name in wheel.namelist() if name.endswith("METADATA"))
        text = wheel.read(metadata).decode()
        return {"source": source, "wheel": set(wheel.namelist()), "metadata": set(text.split("\n\n")[0].splitlines())}


def test_the_source_distribution_has_tests_examples_and_documents(distributions: dict[str, set[str]]) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    tracked = {name for name in listed.splitlines() if (ROOT / name).is_file()}
    assert tracked - distributions["source"] == set()
    assert {"tests/unit/test_package.py", "sql_examples/expire.sql", "README.md"} <= distributions["source"]


def test_the_wheel_has_the_package_and_nothing_else(distributions: dict[str, set[str]]) -> None:
    tops = {name.partition("/")[0] for name in distributions["wheel"]}
    assert tops == {"iceberg_compact_sql", f"iceberg_compact_sql-{VERSION}.dist-info"}
    needed = {"py.typed", "__init__.pyi", "jvm/iceberg-compact-sql.jar"}
    needed |= {f"docs/{path.name}" for path in (PACKAGE / "docs").glob("*.*")}
    assert {f"iceberg_compact_sql/{name}" for name in needed} <= distributions["wheel"]


def test_the_wheel_says_what_it_is(distributions: dict[str, set[str]]) -> None:
    keys = {line.partition(":")[0] for line in distributions["metadata"]}
    assert {"Version", "Summary", "Author", "Keywords", "License-Expression", "Requires-Python", "Project-URL"} <= keys
    assert f"Version: {VERSION}" in distributions["metadata"]
    assert "Classifier: Typing :: Typed" in distributions["metadata"]
    assert "Classifier: Programming Language :: Python :: 3.10" in distributions["metadata"]
