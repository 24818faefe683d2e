"""How a path is taken apart: every spelling of scheme and authority, and nothing decoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.locations import Location, relative_to, split_location

STRANGE_NAMES = (
    "a b",
    "a%20b",
    "a%2Fb",
    "a+b",
    "a#b",
    "a?b=c",
    "a\nb",
    "a//b",
    "./a",
    "../a",
    "a/",
    "\u00fc",
    "u\u0308",
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("s3://b/k", ("s3", "b", "/k")),
        ("S3A://b/k", ("s3a", "b", "/k")),
        ("s3://b", ("s3", "b", "")),
        ("s3://b//k", ("s3", "b", "//k")),
        ("s3:/b/k", ("s3", "", "/b/k")),
        ("hdfs:/w/a", ("hdfs", "", "/w/a")),
        ("hdfs:///w/a", ("hdfs", "", "/w/a")),
        ("HDFS://nn:8020/w/a", ("hdfs", "nn:8020", "/w/a")),
        ("abfss://c@a.dfs.core.windows.net/k", ("abfss", "c@a.dfs.core.windows.net", "/k")),
        ("file:/x", ("file", "", "/x")),
        ("file:///x", ("file", "", "/x")),
        ("FILE:/x", ("file", "", "/x")),
        ("file://localhost/x", ("file", "", "/x")),
        ("file://LOCALHOST/x", ("file", "", "/x")),
        ("file://host/x", ("file", "host", "/x")),
        ("file:////x", ("file", "", "//x")),
        ("/x", ("file", "", "/x")),
        ("/x:/y", ("file", "", "/x:/y")),
        ("x", ("file", "", "x")),
        ("a:b", ("file", "", "a:b")),
        ("C:/x", ("file", "", "C:/x")),
    ],
)
def test_scheme_authority_and_path(text: str, parts: tuple[str, str, str]) -> None:
    assert split_location(text) == Location(*parts)


@pytest.mark.parametrize("name", STRANGE_NAMES)
@pytest.mark.parametrize("prefix", ["s3://b/", "hdfs://nn/", "hdfs:/", "file:///", "/"])
def test_no_character_of_a_name_is_decoded_or_cut(prefix: str, name: str) -> None:
    assert split_location(prefix + name).key == name


def test_what_the_file_systems_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert split_location("s3://b/t//k").object_path == "b/t//k"
    assert split_location("hdfs://nn/t/k").object_path == "/t/k"
    assert split_location("file:/t/k").object_path == split_location("/t/k").local_path == "/t/k"
    monkeypatch.chdir(tmp_path)
    assert split_location("t/k").local_path == f"{tmp_path}/t/k"


def test_a_file_of_another_host_is_never_taken_for_one_of_this_machine() -> None:
    with pytest.raises(UnsupportedError, match="names the host 'tmp', which is not this machine"):
        _ = split_location("file://tmp/x").object_path


@pytest.mark.parametrize(
    ("root", "inner", "rest"),
    [
        ("/t", "file:///t/a", "a"),
        ("file:/t/", "/t//a", "a"),
        ("/t/./u", "/t/u/a", "a"),
        ("/t", "/t/", ""),
        ("/t", "/t2/a", None),
        ("s3://b/t", "s3a://b/t/a", "a"),
        ("s3://b/t", "s3://b/t//a", "/a"),
        ("s3://b/t", "s3://b//t/a", None),
        ("s3://b/t", "s3://c/t/a", None),
        ("hdfs://nn/t", "hdfs:/t/a", None),
        ("hdfs:/t", "hdfs:///t/a", "a"),
        ("hdfs:/t", "/t/a", None),
    ],
)
def test_what_lies_below_a_root(root: str, inner: str, rest: str | None) -> None:
    assert relative_to(split_location(root), split_location(inner)) == rest
