"""A wrong call in Iceberg's form gets Iceberg's error: both give the same text in the same session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException

import iceberg_compact_sql
from tests.support.java import Lake

CALLS = [
    "rewrite_data_files(table => 'db.t', table => 'db.t')",
    "rewrite_data_files('db.t', table => 'db.t')",
    "rewrite_data_files()",
    "rewrite_data_files(table => 'db.t', 'sort')",
    "rewrite_data_files('db.t', 'binpack', null, null, null, null, null)",
    "rewrite_data_files('')",
    "rewrite_data_files(table => null)",
    "rewrite_data_files(table => 'db.t', strategy => 'temp')",
    "rewrite_data_files(table => 'db.t', strategy => 'binpack', sort_order => 'c1 ASC')",
    *(
        f"rewrite_data_files(table => 'db.t', sort_order => '{order}')"
        for order in (
            '"c1"',
            "c1 + 1",
            "c1 none",
            "",
            " ",
            "c1,",
            "zorder()",
            "zorder(c1",
            "zorder(bucket(4, c1))",
            "lower(c1)",
            "nope",
            "zorder(nope)",
            "zorder(c1), c1",
            "zorder(c1), hilbert(c1)",
            "bucket(0, c1)",
            "truncate(c1)",
            "days(c1)",
        )
    ),
    "rewrite_data_files(table => 'db.t', strategy => 'sort')",
    "rewrite_data_files(table => 'db.t', sort_order => 'c1', options => map('max-output-size', '4'))",
    "rewrite_data_files(table => 'db.t', sort_order => 'c1', options => map('compression-factor', '0'))",
    "rewrite_data_files(table => 'db.t', sort_order => 'c1', options => map('shuffle-partitions-per-file', '0'))",
    "rewrite_data_files(table => 'db.t', sort_order => 'zorder(c1)', options => map('max-output-size', '0'))",
    "rewrite_data_files(table => 'db.t', sort_order => 'zorder(c1)', options => map('var-length-contribution', '0'))",
    "rewrite_data_files('db.t', 'sort', 'hilbert(c1)', map('var-length-contribution', '4'))",
    "rewrite_data_files('db.t', 'sort', 'zorder(c1)', map('nope', '4'))",
    "rewrite_data_files(table => 'db.t', options => map('compression-factor', '2'))",
    "rewrite_data_files(table => 'db.t', options => map('foo', '1', 'bar', '2'))",
    "rewrite_data_files(table => 'db.t', options => map('min-input-files', '0'))",
    "rewrite_data_files(table => 'db.t', options => map('min-input-files', 'x'))",
    "rewrite_data_files(table => 'db.t', options => map('target-file-size-bytes', '0'))",
    "rewrite_data_files(table => 'db.t', options => map('min-file-size-bytes', '-1'))",
    "rewrite_data_files(table => 'db.t', options => map('delete-ratio-threshold', '2'))",
    "rewrite_data_files(table => 'db.t', options => map('delete-file-threshold', '-1'))",
    "rewrite_data_files(table => 'db.t', options => map('rewrite-job-order', 'foo'))",
    "rewrite_data_files(table => 'db.t', options => map('max-concurrent-file-group-rewrites', '0'))",
    "rewrite_data_files(table => 'db.t', options => map('max-files-to-rewrite', '0'))",
    "rewrite_data_files(table => 'db.t', options => map('output-spec-id', '99'))",
    "rewrite_data_files('db.t', options => map('target-file-size-bytes', '100', 'min-file-size-bytes', '200'))",
    "rewrite_data_files('db.t', options => map('target-file-size-bytes', '100', 'max-file-size-bytes', '50'))",
    "rewrite_data_files(table => 'db.t', branch => 'nope')",
    "rewrite_data_files(table => 'db.t', where => 'nope = 1')",
    "rewrite_data_files(table => 'db.t', where => '')",
    "rewrite_data_files(table => 'db.nope')",
    "expire_snapshots(table => 'db.t', retain_last => 0)",
    "expire_snapshots(table => 'db.t', max_concurrent_deletes => 0)",
    "expire_snapshots(table => 'db.kept')",
    "remove_orphan_files(table => 'db.t', older_than => now())",
    "remove_orphan_files(table => 'db.t', prefix_mismatch_mode => 'foo')",
    "remove_orphan_files(table => 'db.kept')",
    "rewrite_manifests(table => 'db.t', tAbLe => 'db.t')",
    "rewrite_manifests(table => 'db.t', spec_id => 9)",
    "rewrite_position_delete_files(table => 'db.t', options => map('foo', 'bar'))",
    "rewrite_position_delete_files(table => 'db.t', where => 'nope = 1')",
    "rewrite_position_delete_files('db.t', map('max-concurrent-file-group-rewrites', '0'))",
    "rewrite_position_delete_files('db.t', map('rewrite-job-order', 'x'))",
    "rewrite_position_delete_files('db.t', map('partial-progress.enabled', 'true', 'partial-progress.max-commits', '0'))",  # noqa: E501
    "rewrite_data_files('db.t', options => map('min-input-files', '1.5'))",
    "rewrite_data_files(table => 'nodb.t')",
    "rewrite_data_files(table => 'spark_catalog.db.t')",
    "rewrite_manifests('db.t', sort_by => array())",
    "expire_snapshots(5)",
    "expire_snapshots(table => 'db.t', snapshot_ids => array({head}))",
    "remove_orphan_files('db.t', file_list_view => 'no_path')",
    "remove_orphan_files('db.t', file_list_view => 'wrong_path')",
    "remove_orphan_files('db.t', file_list_view => 'wrong_time')",
    "remove_orphan_files('db.t', file_list_view => 'no_view')",
]
# These sentences go on with what differs: the names that are close, the plan of the statement.
STARTS = [
    ("rewrite_data_files(table => 'db.t', foo => 1)", "Did you mean"),
    ("rewrite_data_files(table => 'db.t', options => 'x')", "SQLSTATE"),
    ("expire_snapshots('db.t', 2.2)", "SQLSTATE"),
    ("expire_snapshots('db.t', 'soon')", "SQLSTATE"),
    ("expire_snapshots('db.t', retain_last => 'x')", "SQLSTATE"),
    ("expire_snapshots('db.t', stream_results => 2)", "SQLSTATE"),
    ("expire_snapshots('db.t', snapshot_ids => array('x'))", "SQLSTATE"),
    ("expire_snapshots('db.t', older_than => true)", "SQLSTATE"),
    ("rewrite_manifests('db.t', 2.2)", "SQLSTATE"),
    ("rewrite_manifests('db.t', sort_by => array('nope', 'c1'))", " partition spec"),
]
# Spark shows a filter in its own words after the colon.
FILTERS = [
    "substr(s, 2) = 'fo'",
    "substr(encode(s, 'utf-8'), 2) = 'fo'",
    "s like '%x'",
    "s like 'a%x'",
    "s like 'a_x'",
    "s rlike 'a'",
    "s = upper(s)",
    "c1 % 2 = 0",
    "year(current_date()) = c1 + 1",
    "array_contains(array(c1), 1)",
    "case when c1 = 1 then true else false end",
    "no_such_function(c1) = 1",
    "1",
]
VIEWS = {
    "no_path": "SELECT 1 AS x",
    "wrong_path": "SELECT 1 AS file_path, current_timestamp() AS last_modified",
    "wrong_time": "SELECT 'a' AS file_path, 'b' AS last_modified",
}


@pytest.fixture
def session(lake: Lake) -> Iterator[Lake]:
    lake.sql("CREATE TABLE {lake}.db.t (c1 INT, s STRING) USING iceberg")
    lake.sql("INSERT INTO {lake}.db.t VALUES (1, 'a')")
    lake.sql("CREATE TABLE {lake}.db.kept (c1 INT) USING iceberg TBLPROPERTIES ('gc.enabled' = 'false')")
    for view, query in VIEWS.items():
        lake.spark.sql(query).createOrReplaceTempView(view)
    iceberg_compact_sql.register(lake.spark)
    yield lake
    for view in VIEWS:
        lake.spark.catalog.dropTempView(view)
    lake.spark.conf.unset("spark.iceberg_compact_sql.takeover")
    iceberg_compact_sql.unregister(lake.spark)


def error_of(lake: Lake, call: str, *, takeover: bool) -> tuple[type, str | None, str]:
    """The kind of error, its condition, and its first sentence."""
    lake.spark.conf.set("spark.iceberg_compact_sql.takeover", str(takeover).lower())
    try:
        lake.sql(f"CALL {{lake}}.system.{call}")
    except PySparkException as caught:
        error = caught
    except Exception as caught:
        # ValidationException and RuntimeException have no class in Python: only the sentence can be matched.
        java_exception: Any = vars(caught)["java_exception"]
        return PySparkException, None, str(java_exception.getMessage())
    else:
        raise AssertionError(f"{call} did not fail")
    kind = IllegalArgumentException if isinstance(error, IllegalArgumentException) else PySparkException
    text = str(error).split("\n\nJVM stacktrace")[0]
    return kind, error.getCondition() if kind is PySparkException else None, text


def test_errors_are_those_of_iceberg(session: Lake) -> None:
    head = str(session.load("db.t").metadata.current_snapshot_id)
    for call in (call.replace("{head}", head) for call in CALLS):
        kind, condition, text = error_of(session, call, takeover=False)
        our_kind, our_condition, our_text = error_of(session, call, takeover=True)
        if "For input string" in text:
            # NumberFormatException is an IllegalArgumentException in Java, and not in Python.
            kind = IllegalArgumentException
        # A text of Spark's analysis goes on with the plan of the statement.
        assert our_text.startswith(text.split("SQLSTATE")[0]), call
        assert our_kind is kind, call
        if condition is not None:
            assert our_condition == condition, call


def test_longer_sentences_start_as_those_of_iceberg(session: Lake) -> None:
    for call, end in STARTS:
        _, condition, text = error_of(session, call, takeover=False)
        _, our_condition, our_text = error_of(session, call, takeover=True)
        assert our_condition == condition, call
        assert our_text.startswith(text[: text.index(end)]), call


def test_a_filter_that_cannot_be_used_fails_in_the_same_stage(session: Lake) -> None:
    for where in FILTERS:
        call = f'rewrite_data_files(table => "db.t", where => "{where}")'
        kind, _, text = error_of(session, call, takeover=False)
        our_kind, _, our_text = error_of(session, call, takeover=True)
        assert our_kind is kind, where
        assert our_text.startswith(text[: text.index(":")]), where


def test_our_own_sentence_follows_and_the_error_stays_one_of_ours(session: Lake) -> None:
    session.spark.conf.set("spark.iceberg_compact_sql.takeover", "true")
    with pytest.raises(AnalysisException) as caught:
        session.sql("CALL {lake}.system.rewrite_data_files(table => 'db.t', where => 'c2 = 1')")
    first, second = str(caught.value).split("\n")[:2]
    assert first == "Cannot parse predicates in where option: c2 = 1"
    assert re.match(r"rewrite_data_files: where is refused: there is no column 'c2'", second)
    with pytest.raises(AnalysisException, match=r"^compact_table: where is refused"):
        session.sql("CALL compact_table('{lake}.db.t', where => 'c2 = 1')")
