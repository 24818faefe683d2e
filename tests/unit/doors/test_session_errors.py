"""Spark's own errors for a CALL of an unknown procedure, with our suggestion; every other error stays as it is."""

from __future__ import annotations

import pytest
from pyspark.errors.exceptions.connect import AnalysisException

from iceberg_compact_sql.doors.session_errors import suggest_procedure
from iceberg_compact_sql.procedures.registry import names

NO_ABILITY = "[MISSING_CATALOG_ABILITY.PROCEDURES] Catalog spark_catalog does not support procedures. SQLSTATE: 0A000"
UNRESOLVED = "[UNRESOLVED_ROUTINE] Cannot resolve routine `compact_tabel` on search path []. SQLSTATE: 42883"
SPARK_3 = "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'CALL'.(line 1, pos 0)\n"


@pytest.mark.parametrize("text", [NO_ABILITY, UNRESOLVED, SPARK_3])
def test_sparks_answer_gets_our_suggestion(text: str) -> None:
    error = AnalysisException(text)
    before = str(error)
    suggest_procedure(error, "compact_tabel", names())
    assert before.strip().splitlines()[0] in str(error)
    assert "Did you mean 'compact_table'?" in str(error)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("compact_tables", "compact_table"),
        ("compacttable", "compact_table"),
        ("rewrite_data_file", "rewrite_data_files"),
        ("expire_snapshot", "expire_snapshots"),
        ("remove_orphan", "remove_orphans"),
        ("score_partition", "score_partitions"),
    ],
)
def test_close_names(name: str, meant: str) -> None:
    error = AnalysisException(NO_ABILITY)
    suggest_procedure(error, name, names())
    assert f"Did you mean '{meant}'?" in str(error)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("refresh_statistics", NO_ABILITY),
        ("my_procedure", UNRESOLVED),
        ("compact_tabel", "[TABLE_OR_VIEW_NOT_FOUND] The table `t` cannot be found."),
        ("compact_tabel", "\n[PARSE_SYNTAX_ERROR] Syntax error at or near ')'.(line 1, pos 20)\n"),
    ],
)
def test_other_names_and_other_errors_stay_as_they_are(name: str, text: str) -> None:
    error = AnalysisException(text)
    before = str(error)
    suggest_procedure(error, name, names())
    assert str(error) == before
