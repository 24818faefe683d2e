"""Mutated input all the way through: calls, filters, Parquet files, manifests; it ends in our error or in the truth."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.manifest
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField, TimestamptzType

from iceberg_compact_sql.call.binding import bind
from iceberg_compact_sql.call.grammar import parse_call
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError
from iceberg_compact_sql.parquet.thrift import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    Struct,
    ThriftList,
    read_struct,
    write_struct,
)
from iceberg_compact_sql.plan.filters.parse import parse_where
from iceberg_compact_sql.procedures.registry import names
from iceberg_compact_sql.reclaim.reachability import Reachability
from iceberg_compact_sql.storage.stores import Stores
from iceberg_compact_sql.table.inventory import read_inventory
from tests.support.calls import call
from tests.support.handmade import BY_NAME, SIMPLE_SCHEMA, add_position_deletes, append, data_paths, make_table
from tests.support.oracle import plain
from tests.support.parquet_bytes import footer_bytes, parquet_bytes
from tests.support.plain import PlainLake, open_plain

NOW_MS = 1_767_225_600_000
quick = settings(max_examples=150)
slow = settings(max_examples=30)

CALLS = (
    "CALL compact_table('db.t', target => 512 * 1024, where => 'id = 1', options => map('a', 'b'))",
    "-- nightly\nCALL `lake`.system.expire_snapshots('db.t', older_than => TIMESTAMP '2026-01-01' - INTERVAL 7 DAYS);",
    "/* a */ call remove_orphans(table => \"db.t\", older_than => now() - INTERVAL '1' MONTH, dry_run => true)",
    "CALL maintain_table('t', steps => array('a', r'b'), x => cast('1' as int), y => date_sub(DATE '2026-01-31', 3))",
)
FILTERS = (
    "id = 1 AND name LIKE 'a%'",
    "NOT (id IN (1, 2, 3) OR name IS NULL)",
    'id BETWEEN -1 AND 5e3 or `name` <> "b"',
    "id + 1 = 2 and id >= cast('7' as bigint) -- why\n",
)
TOKENS = [
    "(", ")", "'", '"', "`", "--", "/*", "*/", "=>", "=", ",", ";", "1", "9" * 30, "1e999999", "-", "\\", "\0",
    "\u2028", "é", "\ud800", "NULL ", "map(", "cast(", " as decimal)", "INTERVAL ", "DATE ", "'1e999999'", ":x", "?",
    "array(", "{", " and ", " not ", "in (", "select ", "case when ", "[", ".",
]  # fmt: skip
edits = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 8), st.sampled_from(["", *TOKENS]) | st.text(max_size=3)),
    min_size=1,
    max_size=5,
)


def edited(text: str, changes: list[tuple[int, int, str]]) -> str:
    for place, cut, insert in changes:
        place = min(place, len(text))
        text = text[:place] + insert + text[place + cut :]
    return text


def way_in(text: str) -> None:
    """First words, grammar, binding: our error, arguments, or not ours."""
    try:
        called = parse_call(text, now_ms=NOW_MS)
        procedure = names().get(called.procedure) if called is not None else None
        if called is not None and procedure is not None:
            bind(procedure, called.arguments, now_ms=NOW_MS, time_zone=lambda: "UTC", called_as=called.procedure)
    except IcebergCompactError as error:
        assert str(error)


@quick
@given(st.sampled_from(CALLS), edits)
def test_mutated_calls(text: str, changes: list[tuple[int, int, str]]) -> None:
    way_in(edited(text, changes))


@pytest.mark.parametrize(
    "tail",
    [
        "(" * 10_000 + "1" + ")" * 10_000,
        "(" * 10_000,
        "array(" * 3_000,
        "- " * 10_000 + "1",
        "not " * 5_000 + "1",
        "1 + " * 3_000 + "1",
        "case when " * 3_000,
        "cast(" * 3_000,
        "'" + "x" * 1_000_000 + "'",
        "'" + "x" * 1_000_000,
        "/*" * 100_000,
        "'t', target => " + "9" * 100_000,
        "'t', target => cast('1e999999' as decimal)",
        "'t', min_input_files => cast('1e999999' as decimal)",
        "'t', target => cast(cast('1e999999' as decimal) as int)",
        "'t', target => '" + "9" * 1_000_000 + "MB'",
        "'t', idle => '" + "9" * 1_000_000 + "d'",
        "'t', idle => INTERVAL '1e999999' DAYS",
        "'t', idle => INTERVAL '1e999999' MONTHS",
        ",".join(f"'{number}'" for number in range(3_000)),
        "'a\x0cb' \ud800 x",
    ],
    ids=lambda tail: tail[:24],
)
def test_hostile_calls_end_at_once(tail: str) -> None:
    way_in(f"CALL compact_table({tail})")


def reads_or_refuses(text: str) -> None:
    try:
        parse_where(text, SIMPLE_SCHEMA, time_zone="Asia/Kathmandu", now_ms=NOW_MS)
    except InvalidArgumentError as error:
        assert error.argument == "where"


@quick
@given(st.sampled_from(FILTERS), edits)
def test_mutated_filters(text: str, changes: list[tuple[int, int, str]]) -> None:
    reads_or_refuses(edited(text, changes))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "id = 1" + ")" * 10_000,
        "not " * 10_000 + "id = 1",
        "id = " + "9" * 5_000,
        "id = cast('1e999999' as bigint)",
        "id = cast('1e999999' as decimal)",
        "id < '1e9999999'",
        "name = '" + "x" * 1_000_000 + "'",
        "id = 'x",
        "/* id = 1",
        "cast(" * 3_000 + "id" + " as int)" * 3_000 + " = 1",
        "name = '\ud800'",
        "[" * 3_000,
    ],
    ids=lambda text: text[:24],
)
def test_hostile_filters_end_at_once(text: str) -> None:
    reads_or_refuses(text)


def test_moments_at_the_ends_of_the_calendar_are_refused() -> None:
    schema = Schema(NestedField(1, "at", TimestamptzType()))
    for text in ("at = timestamp '9999-12-31 23:59:59-18:00'", "at > timestamp '0001-01-01 00:00:00+14:00'"):
        with pytest.raises(InvalidArgumentError, match="out of range"):
            parse_where(text, schema, time_zone="UTC")


@dataclass(frozen=True)
class Victims:
    """A table of three healthy files that is put back after every run."""

    lake: PlainLake
    paths: tuple[Path, ...]
    healthy: tuple[bytes, ...]
    catalog: bytes
    files: frozenset[Path]

    def put_back(self) -> None:
        for path in set(self.lake.folder.rglob("*")) - self.files:
            if path.is_file():
                path.unlink()
        (self.lake.folder / "catalog.db").write_bytes(self.catalog)
        for path, content in zip(self.paths, self.healthy, strict=True):
            path.write_bytes(content)


OPTIONS: tuple[dict[str, Any], ...] = (
    {"write_page_index": True, "bloom_filter_options": {"id": {"ndv": 50, "fpp": 0.05}}},
    {"write_page_index": True, "data_page_version": "2.0", "data_page_size": 200},
    {"use_dictionary": False, "write_page_checksum": True},
)


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victims]:
    folder = tmp_path_factory.mktemp("victims")
    with open_plain(folder) as lake:
        table = make_table(lake.catalog)
        paths: list[Path] = []
        contents: list[bytes] = []
        for number, options in enumerate(OPTIONS):
            rows = [{"id": number * 1000 + n, "name": None if n % 7 == 0 else f"name-{n % 5}"} for n in range(60)]
            [path] = append(table, rows)
            arrow = pa.Table.from_pylist(rows, schema=pq.read_schema(plain(path)).remove_metadata())
            paths.append(Path(plain(path)))
            contents.append(parquet_bytes(arrow, row_group_size=25, compression="zstd", **options))
            paths[-1].write_bytes(contents[-1])
    files = frozenset(path for path in folder.rglob("*") if path.is_file())
    yield Victims(lake, tuple(paths), tuple(contents), (folder / "catalog.db").read_bytes(), files)


def rows_of(source: Any) -> list[str]:
    """What pyarrow reads, every row; a damaged file raises."""
    table = pq.ParquetFile(source).read(use_threads=False)
    table.validate(full=True)
    ids = {int((field.metadata or {}).get(b"PARQUET:field_id", b"-1")): field.name for field in table.schema}
    nothing = [None] * table.num_rows
    columns = [table.column(ids[i]).to_pylist() if i in ids else nothing for i in (1, 2)]
    return [repr(row) for row in zip(*columns, strict=True)]


def check_compaction(victims: Victims, which: int, data: bytes, copy: str) -> None:
    """The outcome names the file and leaves nothing, or the table has exactly the rows that pyarrow reads."""
    victims.paths[which].write_bytes(data)
    try:
        expected: list[str] | None = rows_of(io.BytesIO(data))
    except (pa.ArrowException, OSError, ValueError):
        expected = None
    try:
        statement = f"CALL compact_table('db.t', rewrite_all => true, copy_min_row_group_size => 1, copy => '{copy}')"
        try:
            call(victims.lake, statement)
        except IcebergCompactError as error:
            assert victims.paths[which].name in str(error) or "rows, the manifests say" in str(error)
            assert {path for path in victims.lake.folder.rglob("*") if path.is_file()} == victims.files
            return
        catalog = SqlCatalog("plain", uri=f"sqlite:///{victims.lake.folder / 'catalog.db'}", warehouse="file:///none")
        outputs = [plain(path) for path in data_paths(catalog.load_table("db.t"))]
        catalog.close()
        others = [row for number, content in enumerate(victims.healthy) if number != which
                  for row in rows_of(io.BytesIO(content))]  # fmt: skip
        if expected is not None:
            assert sorted(row for path in outputs for row in rows_of(path)) == sorted(others + expected)
            return
        # Row groups that are copied are not decoded: damage stays where it was, and nothing else is lost to it.
        assert copy == "auto"
        found: list[str] = []
        for path in outputs:
            file = pq.ParquetFile(path)
            for group in range(file.metadata.num_row_groups):
                try:
                    table = file.read_row_group(group, use_threads=False)
                    found += [repr(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
                except (pa.ArrowException, OSError, ValueError):
                    continue
        assert set(others) <= set(found)
    finally:
        victims.put_back()


def refooted(data: bytes, raw: bytes) -> bytes:
    return data[: -8 - len(footer_bytes(data))] + raw + len(raw).to_bytes(4, "little") + b"PAR1"


def flipped(data: bytes, places: list[tuple[float, int]], area: str) -> bytes:
    """The file with some bytes changed: in its pages, in what lies between pages and footer, or in its footer."""
    footer = len(data) - 8 - len(footer_bytes(data))
    low, high = {"pages": (4, footer // 2), "indexes": (footer // 2, footer), "footer": (footer, len(data))}[area]
    changed = bytearray(data)
    for place, byte in places:
        changed[low + int(place * (high - low - 1))] = byte
    return bytes(changed)


@slow
@given(
    which=st.integers(0, 2),
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=3),
    area=st.sampled_from(["pages", "indexes", "footer"]),
    copy=st.sampled_from(["auto", "never"]),
)
def test_damaged_files_through_the_engine(
    victims: Victims, which: int, places: list[tuple[float, int]], area: str, copy: str
) -> None:
    check_compaction(victims, which, flipped(victims.healthy[which], places, area), copy)


@settings(slow, max_examples=10)
@given(which=st.integers(0, 2), kept=st.floats(0, 1))
def test_cut_files_through_the_engine(victims: Victims, which: int, kept: float) -> None:
    data = victims.healthy[which]
    check_compaction(victims, which, data[: int(kept * (len(data) - 1))], "auto")


def with_chunk(tree: Struct, change: Callable[[Struct], Struct]) -> Struct:
    """The footer with the metadata of its first chunk changed."""
    groups = list(tree.elements(4, STRUCT) or ())
    chunks = list(groups[0].elements(1, STRUCT) or ())
    chunks[0] = chunks[0].replaced({3: (STRUCT, change(chunks[0].need(3, STRUCT)))})
    groups[0] = groups[0].replaced({1: (LIST, ThriftList(STRUCT, chunks))})
    return tree.replaced({4: (LIST, ThriftList(STRUCT, groups))})


def short_bound(meta: Struct) -> Struct:
    return meta.replaced({12: (STRUCT, meta.need(12, STRUCT).replaced({5: (BINARY, b"abc")}))})


def long_histogram(meta: Struct) -> Struct:
    return meta.replaced({16: (STRUCT, Struct({2: (LIST, ThriftList(I64, [1, 2, 3, 4]))}))})


@pytest.mark.parametrize("copy", ["auto", "never"])
@pytest.mark.parametrize(
    "change",
    [
        short_bound,
        long_histogram,
        lambda meta: meta.replaced({7: (I64, -5)}),
        lambda meta: meta.replaced({7: (I64, 2**62)}),
        lambda meta: meta.replaced({9: (I64, -1)}),
        lambda meta: meta.replaced({5: (I64, 2**62)}),
    ],
    ids=["bound", "histogram", "negative size", "huge size", "negative offset", "huge count"],
)
def test_damaged_chunk_entries_never_end_the_process(
    victims: Victims, change: Callable[[Struct], Struct], copy: str
) -> None:
    """pyarrow's accessors of chunk metadata abort the process for the first two."""
    data = victims.healthy[0]
    tree = with_chunk(read_struct(footer_bytes(data), 0)[0], change)
    check_compaction(victims, 0, refooted(data, write_struct(tree)), copy)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x1c" * 10_000,
        b"\x19" * 10_000,
        b"\x18\xff\xff\xff\xff\x07",
        b"\x19\xfc\xff\xff\xff\xff\x07",
        b"\x1b\xff\xff\xff\xff\x07\x88",
    ],
    ids=["nested structs", "nested lists", "2^31 bytes", "2^31 structs", "2^31 entries"],
)
def test_thrift_bombs_in_a_footer(victims: Victims, raw: bytes) -> None:
    check_compaction(victims, 1, refooted(victims.healthy[1], raw), "auto")


