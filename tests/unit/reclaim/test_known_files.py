"""Whether a listed file is one that the metadata names: scheme, authority, spelling, symbolic links."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from iceberg_compact_sql.reclaim.known_files import KnownFiles, PathMatch

VALID = (
    "s3://b/t/data/a%20b.parquet",
    "s3a://b/t/plain",
    "s3://b/t/data//double",
    "s3://b/t/caf\u00e9",
    "hdfs://n1/t/x",
    "file:///t/a/b",
)


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("s3://b/t/plain", PathMatch.NEEDED),
        ("s3n://b/t/plain", PathMatch.NEEDED),
        ("s3://b/t/data/a%20b.parquet", PathMatch.NEEDED),
        ("s3://b/t/data/a b.parquet", PathMatch.OTHER_SPELLING),
        ("s3://b/t/data/a+b.parquet", PathMatch.OTHER_SPELLING),
        ("s3://b/t/data/double", PathMatch.OTHER_SPELLING),
        ("s3://b/t/./plain", PathMatch.OTHER_SPELLING),
        ("file:/t/a//b", PathMatch.NEEDED),
        ("/t/./a/b", PathMatch.NEEDED),
        ("file:///t/c/../a/b", PathMatch.NEEDED),
        ("file:///b", PathMatch.UNKNOWN),
        ("s3://b/t/pla%69n", PathMatch.OTHER_SPELLING),
        ("s3://b/t/" + unicodedata.normalize("NFD", "caf\u00e9"), PathMatch.OTHER_SPELLING),
        ("s3://b2/t/plain", PathMatch.OTHER_PREFIX),
        ("gs://b/t/plain", PathMatch.OTHER_PREFIX),
        ("hdfs://n2/t/x", PathMatch.OTHER_PREFIX),
        ("s3://b/t/other", PathMatch.UNKNOWN),
        ("s3://b/t/plain2", PathMatch.UNKNOWN),
    ],
)
def test_what_counts_as_the_same_file(path: str, match: PathMatch) -> None:
    valid = KnownFiles()
    for location in VALID:
        valid.add(location)
    assert valid.match(path) is match


def test_schemes_and_authorities_that_the_user_calls_equal() -> None:
    valid = KnownFiles({"s3,oss": "s3"}, {"n1,n2": "n1"})
    valid.add("s3://b/x")
    valid.add("hdfs://n1/x")
    assert valid.match("oss://b/x") is PathMatch.NEEDED
    assert valid.match("hdfs://n2/x") is PathMatch.NEEDED
    assert valid.match("hdfs://n3/x") is PathMatch.OTHER_PREFIX
    assert valid.match("s3://bb/x") is PathMatch.OTHER_PREFIX


NEEDED, UNKNOWN = PathMatch.NEEDED, PathMatch.UNKNOWN
PREFIX, SPELLING = PathMatch.OTHER_PREFIX, PathMatch.OTHER_SPELLING


# The path in the metadata, the listed one, what follows, and what follows when the two change sides.
@pytest.mark.parametrize(
    ("named", "listed", "match", "reverse"),
    [
        ("hdfs:/w/a", "hdfs:///w/a", NEEDED, NEEDED),
        ("hdfs:/w/a", "hdfs://nn/w/a", NEEDED, PREFIX),
        ("hdfs:///w/a", "hdfs://nn/w/a", NEEDED, PREFIX),
        ("HDFS:/w/a", "hdfs://nn/w/a", NEEDED, PREFIX),
        ("hdfs://NN/w/a", "HDFS://nn/w/a", NEEDED, NEEDED),
        ("hdfs://nn/w/a", "hdfs://nn:8020/w/a", PREFIX, PREFIX),
        ("/w/a", "hdfs://nn/w/a", NEEDED, PREFIX),
        ("/w/a", "s3://b/w/a", NEEDED, PREFIX),
        ("/w/a", "file:///w/a", NEEDED, NEEDED),
        ("file:/w/a", "file://localhost/w/a", NEEDED, NEEDED),
        ("file:/w/a", "file://host/w/a", NEEDED, PREFIX),
        ("file:/w/a", "hdfs:/w/a", PREFIX, PREFIX),
        ("s3:/w/a", "s3a://b/w/a", NEEDED, PREFIX),
        ("s3:/b/w/a", "s3://b/w/a", NEEDED, UNKNOWN),
        ("S3A://b/w/a", "s3n://b/w/a", NEEDED, NEEDED),
        ("abfss://c@a/w", "abfs://c@a/w", PREFIX, PREFIX),
        ("viewfs://c/w/a", "hdfs://nn/w/a", PREFIX, PREFIX),
        ("s3://b/w/a b", "s3://b/w/a%20b", SPELLING, SPELLING),
        ("s3://b/w/a%20b", "s3://b/w/a%2520b", SPELLING, SPELLING),
        ("s3://b/w//a", "s3://b/w/a", SPELLING, SPELLING),
        ("s3://b/w/x/../a", "s3://b/w/a", SPELLING, SPELLING),
        ("s3://b/w/a/", "s3://b/w/a", SPELLING, SPELLING),
        ("s3://b/w%2Fa", "s3://b/w/a", SPELLING, SPELLING),
        ("gs://b/w/a%20b", "s3://b/w/a b", SPELLING, SPELLING),
        ("/w/caf\u00e9", "/w/cafe\u0301", SPELLING, SPELLING),
        ("/w//a", "file:/w/./x/../a", NEEDED, NEEDED),
        ("s3://b/w/a#1", "s3://b/w/a", UNKNOWN, UNKNOWN),
        ("s3://b/w/a?1", "s3://b/w/a", UNKNOWN, UNKNOWN),
        ("s3://b/w/a\nb", "s3://b/w/a", UNKNOWN, UNKNOWN),
    ],
)
def test_both_directions(named: str, listed: str, match: PathMatch, reverse: PathMatch) -> None:
    for inside, outside, expected in ((named, listed, match), (listed, named, reverse)):
        valid = KnownFiles()
        valid.add(inside)
        assert valid.match(outside) is expected


def test_equal_names_hold_for_metadata_and_listing_whatever_their_case() -> None:
    valid = KnownFiles({"OSS, cos": "S3"}, {"nn1:8020,NN2": "lake"})
    for location in ("oss://b/x", "hdfs://NN1:8020/y", "hdfs://lake/z"):
        valid.add(location)
    for location in ("cos://b/x", "s3a://b/x", "hdfs://nn2/y", "hdfs://LAKE/y", "hdfs://nn1:8020/z"):
        assert valid.match(location) is NEEDED
    assert valid.relative("hdfs://lake/t", "hdfs://nn2/t/a") == "a"
    assert valid.relative("hdfs://lake/t", "hdfs://nn3/t/a") is None


def test_a_named_link_protects_its_targets(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "second").symlink_to("target")
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "other").symlink_to("target")
    valid = KnownFiles()
    valid.add(f"file:{tmp_path}/first")
    for name in ("first", "second", "target"):
        assert valid.match(f"{tmp_path}/{name}") is NEEDED
    # Nothing names this link, and without it the target is still there.
    assert valid.match(f"{tmp_path}/other") is UNKNOWN


def test_a_path_is_compared_as_written_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    valid = KnownFiles()
    valid.add(f"hdfs:{tmp_path}/link/a")
    assert valid.match(f"file:{tmp_path}/link/a") is PREFIX
    valid.add(f"file:{tmp_path}/link/b")
    assert valid.match(f"hdfs://nn{tmp_path}/link/b") is PREFIX
