"""The four answers to "are these two paths one file", side by side."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from iceberg_compact_sql.storage.same_file import forget_links, loose_key, needed_keys, same_file_key, stored_key


@pytest.fixture(autouse=True)
def fresh_links() -> None:
    forget_links()


NFC, NFD = unicodedata.normalize("NFC", "caf\u00e9"), unicodedata.normalize("NFD", "caf\u00e9")

# Two paths; whether they are certainly one object; whether they may be one file.
PAIRS = [
    ("file:/x/a", "file:///x/a", True, True),
    ("file:/x/a", "/x/a", True, True),
    ("FILE:/x/a", "file://localhost/x/a", True, True),
    ("file:/x/a", "file://host/x/a", False, True),
    ("s3://b/a", "s3a://b/a", True, True),
    ("S3N://b/a", "s3://b/a", True, True),
    ("s3://b/a", "s3://c/a", False, True),
    ("s3://b/a", "s3://b/b", False, False),
    ("s3:/a", "s3:///a", True, True),
    ("hdfs:/w/a", "hdfs:///w/a", True, True),
    ("hdfs:/w/a", "HDFS:/w/a", True, True),
    ("hdfs:/w/a", "hdfs://nn/w/a", False, True),
    ("hdfs://nn/w/a", "hdfs://nn:8020/w/a", False, True),
    ("hdfs:/w/a", "/w/a", False, True),
    ("abfs://c@a/x", "abfss://c@a/x", True, True),
    ("gs://b/a", "s3://b/a", False, True),
    ("s3://b/a b", "s3://b/a%20b", False, True),
    ("s3://b/a b", "s3://b/a+b", False, True),
    ("s3://b/a%20b", "s3://b/a%2520b", False, True),
    ("s3://b/x/y", "s3://b/x%2Fy", False, True),
    ("s3://b/x//a", "s3://b/x/a", False, True),
    ("s3://b/x/./a", "s3://b/x/a", False, True),
    ("s3://b/x/y/../a", "s3://b/x/a", False, True),
    ("s3://b/x/a/", "s3://b/x/a", False, True),
    ("s3://b//a", "s3://b/a", False, True),
    (f"s3://b/{NFC}", f"s3://b/{NFD}", False, True),
    (f"/x/{NFC}", f"/x/{NFD}", False, True),
    ("s3://b/a#1", "s3://b/a", False, False),
    ("s3://b/a?1", "s3://b/a", False, False),
    ("s3://b/a\n", "s3://b/a", False, False),
    ("s3://b/A", "s3://b/a", False, False),
    ("s3://b/" + "a" * 2000, "s3://b/" + "a" * 1999, False, False),
]


@pytest.mark.parametrize(("one", "other", "certainly", "maybe"), PAIRS)
def test_certainly_and_maybe(one: str, other: str, certainly: bool, maybe: bool) -> None:
    for first, second in ((one, other), (other, one)):
        assert (same_file_key(first) == same_file_key(second)) is certainly
        assert (stored_key(first) == stored_key(second)) is certainly
        assert (loose_key(first) == loose_key(second)) is maybe


def test_a_disk_is_asked_where_folders_lead(tmp_path: Path) -> None:
    real = tmp_path.resolve() / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "chain").symlink_to("link")
    expected = f"file:{real}/x"
    for path in (f"{tmp_path}/link/x", f"{tmp_path}/chain/./x", f"{tmp_path}//real/x", f"{real}/../real/x"):
        assert stored_key(path) == stored_key(f"file:{path}") == stored_key(f"file://{path}") == expected
    assert stored_key(f"{tmp_path}/real/y/..") == f"file:{real}"


def test_a_link_needs_every_link_on_its_way_and_the_last_target(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "elsewhere").mkdir()
    (root / "elsewhere" / "target").write_bytes(b"x")
    (root / "elsewhere" / "second").symlink_to("../elsewhere/target")
    (root / "first").symlink_to(root / "elsewhere" / "second")
    names = ("first", "elsewhere/second", "elsewhere/target")
    assert needed_keys(f"file://{root}/first") == tuple(f"file:{root}/{name}" for name in names)
    # A link and its target are two objects: deleting the link keeps the target.
    assert stored_key(f"{root}/first") == f"file:{root}/first"
    assert needed_keys(f"{root}/elsewhere/target") == (f"file:{root}/elsewhere/target",)


def test_links_that_lead_nowhere_or_in_a_circle_end(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "dangling").symlink_to("missing")
    (root / "round").symlink_to("about")
    (root / "about").symlink_to("round")
    (root / "self").symlink_to("self")
    (root / "folder").symlink_to(root)
    assert needed_keys(f"{root}/dangling") == (f"file:{root}/dangling", f"file:{root}/missing")
    assert set(needed_keys(f"{root}/round")) == {f"file:{root}/round", f"file:{root}/about"}
    assert set(needed_keys(f"{root}/self")) == {f"file:{root}/self"}
    assert needed_keys(f"{root}/folder")[1:] == (f"file:{root}",)


@pytest.mark.parametrize("name", ["a b", "a%2Fb", "a+b", "a#b", "a?b", "a\nb", NFC, NFD, "n" * 255])
def test_links_with_strange_names(tmp_path: Path, name: str) -> None:
    root = tmp_path.resolve()
    target = root / "t" / name
    target.parent.mkdir()
    target.write_bytes(b"x")
    (root / name).symlink_to(target)
    assert needed_keys(f"file://{root}/{name}") == (f"file:{root}/{name}", f"file:{target}")


def test_a_folder_that_cannot_be_listed_is_asked_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path.resolve()
    (root / "target").write_bytes(b"x")
    (root / "link").symlink_to("target")

    def refuse(path: str) -> None:
        raise PermissionError(path)

    # The tests may run as root, whom no permission stops.
    monkeypatch.setattr(os, "scandir", refuse)
    assert needed_keys(f"{root}/link") == (f"file:{root}/link", f"file:{root}/target")
    monkeypatch.undo()