@pytest.fixture(scope="module", params=["gzip", "null", "zstd"])
def listed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """A table with data and delete manifests of one codec."""
    folder = tmp_path_factory.mktemp("listed")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    codec = {"write.avro.compression-codec": request.param}
    table = make_table(catalog, spec=BY_NAME, properties=codec)
    paths = [path for number in range(3) for path in append(table, [{"id": number, "name": "a"}])]
    add_position_deletes(table, {paths[0]: [0]})
    yield table.refresh()
    catalog.close()


def inventory_of(table: Table) -> object:
    pyiceberg.manifest.clear_manifest_cache()
    inventory = read_inventory(table, "main")
    return len(inventory.files), len(inventory.deletes)


def reached_from(table: Table) -> object:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    reachability = Reachability(Stores(table.io))
    kinds = [file.kind.value for file in reachability.content_of(reachability.manifests_of([snapshot]).values())]
    return sum(kind == "data" for kind in kinds), sum(kind != "data" for kind in kinds)


@settings(slow, max_examples=60)
@given(
    of_list=st.booleans(),
    cut=st.none() | st.floats(0, 1),
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
)
@example(of_list=True, cut=0.999, places=[])
@example(of_list=False, cut=0.999, places=[])
def test_damaged_manifests_are_named(
    listed: Table, of_list: bool, cut: float | None, places: list[tuple[float, int]]
) -> None:
    """An error with the file's name, or all files: damage of a value may go unseen, a missing file may not."""
    snapshot = listed.current_snapshot()
    assert snapshot is not None
    pyiceberg.manifest.clear_manifest_cache()
    known = [snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(listed.io))]
    victim = Path(plain(known[0] if of_list else known[1]))
    whole = victim.read_bytes()
    damaged = bytearray(whole)
    for place, byte in places:
        damaged[int(place * (len(whole) - 1))] = byte
    try:
        victim.write_bytes(damaged if cut is None else damaged[: int(cut * (len(whole) - 1))])
        for view in (inventory_of, reached_from):
            try:
                found = view(listed)
            except IcebergCompactError as error:
                # A list that was changed may name a manifest that is not there.
                assert "manifest" in str(error) and (of_list or victim.name in str(error))
            except FileNotFoundError:
                assert of_list
            else:
                assert found == (3, 1)
    finally:
        victim.write_bytes(whole)
