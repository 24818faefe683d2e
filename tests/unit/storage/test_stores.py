"""The stores keep one contract: listing, deleting, moving and reading by exact path."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_compact_sql.storage.kinds.arrow import ArrowStore
from iceberg_compact_sql.storage.kinds.fsspec import FsspecStore
from iceberg_compact_sql.storage.local import LocalStore
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.storage.protocol import Store
from iceberg_compact_sql.storage.stores import Stores

NAMES = ("plain", "a b", "a+b", "a%20b", "a#b", "a?b", "\u00fc\u6587", "k=1/deep/er", ".hidden/x", "shown/.y")


@pytest.fixture(params=["local", "arrow", "fsspec"])
def store(request: pytest.FixtureRequest) -> Store:
    made: dict[str, Store] = {
        "local": LocalStore(),
        "arrow": ArrowStore(LocalFileSystem()),
        "fsspec": FsspecStore(fsspec.filesystem("file", auto_mkdir=True)),
    }
    return made[request.param]


@pytest.fixture
def root(tmp_path: Path) -> str:
    for name in NAMES:
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "outside").write_bytes(b"")
    return f"file://{tmp_path}/root"


def shown(relative: str) -> bool:
    return not relative.rsplit("/", 1)[-1].startswith(".")


def test_listing_gives_every_file_below_the_root_with_size_and_time(store: Store, root: str) -> None:
    listed = {file.path: file for file in store.walk(root, lambda relative: True)}
    assert set(listed) == {f"{root}/{name}" for name in NAMES}
    now_ms = int(dt.datetime.now().timestamp() * 1000)
    for name in NAMES:
        file = listed[f"{root}/{name}"]
        assert file.size_bytes == len(name.encode())
        assert file.modified_ms is not None
        assert abs(now_ms - file.modified_ms) < 60_000
        assert store.read(file.path) == name.encode()
        assert store.stat(file.path) == file


def test_listing_enters_only_what_it_may(store: Store, root: str) -> None:
    listed = {file.path for file in store.walk(root, shown)}
    assert listed == {f"{root}/{name}" for name in NAMES if "." not in name}


def test_a_root_that_is_not_there_is_empty(store: Store, root: str) -> None:
    assert list(store.walk(f"{root}/nothing", lambda relative: True)) == []
    assert store.stat(f"{root}/nothing") is None


def test_deleting_and_moving_hit_exactly_one_file(store: Store, root: str) -> None:
    store.delete(f"{root}/a#b")
    with pytest.raises(FileNotFoundError):
        store.delete(f"{root}/a#b")
    Path(split_location(f"{root}/aside").path).mkdir()
    store.move(f"{root}/a%20b", f"{root}/aside/moved")
    left = {file.path for file in store.walk(root, lambda relative: True)}
    assert left == {f"{root}/{name}" for name in NAMES if name not in ("a#b", "a%20b")} | {f"{root}/aside/moved"}
    store.write(f"{root}/aside/new", b"content")
    assert store.read(f"{root}/aside/new") == b"content"


def test_deletes_in_bulk_count_what_failed_and_not_what_was_gone(root: str) -> None:
    stores = Stores(PyArrowFileIO({}), workers=3)
    paths = [f"{root}/{name}" for name in NAMES]
    failures = stores.delete([*paths, f"{root}/never there", f"{root}/k=1/deep"])
    assert list(failures) == [f"{root}/k=1/deep"]
    assert [file.path for file in stores.walk(root)] == []


def test_the_checksum_beside_a_file_goes_with_it(root: str, tmp_path: Path) -> None:
    (tmp_path / "root" / ".plain.crc").write_bytes(b"sum")
    store = LocalStore()
    store.move(f"{root}/plain", f"{root}/aside/0-plain")
    assert (tmp_path / "root" / "aside" / ".0-plain.crc").read_bytes() == b"sum"
    assert not (tmp_path / "root" / ".plain.crc").exists()


def test_what_fails_for_a_moment_is_tried_again(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    delete = LocalStore.delete

    def flaky(self: LocalStore, path: str) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise OSError("the store is busy")
        delete(self, path)

    monkeypatch.setattr(LocalStore, "delete", flaky)
    assert Stores(PyArrowFileIO({})).delete([f"{root}/plain"]) == {}
    assert len(tries) == 3


@pytest.mark.parametrize(("answer", "tried"), [("SLOW_DOWN", 3), ("ACCESS_DENIED", 9)])
def test_a_store_that_is_down_is_not_waited_for_file_by_file(
    root: str, monkeypatch: pytest.MonkeyPatch, answer: str, tried: int
) -> None:
    """What is forbidden is not tried again, but says nothing about the next file."""
    calls: list[str] = []

    def refuse(self: LocalStore, path: str) -> None:
        calls.append(path)
        raise OSError(f"AWS Error {answer} during DeleteObject operation")

    monkeypatch.setattr(LocalStore, "delete", refuse)
    monkeypatch.setattr(LocalStore, "bulk", True)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    paths = [f"{root}/{i}" for i in range(9)]
    assert list(Stores(PyArrowFileIO({})).delete(paths)) == paths
    assert len(set(calls)) == tried
    # The first file is tried four times, the others once: the store is known to be down.
    assert len(calls) == tried + (0 if answer == "ACCESS_DENIED" else 3)


def test_work_in_threads_keeps_the_order_and_raises_the_first_error(root: str) -> None:
    stores = Stores(PyArrowFileIO({}), workers=4)
    assert list(stores.each(lambda n: n * n, range(100))) == [n * n for n in range(100)]
    with pytest.raises(ZeroDivisionError):
        list(stores.each(lambda n: 1 // (n - 50), range(100)))


@given(st.text(st.characters(blacklist_characters="/", blacklist_categories=["Cs"]), min_size=1))
def test_nothing_in_a_name_is_decoded(name: str) -> None:
    for root in ("s3://bucket/t", "file:///t", "/t", "gs://b/t"):
        parts = split_location(join(root, name))
        assert parts.path.endswith(f"/{name}")
        assert relative_to(split_location(root), parts) == name
