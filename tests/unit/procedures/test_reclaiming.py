"""The procedures that reclaim, as a CALL reaches them: rows, refusals, and the steps of maintain_table."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import InvalidArgumentError, NotFoundError
from tests.support.reclaim import DAY_MS, SCHEMA, append_ids, id_rows, ids_in

LATER_MS = int(time.time() * 1000) + 30 * DAY_MS


def call(folder: Path, procedure: str, *values: object, **named: object) -> list[dict[str, Any]]:
    """What `CALL procedure(...)` gives, thirty days from now."""
    context = Context(
        view=SessionView(embedded_warehouse=str(folder), current_catalog="local", current_namespace=("db",)),
        now_ms=LATER_MS,
    )
    module = {"remove_orphan_files": "remove_orphans"}.get(procedure, procedure)
    declared = import_module(f"iceberg_compact_sql.procedures.{module}").PROCEDURE
    given = [GivenArgument(value) for value in values] + [GivenArgument(value, name) for name, value in named.items()]
    arguments = bind(declared, given, now_ms=LATER_MS, time_zone=lambda: "UTC", called_as=procedure)
    names = [column.name for column in declared.result_columns(arguments)]
    return [dict(zip(names, row, strict=True)) for row in declared.run(context, arguments)]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    context = Context(view=SessionView(embedded_warehouse=str(tmp_path), current_catalog="local"))
    from iceberg_compact_sql.catalogs.open_table import open_catalog

    catalog = open_catalog(context.view, "local")
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table("db.t", SCHEMA)
    for i in range(3):
        append_ids(table, i)
    table.overwrite(id_rows(9))
    return table


def test_expire_says_what_it_did_and_the_dry_run_what_it_would_do(table: Any, tmp_path: Path) -> None:
    planned = call(tmp_path, "expire_snapshots", "db.t", dry_run=True)
    assert [row["path"] for row in planned if row["kind"] == "snapshot"] == [
        str(snapshot.snapshot_id) for snapshot in table.metadata.snapshots[:-1]
    ]
    [row] = call(tmp_path, "expire_snapshots", "db.t")
    assert row["expired_snapshots_count"] == 4
    assert row["deleted_data_files_count"] == sum(row["kind"] == "data" for row in planned) == 3
    assert row["deleted_manifest_lists_count"] == 4
    assert row["freed_bytes"] == sum(row["bytes"] or 0 for row in planned)
    assert row["failed_deletes_count"] == 0
    assert ids_in(table.refresh()) == [9]


def test_orphans_are_listed_and_then_deleted(table: Any, tmp_path: Path) -> None:
    left = Path(table.location().removeprefix("file://"), "data", "left.parquet")
    left.write_bytes(b"1234")
    for procedure in ("remove_orphans", "remove_orphan_files"):
        [row] = call(tmp_path, procedure, "db.t", dry_run=True)
        assert (row["orphan_file_location"], row["bytes"], row["deleted"]) == (f"file://{left}", 4, False)
        assert row["last_modified_at"].tzinfo is not None
    assert [row["deleted"] for row in call(tmp_path, "remove_orphans", "db.t", quarantine="7d")] == [True]
    [row] = call(tmp_path, "restore_quarantine", "db.t")
    assert row == {"file_location": f"file://{left}", "bytes": 4, "restored": True}
    assert left.exists()
    assert [row["deleted"] for row in call(tmp_path, "remove_orphan_files", "db.t", "2d")] == [True]
    assert not left.exists()


@pytest.mark.parametrize(
    ("procedure", "named", "message"),
    [
        ("expire_snapshots", {"retain_last": 0}, "must be at least 1"),
        ("expire_snapshots", {"snapshot_ids": [1]}, "does not have"),
        ("remove_orphans", {"older_than": "23h"}, "24 hours"),
        ("remove_orphans", {"prefix_mismatch_mode": "NO"}, "is not one of ERROR, IGNORE, DELETE"),
        ("remove_orphans", {"max_share": 2}, "must be at most 1"),
        ("remove_orphans", {"file_list_view": "v"}, "which a table function does not have"),
        ("maintain_table", {"steps": ["compact", "expires"]}, "Did you mean 'expire'?"),
        ("maintain_table", {"steps": []}, "steps is empty"),
    ],
)
def test_arguments_out_of_bounds_are_refused(
    table: Any, tmp_path: Path, procedure: str, named: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call(tmp_path, procedure, "db.t", **named)
    assert message in str(caught.value)
    assert caught.value.argument == next(iter(named))


def test_maintenance_runs_the_chosen_steps_in_the_safe_order(table: Any, tmp_path: Path) -> None:
    Path(table.location().removeprefix("file://"), "data", "left.parquet").write_bytes(b"1234")
    planned = call(tmp_path, "maintain_table", "db.t", steps=["orphans", "expire"], dry_run=True)
    assert [(row["step"], row["outcome"], row["detail"]) for row in planned] == [
        ("expire", "planned", planned[0]["detail"]),
        ("orphans", "planned", "1 files, 4 B"),
    ]
    assert planned[0]["detail"].startswith("4 snapshots, ")
    assert len(table.refresh().metadata.snapshots) == 5
    done = call(tmp_path, "maintain_table", "db.t", steps=["orphans", "expire"])
    assert [(row["step"], row["outcome"]) for row in done] == [("expire", "done"), ("orphans", "done")]
    assert "expired_snapshots_count 4" in done[0]["detail"]
    again = call(tmp_path, "maintain_table", "db.t", steps=["orphans", "expire"])
    assert [row["outcome"] for row in again] == ["nothing to do", "nothing to do"]


def test_maintenance_takes_defaults_from_the_table_and_stops_at_doubt(table: Any, tmp_path: Path) -> None:
    with table.transaction() as change:
        change.set_properties({"iceberg-compact.steps": "expire, orphans", "iceberg-compact.expire.retain-last": "4"})
    planned = call(tmp_path, "maintain_table", "db.t", dry_run=True)
    assert [row["step"] for row in planned] == ["expire", "orphans"]
    assert planned[0]["detail"].startswith("1 snapshots")
    assert call(tmp_path, "maintain_table", "db.t", dry_run=True, retain_last=2)[0]["detail"].startswith("3 snapshots")
    manifest = table.metadata.snapshots[0].manifest_list
    Path(manifest.removeprefix("file://")).unlink()
    stopped = call(tmp_path, "maintain_table", "db.t")
    assert [(row["step"], row["outcome"]) for row in stopped] == [("expire", "failed"), ("orphans", "not run")]
    assert manifest in stopped[0]["detail"]
    with table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    assert [row["outcome"] for row in call(tmp_path, "maintain_table", "db.t")] == ["refused", "refused"]


def test_maintenance_with_a_wrong_argument_of_a_late_step_changes_nothing(table: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^remove_orphans: older_than is less than 24 hours ago"):
        call(tmp_path, "maintain_table", "db.t", orphans_older_than="23h")
    with pytest.raises(NotFoundError, match="branch 'dev' does not exist"):
        call(tmp_path, "maintain_table", "db.t", branch="dev")
    with table.transaction() as change:
        change.set_properties({"iceberg-compact.orphans.older-than": "1h"})
    before = table.metadata_location
    with pytest.raises(InvalidArgumentError, match=r"^remove_orphans: older_than is less than 24 hours ago"):
        call(tmp_path, "maintain_table", "db.t")
    assert table.refresh().metadata_location == before
    with table.transaction() as change:
        change.set_properties({"iceberg-compact.manifests.sort-by": "day, kind"})
    with pytest.raises(
        InvalidArgumentError, match=r"^rewrite_manifests: sort_by names 'day', which is not a partition"
    ):
        call(tmp_path, "maintain_table", "db.t", orphans_older_than="3d")
    with table.transaction() as change:
        change.remove_properties("iceberg-compact.manifests.sort-by")
    assert [row["outcome"] for row in call(tmp_path, "maintain_table", "db.t", orphans_older_than="3d")][3] == "done"


@pytest.mark.parametrize(
    ("name", "value", "message", "instead"),
    [
        (
            "target",
            "banana",
            "^compact_table: argument 'target': 'banana' is not a size.*property iceberg-compact.target",
            "1MB",
        ),
        (
            "steps",
            "compact,nope",
            "^the table's property iceberg-compact.steps names 'nope'",
            ["compact"],
        ),
    ],
)
def test_a_property_that_is_wrong_is_named_and_an_argument_wins_over_it(
    table: Any, tmp_path: Path, name: str, value: str, message: str, instead: Any
) -> None:
    with table.transaction() as change:
        change.set_properties({f"iceberg-compact.{name}": value})
    with pytest.raises(InvalidArgumentError, match=message):
        call(tmp_path, "maintain_table", "db.t", dry_run=True)
    assert call(tmp_path, "maintain_table", "db.t", dry_run=True, **{name: instead})[0]["step"] == "compact"


def test_maintenance_tells_what_was_done_when_the_store_fails_later(table: Any, tmp_path: Path) -> None:
    def fail(reached: str, facts: object) -> None:
        if reached == "orphans.valid":
            raise OSError("no route to https://joe:hunter2@store")

    with events.listening(fail):
        steps = call(tmp_path, "maintain_table", "db.t", steps=["expire", "orphans"])
        assert [(row["step"], row["outcome"]) for row in steps] == [("expire", "done"), ("orphans", "failed")]
        assert steps[1]["detail"] == "OSError: no route to https://***@store"
        with pytest.raises(OSError, match="no route"):
            call(tmp_path, "maintain_table", "db.t", steps=["orphans"])


def test_maintenance_compacts_first(table: Any, tmp_path: Path) -> None:
    for i in range(6):
        append_ids(table, 100 + i)
    steps = call(tmp_path, "maintain_table", "db.t", steps=["compact", "manifests"], dry_run=True)
    assert (steps[0]["step"], steps[0]["outcome"]) == ("compact", "planned")
    assert steps[0]["detail"].startswith("1 groups, 7 files")


def test_maintain_table_takes_the_arguments_of_its_steps(tmp_path: Path) -> None:
    from iceberg_compact_sql.catalogs.open_table import open_catalog

    catalog = open_catalog(SessionView(embedded_warehouse=str(tmp_path), current_catalog="local"), "local")
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table("db.t", SCHEMA)
    for i in range(3):
        append_ids(table, i)
    steps = ["compact", "expire"]
    outcomes = [row["outcome"] for row in call(tmp_path, "maintain_table", "db.t", steps=["compact"], dry_run=True)]
    assert outcomes == ["nothing to do"]
    by_option = call(
        tmp_path, "maintain_table", "db.t", steps=["compact"], options={"min-input-files": "2"}, dry_run=True
    )
    assert [row["outcome"] for row in by_option] == ["planned"]
    rows = call(tmp_path, "maintain_table", "db.t", steps=steps, min_input_files=2, keep_files=True)
    assert [row["outcome"] for row in rows] == ["done", "done"]
    assert len(list(tmp_path.rglob("*.parquet"))) == 4
    assert len(catalog.load_table("db.t").metadata.snapshots) == 1
    for name, value in (("location", "file:///tmp"), ("snapshot_ids", [1]), ("min_input_file", 2)):
        with pytest.raises(InvalidArgumentError, match=f"unknown argument '{name}'"):
            call(tmp_path, "maintain_table", "db.t", **{name: value})
    with pytest.raises(InvalidArgumentError, match="copy"):
        call(tmp_path, "maintain_table", "db.t", copy="sometimes")
