"""What notebooks show of a result: charts for scores and dry runs, nothing for others, and no markup of others."""

from __future__ import annotations

from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.report.notebook import answer_html

EVIL = "<img src=x onerror=alert(1)>"


def test_scores_and_dry_runs_have_charts() -> None:
    names = [column.name for column in procedures()["score_partitions"].columns]
    row = {**dict.fromkeys(names, 1), "partition": f"day={EVIL}", "score": 0.7, "files_saved": 5, "data_files": 9}
    shown = answer_html("score_partitions", names, [[row[name] for name in names]] * 30)
    assert shown is not None and shown.count("<svg") == 2 and "5 of 9" in shown and "10 more rows" in shown
    assert "<img" not in shown and "<script" not in shown
    plan = procedures()["compact_table"].dry_run_columns
    assert plan is not None
    names = [column.name for column in plan]
    row = {**dict.fromkeys(names, 1), "partition": EVIL, "action": "rewrite", "data_files": 40, "expected_files": 2}
    shown = answer_html("compact_table", names, [[row[name] for name in names]])
    assert shown is not None and shown.count("<svg") == 2 and "40 to 2" in shown and "<img" not in shown


def test_other_results_are_shown_as_any_dataframe() -> None:
    assert answer_html("help", ["argument"], [["table"]]) is None
    assert answer_html("score_partitions", ["partition"], []) is None
