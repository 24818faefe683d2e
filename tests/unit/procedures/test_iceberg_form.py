"""Calls in Iceberg's form, without a JVM: positional order, columns, and the rules that differ from ours."""

from __future__ import annotations

import pytest

from iceberg_compact_sql.call.binding import bind
from iceberg_compact_sql.call.declaration import Arguments
from iceberg_compact_sql.call.grammar import parse_call
from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.procedures.registry import iceberg_names, names
from tests.support.calls import call
from tests.support.handmade import append, make_table
from tests.support.plain import PlainLake


def bound(sql: str) -> Arguments:
    parsed = parse_call(sql, now_ms=0)
    assert parsed is not None
    procedure, name = names()[parsed.procedure], parsed.procedure
    return bind(
        procedure, parsed.arguments, now_ms=0, time_zone=lambda: "UTC", called_as=name, qualified=parsed.qualified
    )


def columns(sql: str) -> list[str]:
    parsed = parse_call(sql, now_ms=0)
    assert parsed is not None
    return [column.name for column in names()[parsed.procedure].result_columns(bound(sql))]


@pytest.mark.parametrize("prefix", ["system.", "lake.system.", "LAKE.`System`."])
def test_a_qualified_call_takes_icebergs_positional_order(prefix: str) -> None:
    expire = bound(f"CALL {prefix}expire_snapshots('t', TIMESTAMP '1970-01-02', 3, 4, true, array(5), true)")
    expected = ("t", 86_400_000, 3, 4, True, (5,), True)
    assert tuple(expire[name] for name in names()["expire_snapshots"].iceberg.positions) == expected  # type: ignore[union-attr]
    manifests = bound(f"CALL {prefix}rewrite_manifests('t', true, 7, array('day'))")
    assert (manifests["use_caching"], manifests["spec_id"], manifests["sort_by"]) == (True, 7, ("day",))
    deletes = bound(f"CALL {prefix}rewrite_position_delete_files('t', map('rewrite-all', 'true'), 'a > 1')")
    assert (deletes["rewrite_all"], deletes["where"]) == (True, "a > 1")
    with pytest.raises(InvalidArgumentError, match="at most 4"):
        bound(f"CALL {prefix}rewrite_manifests('t', true, 7, array('day'), 'main')")


def test_unqualified_calls_and_our_names_keep_our_order() -> None:
    assert bound("CALL expire_snapshots('t', '7d', 3, array(5), true)")["keep_files"] is True
    assert bound("CALL rewrite_manifests('t', 7, 'side')")["branch"] == "side"
    assert bound("CALL lake.system.compact_table('t', '1MB', 'a > 1')")["where"] == "a > 1"
    assert bound("CALL lake.system.rewrite_position_deletes('t', 'a > 1', 'side')")["branch"] == "side"


@pytest.mark.parametrize("name", sorted(iceberg_names()))
def test_only_a_call_in_icebergs_form_returns_icebergs_columns(name: str) -> None:
    procedure = names()[name]
    ours = [column.name for column in procedure.columns]
    assert procedure.iceberg is not None
    icebergs = ours[: procedure.iceberg.column_count]
    assert columns(f"CALL system.{name}('t')") == icebergs != ours
    assert columns(f"CALL lake.system.{name.upper()}('t')") == icebergs
    assert columns(f"CALL {name}('t')") == ours
    if procedure.name != name:
        assert columns(f"CALL lake.system.{procedure.name}('t')") == ours


@pytest.mark.parametrize("name", sorted(iceberg_names()))
def test_a_dry_run_that_iceberg_does_not_have_returns_our_columns(name: str) -> None:
    procedure = names()[name]
    assert procedure.dry_run_columns is not None
    ours = [column.name for column in procedure.dry_run_columns]
    expected = ["orphan_file_location"] if name == "remove_orphan_files" else ours
    assert columns(f"CALL system.{name}(table => 't', dry_run => true)") == expected
    assert columns(f"CALL {name}(table => 't', dry_run => true)") == ours


def test_rows_have_the_columns_of_their_form(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog)
    append(table, [{"id": 1, "name": "a"}])
    name = ".".join(table.name())
    for procedure in sorted(iceberg_names()):
        [*rows] = call(plain_lake, f"CALL system.{procedure}('{name}')")
        assert all(list(row) == columns(f"CALL system.{procedure}('t')") for row in rows)
        assert rows or procedure == "remove_orphan_files"


def test_an_empty_sort_by_is_refused_in_icebergs_form_only(plain_lake: PlainLake) -> None:
    append(make_table(plain_lake.catalog, "db.t"), [{"id": 1, "name": "a"}])
    for dry_run in ("true", "false"):
        with pytest.raises(InvalidArgumentError, match="sort_by must not be empty when provided"):
            call(plain_lake, f"CALL system.rewrite_manifests('db.t', sort_by => array(), dry_run => {dry_run})")
    assert call(plain_lake, "CALL rewrite_manifests('db.t', sort_by => array())")
    assert call(plain_lake, "CALL system.rewrite_manifests('db.t', sort_by => NULL)")
