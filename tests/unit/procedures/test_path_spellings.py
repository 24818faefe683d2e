"""Files that are needed under another name, through CALL: spellings of paths, and symbolic links."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest
from pyiceberg.table import Table

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.reclaim.orphans import OrphanRequest, OrphanSearch
from tests.support.calls import call
from tests.support.handmade import append, data_paths, make_table, replace_names
from tests.support.oracle import rows
from tests.support.plain import PlainLake

LATER_MS = int(time.time() * 1000) + 30 * 86_400_000
EXPIRE = "CALL expire_snapshots('db.t', older_than => '0s')"
ORPHANS = "CALL remove_orphans('db.t', max_share => 1.0{})"


@pytest.fixture
def table(plain_lake: PlainLake) -> Table:
    table = make_table(plain_lake.catalog, "db.t")
    for number in range(3):
        append(table, [{"id": number, "name": "n"}])
    return table


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def orphans(lake: PlainLake, extra: str = "") -> list[str]:
    return [
        Path(row["orphan_file_location"]).name
        for row in call(lake, ORPHANS.format(extra), now_ms=LATER_MS)
        if row["deleted"]
    ]


def forget_history(table: Table) -> None:
    """Leave only the current snapshot in the metadata, and every file where it is."""
    snapshots = [snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots]
    table.maintenance.expire_snapshots().by_ids(snapshots[:-1]).commit()


# `{path}` is the absolute path of the file, `{folder}` and `{name}` are its parts.
SAME_FILE = ["{path}", "file:{path}", "FILE:{path}", "file://localhost{path}", "{folder}//{name}", "{folder}/./{name}"]
OTHER_PREFIX = ["hdfs:{path}", "hdfs://{path}", "hdfs://nn{path}", "s3:{path}", "file://host{path}", "viewfs://c{path}"]
OTHER_SPELLING = ["file://{folder}/%64{rest}", "s3://b{folder}/./{name}", "hdfs:{folder}//{name}"]


def respell(path: str, spelling: str) -> str:
    """The path of a file whose name begins with `d`, in another spelling."""
    place = local(path)
    return spelling.format(path=place, folder=place.parent, name=place.name, rest=place.name[1:])


@pytest.fixture
def live(table: Table) -> str:
    """A data file whose name begins with `d`, with no other character that can be spelled in two ways."""
    [path, *_] = data_paths(table)
    renamed = local(path).with_name("d.parquet")
    local(path).rename(renamed)
    replace_names(table, [path], [f"file://{renamed}"])
    return f"file://{renamed}"


@pytest.mark.parametrize("spelling", SAME_FILE + OTHER_PREFIX + OTHER_SPELLING)
def test_a_live_file_stays_whatever_its_name_in_the_metadata(
    plain_lake: PlainLake, table: Table, live: str, spelling: str
) -> None:
    replace_names(table, [live], [respell(live, spelling)])
    # Only the new spelling is left in the metadata.
    forget_history(table)
    stray = local(live).with_name("stray.parquet")
    stray.write_bytes(b"x")
    if spelling in SAME_FILE:
        assert "stray.parquet" in orphans(plain_lake)
        assert local(live).exists()
        return
    message = "another spelling" if spelling in OTHER_SPELLING else "Conflicting authorities/schemes"
    with pytest.raises(IcebergCompactError, match=message):
        orphans(plain_lake)
    assert local(live).exists()
    assert stray.exists()
    if spelling in OTHER_PREFIX:
        assert "d.parquet" not in orphans(plain_lake, ", prefix_mismatch_mode => 'IGNORE'")
        assert local(live).exists()
        assert not stray.exists()
        assert "d.parquet" in orphans(plain_lake, ", prefix_mismatch_mode => 'DELETE'")


def test_the_error_names_every_conflict(plain_lake: PlainLake, table: Table) -> None:
    first, second, third = data_paths(table)
    replace_names(table, [first, second], [f"hdfs://nn{local(first)}", f"oss://b{local(second)}"])
    forget_history(table)
    with pytest.raises(IcebergCompactError) as caught:
        orphans(plain_lake)
    assert "(file://, hdfs://nn), (file://, oss://b)" in str(caught.value)
    equal = ", equal_schemes => map('hdfs,oss', 'file'), equal_authorities => map('nn,b', '')"
    assert local(first).name not in orphans(plain_lake, equal)
    assert all(local(path).exists() for path in (first, second, third))


@pytest.mark.parametrize("spelling", SAME_FILE + OTHER_PREFIX + OTHER_SPELLING)
def test_expiry_keeps_what_a_kept_snapshot_names_in_another_spelling(
    plain_lake: PlainLake, table: Table, live: str, spelling: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = next(path for path in data_paths(table) if path != live)
    replace_names(table, [live, other], [respell(live, spelling)])
    if "%64" in spelling:
        # No file has this name on a disk: the metadata is damaged.
        with pytest.raises(IcebergCompactError, match="which does not exist; no file was deleted"):
            call(plain_lake, EXPIRE)
        assert local(live).exists() and local(other).exists()
        return
    planned = call(plain_lake, EXPIRE.replace(")", ", dry_run => true)"))
    assert live not in {row["path"] for row in planned}
    with caplog.at_level(logging.WARNING, logger="iceberg_compact_sql"):
        call(plain_lake, EXPIRE)
    assert local(live).exists()
    assert not local(other).exists()
    assert ("in another spelling" in caplog.text) is (spelling not in SAME_FILE)


def into_link(path: Path, target: Path, *between: Path) -> None:
    """Move a file to `target`, and make `path` a link to it, through the links in `between`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    ways = [path, *between]
    for way, goal in zip(ways, [*between, target], strict=True):
        way.symlink_to(os.path.relpath(goal, way.parent))


