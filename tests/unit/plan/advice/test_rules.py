"""Every rule of advise: a table where it speaks, with exact words, and one where it must be silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.table.metadata import MetadataLogEntry
from pyiceberg.table.snapshots import Operation

from iceberg_compact_sql.plan.advice.model import Finding, TableFacts, sql_text
from iceberg_compact_sql.plan.advice.rules import RULES, findings
from iceberg_compact_sql.table.file_bounds import ManifestSize
from iceberg_compact_sql.table.model import DeleteKind
from tests.support.advice import snapshot, statistics, table_facts
from tests.support.planning import HOUR_MS, MB, NOW_MS, data_file, delete_file

DAY_MS = 24 * HOUR_MS
MICROS = 1000


def by_rule(facts: TableFacts) -> dict[str, Finding]:
    """The findings of a table by the name of their rule."""
    return {rule.__name__: finding for rule in RULES for finding in rule(facts)}


def days(count: int, size_mb: float = 1, first: int = 20_000) -> list:
    return [data_file(size_mb, partition=(first + day,)) for day in range(count)]


def commits(gap_ms: int, count: int, **summary: int) -> list:
    return [snapshot(n + 1, NOW_MS - (count - n) * gap_ms, **summary) for n in range(count)]


def overlapping(count: int, *, sorted_ids: bool) -> dict:
    files = [data_file(500) for _ in range(count)]
    width = 10 if sorted_ids else 1000
    bounds = [
        statistics(file, id=(n * width * sorted_ids, n * width * sorted_ids + width), name=("a", "b"), at=(1, 2))
        for n, file in enumerate(files)
    ]
    return {"files": files, "bounds": bounds, "sorted_by": "id"}


def late(count: int, *, hours_late: int) -> dict:
    """Ten daily partitions, each written at noon, and `count` of them again after their end."""
    today = NOW_MS // DAY_MS
    files, snapshots = [], []
    for n in range(10):
        day = today - 20 + n
        for hours in (12, 24 + hours_late) if n < count else (12,):
            number = len(snapshots) + 1
            snapshots.append(snapshot(number, day * DAY_MS + hours * HOUR_MS))
            files.append(data_file(600, partition=(day,), snapshot_id=number, sequence_number=number))
    return {"files": files, "snapshots": snapshots, "partition_by": "day(at)"}


def log(count: int) -> list[MetadataLogEntry]:
    return [
        MetadataLogEntry(metadata_file=f"file:///m{n}.json", timestamp_ms=NOW_MS - n * 60_000) for n in range(count)
    ]


def time_span(count: int, span_days: int) -> dict:
    """An unpartitioned table of 1 GB files that arrived in the order of `at`."""
    files = [data_file(1024) for _ in range(count)]
    step = span_days * DAY_MS * MICROS // count
    bounds = [
        statistics(file, id=(1, 2), name=("a", "b"), at=(n * step, (n + 1) * step)) for n, file in enumerate(files)
    ]
    return {"files": files, "bounds": bounds}


ROW_GROUPS = [data_file(600, split_offsets=tuple(range(4, 4 + 200))) for _ in range(2)]
SMALL_APPENDS = commits(HOUR_MS, 5, added_data_files=200, changed_partition_count=10, added_files_size=200 * MB)
COPIES = [
    snapshot(n, NOW_MS - n * HOUR_MS, Operation.OVERWRITE, deleted_records=10_000, added_records=9_990)
    for n in range(1, 7)
]
UPDATES = [
    snapshot(n, NOW_MS - n * HOUR_MS, Operation.OVERWRITE, deleted_records=10_000, added_records=10_000)
    for n in range(1, 7)
]
HASH = {"write.distribution-mode": "hash"}

# Rule; a table where it speaks; words of its finding; its action; a table where it is silent.
CASES: list[tuple[str, dict, str, str, dict]] = [
    (
        "file_sizes",
        {"files": [data_file(3) for _ in range(40)]},
        "40 of 40 files are below 384 MB, 3 MB on average; the target is 512 MB",
        "CALL compact_table('lake.db.t')",
        {"files": [data_file(500) for _ in range(40)]},
    ),
    (
        "file_sizes",
        {"files": [data_file(3000)], "target_bytes": 256 * MB},
        "1 are above 460.8 MB",
        "CALL compact_table('lake.db.t', target => '268435456')",
        {"files": [data_file(3), data_file(400)]},
    ),
    (
        "too_fine",
        {"files": days(365), "partition_by": "day(at)"},
        "365 partitions of 1 MB on average, below a tenth of the target 512 MB; years would make 2 of 182.5 MB",
        "ALTER TABLE `lake`.`db`.`t` REPLACE PARTITION FIELD `at_day` WITH years(`at`)",
        {"files": days(365, 100), "partition_by": "day(at)"},
    ),
    (
        "too_fine",
        {"files": days(365, 20), "partition_by": "day(at)"},
        "months would make 13 of 561.5 MB",
        "ALTER TABLE `lake`.`db`.`t` REPLACE PARTITION FIELD `at_day` WITH months(`at`)",
        {"files": days(40), "partition_by": "day(at)"},
    ),
    (
        "too_fine",
        {"files": [data_file(20, partition=(n,)) for n in range(256)], "partition_by": "bucket[256](id)"},
        "10 buckets would make 10 of 512 MB",
        "ALTER TABLE `lake`.`db`.`t` REPLACE PARTITION FIELD `id_bucket` WITH bucket(10, `id`)",
        {"files": [data_file(600, partition=(n,)) for n in range(256)], "partition_by": "bucket[256](id)"},
    ),
    (
        "too_fine",
        {"files": [data_file(1, partition=(f"n{n}",)) for n in range(100)], "partition_by": "identity(name)"},
        "without name_identity would make 1 of 100 MB",
        "ALTER TABLE `lake`.`db`.`t` DROP PARTITION FIELD `name_identity`",
        {"files": [data_file(300, partition=(f"n{n}",)) for n in range(100)], "partition_by": "identity(name)"},
    ),
    (
        "too_coarse",
        time_span(300, 30),
        "1 partition of 300 GB on average, more than 200 files of the target size; days(at) would make about 30 of 10",
        "ALTER TABLE `lake`.`db`.`t` ADD PARTITION FIELD days(`at`)",
        time_span(90, 30),
    ),
    (
        "too_coarse",
        {"files": [data_file(1024, partition=(54,)) for _ in range(3000)], "partition_by": "year(at)"},
        "days would make about 365 of 8.2 GB",
        "ALTER TABLE `lake`.`db`.`t` REPLACE PARTITION FIELD `at_year` WITH days(`at`)",
        {"files": [data_file(1024, partition=(n,)) for n in range(300)], "partition_by": "year(at)"},
    ),
    (
        "accumulated_deletes",
        {"files": [data_file(500) for _ in range(10)], "deletes": [delete_file() for _ in range(12)]},
        "12 delete files for 10 files: 12 by position, 1% of rows; every read of 10 files applies them again",
        "CALL compact_table('lake.db.t', delete_file_threshold => 1)",
        {"files": [data_file(500) for _ in range(100)], "deletes": [delete_file() for _ in range(3)]},
    ),
    (
        "accumulated_deletes",
        {
            "files": [data_file(500) for _ in range(100)],
            "deletes": [delete_file(DeleteKind.EQUALITY) for _ in range(12)],
        },
        "12 by equality",
        "CALL compact_table('lake.db.t', delete_file_threshold => 1)",
        {"files": [data_file(500) for _ in range(100)]},
    ),
    (
        "delete_granularity",
        {"files": [data_file(500)], "deletes": [delete_file() for _ in range(12)]},
        "12 position delete files name rows of several data files; write.delete.granularity is 'partition'",
        "ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('write.delete.granularity' = 'file')",
        {
            "files": [data_file(500)],
            "deletes": [delete_file() for _ in range(12)],
            "properties": {"write.delete.granularity": "file"},
        },
    ),
    (
        "delete_mode",
        {"snapshots": COPIES},
        "6 commits rewrote 59,940 rows to delete 60 (0.1%); write.delete.mode is 'copy-on-write'",
        "ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', "
        "'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read')",
        {"snapshots": UPDATES},
    ),
    (
        "snapshots",
        {"snapshots": commits(DAY_MS, 60)},
        "60 snapshots; 55 of them are older than 5 days, metadata.json has 9.8 KB",
        "CALL expire_snapshots('lake.db.t')",
        {"snapshots": commits(HOUR_MS, 60)},
    ),
    (
        "snapshots",
        {"snapshots": commits(60_000, 2000)},
        "2000 snapshots; 1440 of them are of the last day, and none is old enough to expire by default",
        "CALL expire_snapshots('lake.db.t', older_than => '1d', retain_last => 10)",
        {"snapshots": commits(DAY_MS, 60), "properties": {"gc.enabled": "false"}},
    ),
    (
        "metadata_files",
        {"metadata_log": log(100)},
        "100 old metadata.json files are listed, and no commit removes one",
        "ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true', "
        "'write.metadata.previous-versions-max' = '100')",
        {"metadata_log": log(100), "properties": {"write.metadata.delete-after-commit.enabled": "true"}},
    ),
    (
        "metadata_files",
        {"metadata_bytes": 110 * MB},
        "metadata.json has 110 MB, and every commit writes it again without compression",
        "ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('write.metadata.compression-codec' = 'gzip')",
        {"metadata_bytes": 110 * MB, "properties": {"write.metadata.compression-codec": "gzip"}},
    ),
    (
        "manifests",
        {"manifests": [ManifestSize(20_000)] * 200},
        "200 manifests of 19.5 KB on average; 1 of 8 MB would hold the same entries",
        "CALL rewrite_manifests('lake.db.t')",
        {"manifests": [ManifestSize(8 * MB)] * 200 + [ManifestSize(1000, deletes=True)] * 50},
    ),
    (
        "row_groups",
        {"files": ROW_GROUPS},
        "2 files of 1.2 GB have row groups of 3 MB on average; below 8 MB they cannot be copied",
        "CALL compact_table('lake.db.t', rewrite_all => true, copy => 'never')",
        {"files": [data_file(600, split_offsets=(4, 5, 6)), *[data_file(2, split_offsets=(4,)) for _ in range(9)]]},
    ),
    (
        "row_groups",
        {"files": ROW_GROUPS, "properties": {"write.parquet.row-group-size-bytes": "3145728"}},
        "(write.parquet.row-group-size-bytes is 3145728)",
        "ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('write.parquet.row-group-size-bytes' = '134217728')",
        {"files": [data_file(600, split_offsets=(4, 5))]},
    ),
    (
        "sort_order",
        overlapping(30, sorted_ids=False),
        "the table's sort order begins with id, but 30.0 files overlap at a point of it on average, 100% of 30 files",
        "CALL compact_table('lake.db.t', strategy => 'sort')",
        overlapping(30, sorted_ids=True),
    ),
    (
        "missing_bounds",
        {
            "files": (files := [data_file(500) for _ in range(4)]),
            "bounds": [statistics(file, id=(1, 2), at=(1, 2)) for file in files],
        },
        "most files have no bounds of name: a filter on them reads every file",
        "ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('write.metadata.metrics.column.name' = 'truncate(16)')",
        {"files": [data_file(500) for _ in range(4)]},
    ),
    (
        "missing_bounds",
        {"files": files, "bounds": [statistics(file, name=("a", "b")) for file in files], "sorted_by": "at"},
        "no bounds of at (partition, sort or identifier columns)",
        "ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('write.metadata.metrics.column.at' = 'full')",
        {},
    ),
    (
        "late_data",
        late(5, hours_late=5),
        "5 of 10 partitions (50%) were written to after they had ended, up to 5 hours later; "
        "95% of the pauses between their writes are at most 17 hours",
        "CALL compact_table('lake.db.t', idle => '17h')",
        late(0, hours_late=5),
    ),
    (
        "late_data",
        late(2, hours_late=30),
        "2 of 10 partitions (20%)",
        "CALL compact_table('lake.db.t', idle => '42h')",
        late(10, hours_late=1),
    ),
    (
        "distribution",
        {"snapshots": SMALL_APPENDS, "partition_by": "day(at)"},
        "5 of the last 5 appends wrote 20 files of 1 MB into each partition; write.distribution-mode is not set",
        "ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('write.distribution-mode' = 'hash')",
        {"snapshots": SMALL_APPENDS, "partition_by": "day(at)", "properties": HASH},
    ),
    (
        "distribution",
        {"snapshots": SMALL_APPENDS, "partition_by": "day(at)", "properties": {"write.distribution-mode": "none"}},
        "write.distribution-mode is 'none'",
        "ALTER TABLE `lake`.`db`.`t` SET TBLPROPERTIES ('write.distribution-mode' = 'hash')",
        {"snapshots": SMALL_APPENDS},
    ),
]


@pytest.mark.parametrize(("rule", "loud", "words", "action", "quiet"), CASES)
def test_a_rule_speaks_and_is_silent(rule: str, loud: dict, words: str, action: str, quiet: dict) -> None:
    finding = by_rule(table_facts(**loud))[rule]
    assert words in finding.finding
    assert finding.action == action
    assert finding.gain and finding.severity in ("high", "medium", "low")
    assert (finding.cost_dollars is None) or finding.cost_dollars > 0
    assert finding.action.startswith("CALL") or finding.cost_dollars is None
    assert rule not in by_rule(table_facts(**quiet))


def test_every_rule_has_both_cases() -> None:
    assert {case[0] for case in CASES} == {rule.__name__ for rule in RULES}


def test_a_healthy_table_and_an_empty_one_have_no_findings() -> None:
    assert findings(table_facts()) == []
    assert findings(table_facts([data_file(500) for _ in range(10)], snapshots=commits(HOUR_MS, 10))) == []


def test_the_most_valuable_finding_comes_first() -> None:
    found = findings(
        table_facts([data_file(1) for _ in range(300)], snapshots=commits(DAY_MS, 60), metadata_log=log(100))
    )
    assert found[0].topic == "files"
    ranks = [["high", "medium", "low"].index(finding.severity) for finding in found]
    assert len(found) == 3 and ranks == sorted(ranks)


@pytest.mark.parametrize(("text", "literal"), [("a'b", r"'a\'b'"), ("a\\", r"'a\\'"), ("a", "'a'")])
def test_names_in_actions_are_literals(text: str, literal: str) -> None:
    assert sql_text(text) == literal


def test_broken_properties_do_not_stop_the_advice() -> None:
    broken: Callable[..., TableFacts] = lambda **p: table_facts([data_file(3)] * 30, properties=p)  # noqa: E731
    assert findings(broken(**{"write.parquet.row-group-size-bytes": "huge"}))
