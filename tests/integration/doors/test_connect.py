"""The Python door in processes of their own: a classic session without Iceberg's jar, and Spark Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.door_script import FILES, facts_of


@pytest.mark.parametrize("kind", ["plain", "connect"])
def test_every_way_in(kind: str, tmp_path: Path) -> None:
    facts = facts_of(kind, tmp_path)
    assert facts["select"] == 1 and facts["parsed_select"] is False
    assert {"compact_table", "score_partitions", "expire_snapshots", "maintain_table"} <= set(facts["help"])
    assert [facts[way] for way in ("named", "positional", "formatted", "new_session")] == [FILES] * 4
    assert facts["function"] == 1 and facts["notebook"] is True
    check_errors(facts, kind)
    compacted = facts["compacted"]
    assert (compacted["rewritten_data_files_count"], compacted["rows_count"]) == (FILES, 2 * FILES)
    assert (compacted["added_data_files_count"], compacted["commits_count"]) == (1, 1)
    assert (facts["spark_jobs"], facts["plans"], facts["shown_again"]) == (1, 1, 1)
    assert facts["expired"]["expired_snapshots_count"] == FILES
    assert facts["expired"]["deleted_data_files_count"] == FILES
    assert facts["again"]["rewritten_data_files_count"] == 0
    orphans = "struct<orphan_file_location:string,bytes:bigint,last_modified_at:timestamp,deleted:boolean>"
    assert facts["nothing"] == [orphans, 0]
    assert len(facts["maintained"]) == 5 and "failed" not in facts["maintained"]
    rows = rows_left(tmp_path / "lake")
    assert rows == list(range(2 * FILES))


def check_errors(facts: dict[str, Any], kind: str) -> None:
    family = "connect" if kind == "connect" else "captured"
    error = facts["unknown_argument"]
    assert error["text"].startswith("compact_table: unknown argument 'targt' (line 1, column 33)")
    assert "Did you mean 'target'?" in error["text"]
    assert error["classes"][0] == "iceberg_compact_sql.errors.InvalidArgumentError"
    assert f"pyspark.errors.exceptions.{family}.AnalysisException" in error["classes"]
    assert "pyspark.errors.exceptions.base.AnalysisException" in error["classes"]
    assert "compact_table: unknown argument 'targt'" in facts["function_error"]["text"]
    for other in ("foreign", "after_unregister"):
        assert facts[other]["classes"]
        assert not any(name.startswith("iceberg_compact_sql") for name in facts[other]["classes"])


def rows_left(warehouse: Path) -> list[int]:
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=warehouse.as_uri())
    try:
        return sorted(catalog.load_table("db.events").scan().to_arrow()["id"].to_pylist())
    finally:
        catalog.close()
