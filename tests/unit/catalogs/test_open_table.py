"""Opening tables by name from real catalogs, and what is said when that fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_compact_sql.catalogs.open_table import close_catalogs, known_catalogs, open_catalog, open_table
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import (
    IcebergCompactError,
    InvalidArgumentError,
    MissingDependencyError,
    NotFoundError,
)
from tests.support.plain import PlainLake

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(autouse=True)
def no_configuration_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    close_catalogs()


def test_a_table_of_a_spark_catalog(plain_lake: PlainLake) -> None:
    plain_lake.create("db.events", ROWS)
    opened = open_table(SessionView(conf=plain_lake.conf), "db.events")
    assert (opened.catalog_name, opened.identifier, opened.in_spark) == ("plain", ("db", "events"), True)
    assert opened.spark_name == "`plain`.`db`.`events`"
    assert opened.table.scan().to_arrow().num_rows == 3


def test_reload_sees_the_new_state_and_leaves_the_old_object_alone(plain_lake: PlainLake) -> None:
    table = plain_lake.create("db.events", ROWS)
    opened = open_table(SessionView(conf=plain_lake.conf), "db.events")
    table.append(ROWS)
    assert len(opened.table.snapshots()) == 1
    assert len(opened.reload().table.snapshots()) == 2


def test_tables_are_loaded_fresh_and_catalogs_opened_once(plain_lake: PlainLake) -> None:
    table = plain_lake.create("db.events", ROWS)
    view = SessionView(conf=plain_lake.conf)
    first = open_table(view, "plain.db.events")
    table.append(ROWS)
    second = open_table(view, "plain.db.events")
    assert second.catalog is first.catalog
    assert len(second.table.snapshots()) == 2


def test_the_embedded_catalog(tmp_path: Path) -> None:
    view = SessionView(embedded_warehouse=str(tmp_path / "lake"), current_namespace=("default",))
    catalog = open_catalog(view, "local")
    catalog.create_namespace("db")
    catalog.create_table("db.events", ROWS.schema).append(ROWS)
    assert (tmp_path / "lake" / "catalog.db").is_file()
    for name in ("db.events", "local.db.events"):
        opened = open_table(view, name)
        assert opened.table.location().startswith(f"file://{tmp_path}/lake/")
        assert not opened.in_spark


def test_spark_may_know_the_embedded_catalog_but_not_another_of_its_name(tmp_path: Path, plain_lake: PlainLake) -> None:
    conf = {key.replace(".plain", ".local"): value for key, value in plain_lake.conf.items()}
    view = SessionView(conf=conf, embedded_warehouse=str(plain_lake.folder))
    assert open_catalog(view, "local").name == "local"
    with pytest.raises(InvalidArgumentError, match="'local', which is another catalog in Spark"):
        open_catalog(SessionView(conf=conf, embedded_warehouse=str(tmp_path / "other")), "local")


def test_pyicebergs_own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path}/own.db"
    catalog = SqlCatalog("prod", uri=uri, warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("db")
    catalog.create_table("db.events", ROWS.schema)
    catalog.close()
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  prod:\n    type: sql\n    uri: {uri}\n")
    assert list(known_catalogs(SessionView())) == ["prod"]
    assert open_table(SessionView(), "db.events").catalog_name == "prod"
    (tmp_path / ".pyiceberg.yaml").unlink()
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", uri)
    assert open_table(SessionView(), "prod.db.events").identifier == ("db", "events")


def test_names_with_dots_and_many_levels(plain_lake: PlainLake) -> None:
    plain_lake.catalog.create_namespace(("a", "b"))
    plain_lake.catalog.create_table(("a", "b", "odd.name"), ROWS.schema)
    opened = open_table(SessionView(conf=plain_lake.conf), "a.b.`odd.name`")
    assert opened.identifier == ("a", "b", "odd.name")
    assert opened.spark_name == "`plain`.`a`.`b`.`odd.name`"


MISSING = [
    ("db.evnts", r"no table 'db.evnts' in catalog 'plain'. Did you mean 'db.Events'\?"),
    ("db.zzz", r"no table 'db.zzz' in catalog 'plain'. Tables there: db.Events."),
    ("dbb.events", r"no namespace 'dbb'.* Did you mean 'db'\?"),
    ("nope.events", r"no namespace 'nope'.* Namespaces: db."),
    ("plain.events", r"'events' names no namespace"),
]


@pytest.mark.parametrize(("name", "message"), MISSING)
def test_a_missing_table_is_explained(plain_lake: PlainLake, name: str, message: str) -> None:
    plain_lake.create("db.Events", ROWS)
    with pytest.raises(NotFoundError, match=message):
        open_table(SessionView(conf=plain_lake.conf, current_namespace=("db",)), name)


def test_the_first_of_three_parts_may_have_been_meant_as_a_catalog(plain_lake: PlainLake) -> None:
    plain_lake.create("db.events", ROWS)
    view = SessionView(conf=plain_lake.conf)
    with pytest.raises(NotFoundError, match=r"no namespace 'nowhere\.db'.*Namespaces: db\. Iceberg catalogs: plain\.$"):
        open_table(view, "nowhere.db.events")
    with pytest.raises(NotFoundError, match=r"Did you mean 'plain'\? Namespaces: db\. Iceberg catalogs: plain\.$"):
        open_table(view, "PLAIN.db.events")


def test_a_missing_catalog_is_explained(plain_lake: PlainLake) -> None:
    with pytest.raises(NotFoundError, match=r"no Iceberg catalog 'plan'. Did you mean 'plain'\?"):
        open_catalog(SessionView(conf=plain_lake.conf), "plan")


def test_a_table_whose_metadata_is_gone_is_explained(plain_lake: PlainLake) -> None:
    table = plain_lake.create("db.t", ROWS)
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(IcebergCompactError, match=r"'db\.t' in catalog 'plain' cannot be loaded: FileNotFound"):
        open_table(SessionView(conf=plain_lake.conf), "db.t")


def test_nothing_is_created_in_a_database_of_others(tmp_path: Path) -> None:
    (tmp_path / "other.db").touch()
    conf = {
        "spark.sql.catalog.c": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.c.type": "jdbc",
        "spark.sql.catalog.c.uri": f"jdbc:sqlite:{tmp_path}/other.db",
    }
    with pytest.raises(NotFoundError, match="holds no Iceberg catalog yet"):
        open_table(SessionView(conf=conf), "db.t")
    assert (tmp_path / "other.db").stat().st_size == 0


NEEDS = [
    ({"type": "hive", "uri": "thrift://localhost:1"}, "thrift", "hive", r"iceberg-compact-sql\[hive\]"),
    ({"type": "glue"}, "boto3", "glue", r"iceberg-compact-sql\[glue\]"),
    ({"type": "jdbc", "uri": "jdbc:postgresql://h/db"}, "psycopg2", "sql", r"iceberg-compact-sql\[postgres\]"),
    ({"type": "jdbc", "uri": "jdbc:mysql://h/db"}, "pymysql", "sql", r"pip install pymysql"),
]


@pytest.mark.parametrize(("own", "package", "module", "message"), NEEDS)
def test_a_missing_package_is_named_with_its_extra(
    own: dict[str, str], package: str, module: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a machine that does not have it: Python refuses to import a module that is None here.
    monkeypatch.setitem(sys.modules, package, None)
    for loaded in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    if module != "sql":
        monkeypatch.delitem(sys.modules, f"pyiceberg.catalog.{module}", raising=False)
        monkeypatch.delitem(sys.modules, "iceberg_compact_sql.pyiceberg_internals.hive_catalog", raising=False)
    conf = {"spark.sql.catalog.c": "org.apache.iceberg.spark.SparkCatalog"}
    conf |= {f"spark.sql.catalog.c.{key}": value for key, value in own.items()}
    with pytest.raises(MissingDependencyError, match=message):
        open_catalog(SessionView(conf=conf), "c")


def test_credentials_are_in_no_error_and_no_repr(plain_lake: PlainLake) -> None:
    secrets = {"token": "tok-hunter2", "s3.secret-access-key": "key-hunter2", "credential": "id:cred-hunter2"}
    conf = {
        "spark.sql.catalog.c": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.c.type": "rest",
        "spark.sql.catalog.c.uri": "http://joe:hunter2@127.0.0.1:1/",
        **{f"spark.sql.catalog.c.{key}": value for key, value in secrets.items()},
    }
    view = SessionView(conf=conf)
    with pytest.raises(IcebergCompactError) as caught:
        open_table(view, "c.db.t")
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "hunter2" not in f"{chain} {chain!r}"
        chain = chain.__cause__ if chain.__suppress_context__ else (chain.__cause__ or chain.__context__)
    assert "hunter2" not in repr(view)
    plain_lake.create("db.t", ROWS, properties={"secret": "hunter2"})
    assert "hunter2" not in repr(open_table(SessionView(conf=plain_lake.conf), "db.t"))


def test_two_processes_commit_to_one_sqlite_catalog(plain_lake: PlainLake, tmp_path: Path) -> None:
    """SQLite lets one writer in at a time: the others wait rather than fail."""
    plain_lake.create("db.t", ROWS, properties={"commit.retry.num-retries": "30"})
    script = (
        "import json, sys, pyarrow as pa\n"
        "from iceberg_compact_sql.catalogs.open_table import open_table\n"
        "from iceberg_compact_sql.catalogs.session_view import SessionView\n"
        "conf = json.loads(sys.argv[1])\n"
        "for _ in range(5):\n"
        "    open_table(SessionView(conf=conf), 'db.t').table.append(pa.table({'id': [9]}))\n"
    )
    command = [sys.executable, "-c", script, json.dumps(plain_lake.conf)]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors.decode()[-2000:]
    assert plain_lake.load("db.t").scan().to_arrow().num_rows == 13


def test_the_package_is_light_until_a_table_is_opened() -> None:
    code = (
        "import sys, iceberg_compact_sql; print([m for m in ('pyiceberg', 'pyarrow', 'sqlglot') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
