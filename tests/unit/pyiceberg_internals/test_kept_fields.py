"""Statistics with blobs of types that pyiceberg does not know: tables with them work, and the statistics are kept."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate

from iceberg_compact_sql.pyiceberg_internals import kept_fields  # noqa: F401 - acts by being imported
from tests.support.calls import call
from tests.support.handmade import append, make_table
from tests.support.plain import PlainLake

BLOB = {"type": "hive-column-statistics", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
STATISTICS = {
    "snapshot-id": 1,
    "statistics-path": "file:///x",
    "file-size-in-bytes": 4,
    "file-footer-size-in-bytes": 4,
    "blob-metadata": [BLOB],
}
LATER_MS = int(time.time() * 1000) + 10 * 86_400_000


def loads_in_a_new_process(before: str) -> bool:
    """Whether a new Python process that runs `before` reads the statistics, by themselves and in an update."""
    program = (
        f"import json, sys; {before}; from pyiceberg.table.statistics import StatisticsFile;"
        " from pyiceberg.table.update import SetStatisticsUpdate; given = json.loads(sys.argv[1]);"
        " StatisticsFile.model_validate(given); SetStatisticsUpdate(statistics=given)"
    )
    done = subprocess.run([sys.executable, "-c", program, json.dumps(STATISTICS)], capture_output=True, text=True)
    assert done.returncode == 0 or "ValidationError" in done.stderr, done.stderr
    return done.returncode == 0


def test_canary_pyiceberg_alone_refuses_unknown_blob_types() -> None:
    assert not loads_in_a_new_process("import pyiceberg.table")


def test_models_that_were_imported_before_us_are_built_again() -> None:
    before = "import pyiceberg.catalog.rest, pyiceberg.table.update, pyiceberg.table.metadata"
    assert loads_in_a_new_process(f"{before}; import iceberg_compact_sql.catalogs.open_table")


def add_statistics(table: Table, snapshot_id: int, blob_type: str) -> Path:
    """Name a statistics file of one blob for a snapshot."""
    path = Path(table.location().removeprefix("file://")) / "metadata" / f"{snapshot_id}.stats"
    path.write_bytes(b"stat")
    blob = BlobMetadata(**{**BLOB, "type": blob_type, "snapshot-id": snapshot_id})
    statistics = StatisticsFile(
        **{**STATISTICS, "snapshot-id": snapshot_id, "statistics-path": f"file://{path}", "blob-metadata": [blob]}
    )
    with table.update_statistics() as update:
        update.set_statistics(statistics)
    return path


@pytest.mark.parametrize("version", [1, 2])
def test_statistics_of_unknown_types_are_kept_counted_and_expired(plain_lake: PlainLake, version: int) -> None:
    table = make_table(plain_lake.catalog, "db.t", format_version=version)
    for number in range(3):
        append(table, [{"id": number, "name": "a"}])
    table.refresh()
    first, last = table.metadata.snapshots[0].snapshot_id, table.metadata.snapshots[-1].snapshot_id
    old, kept = add_statistics(table, first, "hive-column-statistics"), add_statistics(table, last, "x" * 300)

    [row] = call(plain_lake, "CALL compact_table('db.t', min_input_files => 2)")
    assert row["rewritten_data_files_count"] == 3
    [row] = call(plain_lake, f"CALL expire_snapshots('db.t', snapshot_ids => array({first}))")
    assert row["deleted_statistics_files_count"] == 1
    assert (old.exists(), kept.exists()) == (False, True)
    [found] = table.refresh().metadata.statistics
    assert (found.snapshot_id, found.blob_metadata[0].type) == (last, "x" * 300)
    [*_] = call(plain_lake, "CALL remove_orphans('db.t')", now_ms=LATER_MS)
    assert kept.exists()


def test_metadata_updates_and_rest_answers_keep_the_type(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t")
    append(table, [{"id": 1, "name": "a"}])
    add_statistics(table, table.refresh().metadata.snapshots[0].snapshot_id, "other")
    text = table.refresh().metadata.model_dump_json()
    assert TableMetadataUtil.parse_raw(text).statistics[0].blob_metadata[0].type == "other"
    answer = TableResponse.model_validate_json(f'{{"metadata-location": "x", "metadata": {text}, "config": {{}}}}')
    assert answer.metadata.statistics[0].blob_metadata[0].type == "other"
    update = SetStatisticsUpdate(statistics=table.metadata.statistics[0])
    request = {"identifier": {"namespace": ["db"], "name": "t"}, "requirements": [], "updates": [update.model_dump()]}
    assert '"other"' in CommitTableRequest.model_validate(request).model_dump_json()
