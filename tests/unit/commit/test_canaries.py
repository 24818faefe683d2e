"""What of pyiceberg the commit works around: when one of these fails, upstream has changed and code can go."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.manifest import DATA_FILE_TYPE, ManifestContent, PartitionFieldStats
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries
from pyiceberg.types import DoubleType, LongType

from iceberg_compact_sql.pyiceberg_internals.manifest_entries import REFERENCED_DATA_FILE, read_entries
from tests.support.handmade import add_position_deletes, append, data_paths, make_catalog, make_table


def test_replace_has_no_summary_upstream() -> None:
    with pytest.raises(ValueError, match="not implemented"):
        update_snapshot_summaries(Summary(Operation.REPLACE))


def test_equality_ids_are_declared_as_longs_upstream() -> None:
    field = next(field for field in DATA_FILE_TYPE[2].fields if field.field_id == 135)
    assert field.field_type.element_type == LongType()  # type: ignore[attr-defined]


def test_referenced_data_file_is_dropped_by_upstreams_reader(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path))
    append(table, [{"id": 1, "name": "a"}])
    path = data_paths(table)[0]
    add_position_deletes(table, {path: [0]})
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest,) = [m for m in snapshot.manifests(table.io) if m.content == ManifestContent.DELETES]
    (theirs,) = manifest.fetch_manifest_entry(table.io)
    assert len(theirs.data_file) <= REFERENCED_DATA_FILE
    (ours,) = read_entries(manifest, table.io)
    assert ours.data_file[REFERENCED_DATA_FILE] == path


def test_a_commit_wipes_branch_retention_upstream(tmp_path: Path) -> None:
    table = make_table(make_catalog(tmp_path))
    append(table, [{"id": 1, "name": "a"}])
    table.manage_snapshots().create_branch(
        table.metadata.current_snapshot_id or 0, "side", min_snapshots_to_keep=7
    ).commit()
    append(table, [{"id": 2, "name": "a"}], branch="side")
    assert table.refresh().metadata.refs["side"].min_snapshots_to_keep is None


def test_bounds_of_negative_zero_depend_on_the_order_upstream() -> None:
    bounds = []
    for values in ((0.0, -0.0), (-0.0, 0.0)):
        stats = PartitionFieldStats(DoubleType())
        for value in values:
            stats.update(value)
        bounds.append(stats.to_summary().lower_bound)
    assert bounds[0] != bounds[1]
