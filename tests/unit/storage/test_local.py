"""The checksum that Hadoop keeps beside a local file never outlives the content that it was made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_compact_sql.storage.local import LocalStore


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, Path]:
    """A file and its checksum, as Hadoop's local file system writes them."""
    (tmp_path / "hint.text").write_bytes(b"1")
    (tmp_path / ".hint.text.crc").write_bytes(b"sum")
    return f"file:{tmp_path}/hint.text", tmp_path / ".hint.text.crc"


def test_a_replaced_file_has_no_stale_checksum(pair: tuple[str, Path]) -> None:
    path, checksum = pair
    LocalStore().write(path, b"2")
    assert LocalStore().read(path) == b"2"
    assert not checksum.exists()
    assert [file.name for file in checksum.parent.iterdir()] == ["hint.text"]


def test_the_checksum_goes_before_the_content_is_replaced(
    pair: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, checksum = pair

    def crash(self: Path, target: Path) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(OSError, match="no space"):
        LocalStore().write(path, b"2")
    assert LocalStore().read(path) == b"1"
    assert not checksum.exists()
    assert [file.name for file in checksum.parent.iterdir()] == ["hint.text"]


def test_a_stream_over_an_old_file_removes_its_checksum(pair: tuple[str, Path]) -> None:
    path, checksum = pair
    sink = LocalStore().open_output(path)
    assert not checksum.exists()
    sink.write(b"2")
    sink.close()
    assert LocalStore().read(path) == b"2"


def test_a_taken_name_keeps_file_and_checksum(pair: tuple[str, Path]) -> None:
    path, checksum = pair
    assert not LocalStore().create(path, b"2")
    assert LocalStore().read(path) == b"1"
    assert checksum.exists()


def test_a_checksum_of_a_file_that_is_gone_does_not_meet_the_next_one(pair: tuple[str, Path]) -> None:
    path, checksum = pair
    (checksum.parent / "hint.text").unlink()
    assert LocalStore().create(path, b"2")
    assert not checksum.exists()


def test_a_deleted_file_takes_its_checksum_along_also_when_it_was_gone(pair: tuple[str, Path]) -> None:
    path, checksum = pair
    LocalStore().delete(path)
    assert not checksum.exists()
    checksum.write_bytes(b"sum")
    with pytest.raises(FileNotFoundError):
        LocalStore().delete(path)
    assert not checksum.exists()


def test_a_moved_file_does_not_meet_a_checksum_of_its_new_place(pair: tuple[str, Path], tmp_path: Path) -> None:
    path, checksum = pair
    checksum.unlink()
    (tmp_path / ".there.crc").write_bytes(b"stale")
    LocalStore().move(path, f"{tmp_path}/there")
    assert {file.name for file in tmp_path.iterdir()} == {"there"}


def test_a_file_of_the_longest_name_can_be_deleted(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 255)
    file.write_bytes(b"")
    LocalStore().delete(str(file))
    assert not file.exists()
