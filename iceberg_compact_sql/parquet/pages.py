"""The pages of a column chunk: their headers, walked one after the other, and headers of new pages."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from iceberg_compact_sql.parquet.thrift import I32, STRUCT, TRUE, FooterError, Struct, read_struct, write_struct

DATA, DICTIONARY, DATA_V2 = 0, 2, 3
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
DICTIONARY_ENCODINGS = frozenset({PLAIN_DICTIONARY, RLE_DICTIONARY})
# PLAIN, the DELTA encodings and BYTE_STREAM_SPLIT: their pages need neither a dictionary nor another page.
SELF_CONTAINED = frozenset({0, 5, 6, 7, 9})


class PageError(FooterError):
    """The bytes of a column chunk are not the pages that its metadata describes."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a chunk: header at `start`, body at `body`, next page at `end`; offsets count from the chunk.

    `rows` is None where the header does not say it: pages of version 1 in a list or map. `statistics` are the
    header's own; `rle_levels` is False for the older encoding of levels.
    """

    kind: int
    start: int
    body: int
    end: int
    values: int
    rows: int | None
    encoding: int
    uncompressed_bytes: int
    statistics: Struct | None
    rle_levels: bool = True

    @property
    def header_bytes(self) -> int:
        return self.body - self.start

    @property
    def is_data(self) -> bool:
        return self.kind != DICTIONARY

    @property
    def uses_dictionary(self) -> bool:
        return self.is_data and self.encoding in DICTIONARY_ENCODINGS


def walk_pages(chunk: bytes, levels: tuple[int, int]) -> list[Page]:
    """Return the pages of a chunk in order; raise PageError unless they fill it exactly.

    `levels` are the maximum definition and repetition levels of the column. A page with a CRC is checked against it.
    Only the first page may be a dictionary page.
    """
    pages: list[Page] = []
    position = 0
    while position < len(chunk):
        page, crc = _read_page(chunk, position, levels)
        if page.end > len(chunk) or (page.kind == DICTIONARY and pages):
            raise PageError("a page is outside its column chunk, or a dictionary page is not the first page")
        if crc is not None and zlib.crc32(memoryview(chunk)[page.body : page.end]) != crc & 0xFFFFFFFF:
            raise PageError("the CRC of a page does not match its bytes")
        pages.append(page)
        position = page.end
    return pages


def first_page(chunk: bytes, levels: tuple[int, int]) -> Page:
    """Return the first page of a chunk."""
    page, _ = _read_page(chunk, 0, levels)
    if page.end > len(chunk):
        raise PageError("a page is outside its column chunk")
    return page


def _read_page(chunk: bytes, position: int, levels: tuple[int, int]) -> tuple[Page, int | None]:
    header, body = read_struct(chunk, position)
    kind, length = header.need(1, I32), header.need(3, I32)
    uncompressed = header.need(2, I32)
    if length < 0 or uncompressed < 0:
        raise PageError("a page has a negative size")
    rows: int | None
    statistics: Struct | None = None
    rle_levels = True
    if kind == DATA:
        data = header.need(5, STRUCT)
        values, encoding = data.need(1, I32), data.need(2, I32)
        rows = None if levels[1] else values
        statistics = data.get(5, STRUCT)
        # Java names BIT_PACKED for levels that are not stored, because their maximum is 0.
        stored = zip((data.need(3, I32), data.need(4, I32)), levels, strict=True)
        rle_levels = all(level_encoding == RLE or not level for level_encoding, level in stored)
    elif kind == DATA_V2:
        data = header.need(8, STRUCT)
        values, encoding, rows = data.need(1, I32), data.need(4, I32), data.need(3, I32)
        statistics = data.get(8, STRUCT)
        if not levels[1] and rows != values:
            raise PageError("a page of a flat column has more values than rows")
    elif kind == DICTIONARY:
        data = header.need(7, STRUCT)
        values, encoding, rows = data.need(1, I32), data.need(2, I32), 0
    else:
        raise PageError(f"pages of type {kind} are not known")
    if values < 0 or (rows is not None and rows < 0):
        raise PageError("a page has a negative number of values")
    page = Page(
        kind, position, body, body + length, values, rows, encoding, uncompressed, statistics, rle_levels=rle_levels
    )
    return page, header.get(4, I32)


def plain_page_prefix(*, values: int, optional: bool, compressed: bool, body_bytes: int, plain_bytes: int) -> bytes:
    """Return the header and the levels of a version 2 PLAIN page without nulls; its body follows.

    `body_bytes` is the stored size of the values, `plain_bytes` their size without compression.
    """
    levels = _one_run(values) if optional else b""
    data = Struct(
        {
            1: (I32, values),
            2: (I32, 0),
            3: (I32, values),
            4: (I32, PLAIN),
            5: (I32, len(levels)),
            6: (I32, 0),
            7: (TRUE, compressed),
        }
    )
    header = Struct(
        {1: (I32, DATA_V2), 2: (I32, plain_bytes + len(levels)), 3: (I32, body_bytes + len(levels)), 8: (STRUCT, data)}
    )
    return write_struct(header) + levels


def dictionary_page(values: int, plain: bytes, stored: bytes) -> bytes:
    """Return a dictionary page: `plain` are its values, `stored` the same after compression."""
    data = Struct({1: (I32, values), 2: (I32, PLAIN)})
    header = Struct({1: (I32, DICTIONARY), 2: (I32, len(plain)), 3: (I32, len(stored)), 7: (STRUCT, data)})
    return write_struct(header) + stored


def _one_run(values: int) -> bytes:
    """Return definition levels that are all 1, as one run of the RLE encoding with bit width 1."""
    out = bytearray()
    number = values << 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    out.append(1)
    return bytes(out)