def test_the_target_of_a_live_link_is_no_orphan(plain_lake: PlainLake, table: Table) -> None:
    first, second, _ = (local(path) for path in data_paths(table))
    expected = rows(table)
    data = first.parent
    into_link(first, data / "moved" / "target one.parquet")
    into_link(second, data / "target%2Ftwo.parquet", data / "middle.parquet", data / "moved" / "last.parquet")
    (data / "stray.parquet").write_bytes(b"x")
    assert orphans(plain_lake) == ["stray.parquet"]
    assert rows(table) == expected


def test_an_orphan_that_is_a_link_goes_without_its_target(plain_lake: PlainLake, table: Table, tmp_path: Path) -> None:
    live = local(data_paths(table)[0])
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(b"x")
    links = {live.with_name("to_live.parquet"): live, live.with_name("to_outside.parquet"): outside}
    links[live.with_name("dangling.parquet")] = tmp_path / "missing"
    for link, target in links.items():
        link.symlink_to(target)
    # A listing leaves links out; a list of the user may name them.
    assert orphans(plain_lake) == []
    search = OrphanSearch(table, OrphanRequest(now_ms=LATER_MS, force=True))
    plan = search.find([(str(link), 0) for link in links])
    assert {file.path for file in plan.orphans} == {str(link) for link in links}
    assert all(gone for _, gone in search.delete(plan))
    assert not any(link.is_symlink() for link in links)
    assert live.exists()
    assert outside.exists()


def test_quarantine_moves_a_link_and_leaves_its_target_alone(plain_lake: PlainLake, table: Table) -> None:
    live = local(data_paths(table)[0])
    before = live.stat().st_mtime_ns
    link = live.with_name("link.parquet")
    link.symlink_to(live)
    search = OrphanSearch(table, OrphanRequest(now_ms=LATER_MS, force=True, quarantine_ms=1000))
    assert [gone for _, gone in search.delete(search.find([(str(link), 0)]))] == [True]
    assert not link.is_symlink()
    assert live.stat().st_mtime_ns == before
    call(plain_lake, "CALL restore_quarantine('db.t')")
    assert link.is_symlink()
    assert link.resolve() == live.resolve()


def test_expiry_keeps_the_target_of_a_link_that_a_kept_snapshot_names(plain_lake: PlainLake, table: Table) -> None:
    path, other, _ = data_paths(table)
    link = local(path).with_name("link.parquet")
    link.symlink_to(local(path))
    replace_names(table, [path, other], [f"file://{link}"])
    expected = rows(table)
    call(plain_lake, EXPIRE)
    assert not local(other).exists()
    assert rows(table) == expected


def test_expiry_deletes_a_link_and_never_its_target(plain_lake: PlainLake, table: Table, tmp_path: Path) -> None:
    needed, unneeded, _ = data_paths(table)
    link = local(needed).with_name("link.parquet")
    link.symlink_to(local(needed))
    replace_names(table, [], [f"file://{link}"])
    target = tmp_path / "elsewhere" / "target.parquet"
    into_link(local(unneeded), target)
    replace_names(table, [f"file://{link}", unneeded], [])
    expected = rows(table)
    call(plain_lake, EXPIRE)
    assert not link.is_symlink()
    assert not local(unneeded).is_symlink()
    assert target.exists()
    assert rows(table) == expected
