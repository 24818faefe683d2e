"""Hostile input and secrets: through whole calls, at the loudest log level, on a real table."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.engine import in_process
from iceberg_compact_sql.engine.shipping import packed, shipped
from iceberg_compact_sql.engine.worker import TaskBatch, run_task_batch
from iceberg_compact_sql.errors import IcebergCompactError, RewriteFailedError, UnsupportedError
from iceberg_compact_sql.rewrite.run_task import run_task
from iceberg_compact_sql.rewrite.task import RewriteJob, RewriteTask
from tests.support.calls import call
from tests.support.handmade import BY_NAME, SIMPLE_SCHEMA, append, data_paths, make_small_table, make_table
from tests.support.oracle import assert_readable, rows
from tests.support.plain import PlainLake

HUSH = "hunter2-do-not-show"
SECRETS = {
    "spark.sql.catalog.plain.s3.secret-access-key": f"s3-{HUSH}",
    "spark.sql.catalog.plain.s3.access-key-id": f"id-{HUSH}",
    "spark.sql.catalog.plain.token": f"token-{HUSH}",
    "spark.sql.catalog.plain.credential": f"joe:{HUSH}",
    "spark.sql.catalog.plain.jdbc.password": f"jdbc-{HUSH}",
    "spark.hadoop.fs.s3a.secret.key": f"hadoop-{HUSH}",
}
PROCEDURES = (
    "CALL score_partitions('db.t')",
    "CALL compact_table('db.t', min_input_files => 2, dry_run => true)",
    "CALL compact_table('db.t', min_input_files => 2)",
    "CALL rewrite_manifests('db.t')",
    "CALL rewrite_position_deletes('db.t')",
    "CALL expire_snapshots('db.t', older_than => TIMESTAMP '2099-01-01')",
    "CALL remove_orphans('db.t')",
    "CALL maintain_table('db.t')",
    "CALL compact_table('db.missing')",
    "CALL compact_table('db.t', targt => '1MB')",
    "CALL compact_table('db.t', where => 'nonsense = 1')",
    "CALL compact_table('db.t', branch => 'gone')",
)


@pytest.fixture
def secretive(plain_lake: PlainLake) -> PlainLake:
    make_small_table(plain_lake.catalog)
    return replace(plain_lake, conf={**plain_lake.conf, **SECRETS})


@pytest.fixture
def table(plain_lake: PlainLake) -> Table:
    return make_small_table(plain_lake.catalog)


def test_no_secret_is_logged_told_or_written(secretive: PlainLake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    with events.listening(lambda point, facts: texts.append(f"{point} {dict(facts)!r}")):
        for statement in PROCEDURES:
            try:
                texts.append(repr(call(secretive, statement)))
            except IcebergCompactError as error:
                texts += [str(error), repr(error), error.getMessage(), str(pickle.dumps(error))]
    assert HUSH not in "\n".join(texts)
    assert HUSH not in caplog.text
    for path in secretive.folder.rglob("*"):
        assert not path.is_file() or HUSH.encode() not in path.read_bytes(), path


def test_a_task_gets_the_storages_secrets_and_no_others(secretive: PlainLake, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[RewriteJob, RewriteTask]] = []

    def watched(job: RewriteJob, task: RewriteTask) -> object:
        seen.append((job, task))
        return run_task(job, task)

    monkeypatch.setattr(in_process, "run_task", watched)
    call(secretive, "CALL compact_table('db.t', min_input_files => 2)")
    [(job, task)] = seen
    held = {key for key, value in job.io_properties.items() if HUSH in value}
    assert held == {"s3.secret-access-key", "s3.access-key-id"}
    for other in ("token-", "joe:", "jdbc-", "hadoop-"):
        assert f"{other}{HUSH}".encode() not in pickle.dumps(job)
    assert HUSH.encode() not in pickle.dumps(task)
    assert HUSH not in f"{job!r} {job} {task!r}"
    # What Spark shows of a plan is the function's repr, never its content.
    batch = TaskBatch(packed(job), (packed(task),))
    assert HUSH not in f"{batch!r} {shipped(run_task_batch, batch, prefer_shipped=True)!r}"


@pytest.mark.parametrize(
    "place",
    [
        "{root}/data/../../victim",
        "{root}/../victim",
        "{root}/..",
        "{root}/data/%2e%2e/%2e%2e/victim",
        "{root}/./../victim",
        "{root}//../victim",
        "file://{plain}/../victim",
        "file:{plain}/../victim",
        "file:////{plain}/../victim",
        "{plain}/../victim",
        "{root}-victim",
        "file://otherhost{plain}",
        "FILE://{plain}/../victim",
        "{root}/data\\..\\..\\victim",
        "{root}/data/link",
        "{root}/data/link/",
        "/",
        "//",
        ".",
        "..",
        "file:",
        "s3://bucket/",
        "{root}/data\x00/../../victim",
        "{root}/data\n/../../victim",
    ],
)
def test_orphans_are_never_looked_for_elsewhere(plain_lake: PlainLake, table: Table, place: str) -> None:
    home = Path(table.location().removeprefix("file://"))
    long_ago = time.time() - 30 * 86_400
    victims = [home.parent / "victim" / "precious.parquet", Path(f"{home}-victim") / "precious.parquet"]
    for victim in victims:
        victim.parent.mkdir(parents=True)
        victim.write_bytes(b"precious")
        os.utime(victim, (long_ago, long_ago))
    (home / "data" / "link").symlink_to(victims[0].parent)
    location = place.format(root=table.location(), plain=home).replace("'", "''").replace("\\", "\\\\")
    try:
        found = call(plain_lake, f"CALL remove_orphans('db.t', location => '{location}', force => true)")
    except IcebergCompactError:
        found = []
    assert found == []
    assert all(victim.read_bytes() == b"precious" for victim in victims)
    assert_readable(table)
    assert len(rows(table)) == 4


@pytest.mark.parametrize(
    "text",
    [
        "1 = 1); DELETE FROM db.t WHERE (1 = 1",
        "id = 1; DROP TABLE db.t",
        "id = 1 UNION SELECT 1",
        "id = (SELECT 1)",
        "id IN (SELECT id FROM db.t)",
        "java_method('java.lang.Runtime', 'exit', '1') = 1",
        "reflect('java.lang.System', 'getenv', 'HOME') = 'x'",
        "__import__('os').system('true') = 1",
        "id = ${env:HOME}",
        "id = 1 -- AND id = 2\n; DROP TABLE db.t",
        "/* */ EXISTS (SELECT 1)",
        "name LIKE '%' OR (DELETE FROM t)",
    ],
)
def test_a_filter_is_an_expression_and_nothing_more(plain_lake: PlainLake, table: Table, text: str) -> None:
    before, head = rows(table), table.refresh().metadata.current_snapshot_id
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    with pytest.raises(IcebergCompactError):
        call(plain_lake, f"CALL compact_table('db.t', min_input_files => 2, where => '{quoted}')")
    assert rows(table) == before
    assert table.refresh().metadata.current_snapshot_id == head


@pytest.mark.parametrize(
    "name",
    ["db.t' OR '1'='1", "db.t; DROP TABLE iceberg_tables", 'db."t"', "db.t--", "db.%", "../db.t", "db.`t` UNION"],
)
def test_a_table_name_is_a_name(plain_lake: PlainLake, table: Table, name: str) -> None:
    head = table.refresh().metadata.current_snapshot_id
    quoted = name.replace("'", "\\'")
    with pytest.raises(IcebergCompactError):
        call(plain_lake, f"CALL compact_table('{quoted}', min_input_files => 2)")
    assert table.refresh().metadata.current_snapshot_id == head


@pytest.mark.parametrize("value", ["../../evil", "..", "/etc", "a/b", "%2e%2e%2f", "a b&c=d#e?f", "\u202e", "a\nb"])
def test_a_partition_value_is_no_path(plain_lake: PlainLake, value: str) -> None:
    made = make_table(plain_lake.catalog, "db.p", SIMPLE_SCHEMA, BY_NAME)
    for number in range(3):
        append(made, [{"id": number, "name": value}])
    before = rows(made)
    [done] = call(plain_lake, "CALL compact_table('db.p', min_input_files => 2)")
    assert (done["rewritten_data_files_count"], done["added_data_files_count"]) == (3, 1)
    assert rows(made) == before
    [path] = data_paths(made)
    home = (Path(made.location().removeprefix("file://")) / "data").resolve()
    assert Path(path.removeprefix("file://")).resolve().is_relative_to(home)


def test_a_schema_that_looks_like_code_stays_a_name(plain_lake: PlainLake) -> None:
    names = ["a'; DROP TABLE x; --", 'b"c', "d`e", "f.g", "__class__", "{h}", "%s"]
    made = plain_lake.create("db.n", *[pa.table({name: [number] for name in names}) for number in range(3)])
    before = rows(made)
    call(plain_lake, "CALL compact_table('db.n', min_input_files => 2)")
    assert rows(made) == before
    assert len(data_paths(made)) == 1


def test_facts_of_events_are_plain(secretive: PlainLake) -> None:
    """Listeners of tests and tools see what a point tells: never an object that holds credentials."""
    kinds: set[type] = set()

    def listener(point: str, facts: Mapping[str, object]) -> None:
        kinds.update(type(value) for value in facts.values())

    with events.listening(listener):
        call(secretive, "CALL compact_table('db.t', min_input_files => 2)")
    assert kinds <= {int, str, bool, tuple, float, type(None), list, dict}


def test_a_table_that_says_it_writes_into_anothers_folder_cleans_nothing_there(
    plain_lake: PlainLake, table: Table
) -> None:
    victim = make_table(plain_lake.catalog, "db.victim", SIMPLE_SCHEMA)
    append(victim, [{"id": 1, "name": "n"}])
    long_ago = time.time() - 30 * 86_400
    for path in Path(victim.location().removeprefix("file://")).rglob("*"):
        os.utime(path, (long_ago, long_ago))
    for place in (f"{victim.location()}/data", victim.location()):
        with table.transaction() as change:
            change.set_properties({"write.data.path": place})
        with pytest.raises(UnsupportedError, match="belongs to another table"):
            call(plain_lake, f"CALL remove_orphans('db.t', location => '{place}', force => true)")
    assert_readable(victim)


def test_files_are_as_private_as_the_process_says(plain_lake: PlainLake, table: Table) -> None:
    before = set(plain_lake.folder.rglob("*"))
    mask = os.umask(0o077)
    try:
        call(plain_lake, "CALL compact_table('db.t', min_input_files => 2, claim => true)")
        call(plain_lake, "CALL rewrite_manifests('db.t')")
        call(plain_lake, "CALL expire_snapshots('db.t', older_than => TIMESTAMP '2099-01-01', quarantine => '1h')")
    finally:
        os.umask(mask)
    made = set(plain_lake.folder.rglob("*")) - before
    assert len(made) > 5
    moved = {path for path in made if path.is_file() and path.stat().st_mode & 0o077}
    # A file that was moved aside keeps what its writer gave it.
    assert all("quarantine" in str(path) for path in moved), moved


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_nothing_is_written_to_a_folder_of_this_process(
    plain_lake: PlainLake, table: Table, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with table.transaction() as change:
        change.set_properties({name: "relative/folder"})
    before = set((tmp_path / "here").rglob("*"))
    for procedure in ("compact_table", "rewrite_manifests", "expire_snapshots"):
        with pytest.raises(UnsupportedError, match=f"'{name}' is 'relative/folder', which is not a full location"):
            call(plain_lake, f"CALL {procedure}('db.t')")
    assert set((tmp_path / "here").rglob("*")) == before


def test_a_place_on_no_store_is_refused_in_a_sentence(plain_lake: PlainLake, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"write.data.path": "http://127.0.0.1:1/x"})
    with pytest.raises(UnsupportedError, match=r"files on http://127.0.0.1:1 cannot be reached"):
        call(plain_lake, "CALL remove_orphans('db.t', location => 'http://127.0.0.1:1/x')")
    with pytest.raises(RewriteFailedError, match="Unrecognized filesystem type in URI: http"):
        call(plain_lake, "CALL compact_table('db.t', min_input_files => 2)")
    assert len(data_paths(table.refresh())) == 4
