"""A digest of rows that does not depend on their order: the sum of a 64-bit digest of each row.

It proves that a sort or a shuffle lost, doubled or changed no row. Floats count bit by bit. Dictionaries, chunks and
whatever lies under a null do not count.
"""

from __future__ import annotations

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_compact_sql.rewrite.clustering.words import Word, is_text

_MASK = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0x2545F4914F6CDD1D)
_BLOCK_ROWS = 1 << 15
# Longer values are hashed one by one.
_LONG_BYTES = 1024


def mixed(numbers: Word) -> Word:
    """Return numbers whose bits all depend on all bits of the given ones (the finalizer of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    return numbers ^ (numbers >> np.uint64(31))


def rows_digest(batch: pa.RecordBatch) -> int:
    """Return the sum of the digests of the rows, modulo 2**64: sums of several batches add up."""
    digests = np.full(batch.num_rows, _GOLDEN)
    for position, column in enumerate(batch.columns):
        shared = _dictionary_hashes(column)
        for start in range(0, batch.num_rows, _BLOCK_ROWS):
            block = column.slice(start, _BLOCK_ROWS)
            hashes = _hashes(block) if shared is None else _looked_up(block, shared)
            digests[start : start + _BLOCK_ROWS] += _salted(hashes, position)
    return int(mixed(digests).sum(dtype=np.uint64))


def _dictionary_hashes(column: pa.Array) -> Word | None:
    """Hash a dictionary once for all its rows; None for other columns, and for a dictionary larger than its rows."""
    if not pa.types.is_dictionary(column.type) or not 0 < len(column.dictionary) <= len(column):
        return None
    return _hashes(column.dictionary)


def _looked_up(values: pa.DictionaryArray, hashes: Word) -> Word:
    found = hashes[values.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    return _with_nulls(found, values)


def _with_nulls(hashes: Word, values: pa.Array) -> Word:
    if not values.null_count:
        return hashes
    return np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)


def _salted(hashes: Word, position: int) -> Word:
    """Tell equal values of different columns apart."""
    return mixed(hashes + np.uint64((position + 1) * int(_GOLDEN) & _MASK))


def _hashes(values: pa.Array) -> Word:
    """Return one hash for each value; all nulls have the same."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _hashes(values.storage)
    if pa.types.is_null(kind):
        return np.full(len(values), _NULL)
    if pa.types.is_dictionary(kind):
        return _hashes(values.dictionary_decode())
    if pa.types.is_struct(kind):
        found = np.full(len(values), _GOLDEN)
        for position in range(kind.num_fields):
            found += _salted(_hashes(values.field(position)), position)
    elif pa.types.is_map(kind):
        offsets, first, count = _own_offsets(values)
        keys, items = values.keys.slice(first, count), values.items.slice(first, count)
        found = _list_hashes(_salted(_hashes(keys), 0) + _salted(_hashes(items), 1), offsets)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets, first, count = _own_offsets(values)
        found = _list_hashes(_hashes(values.values.slice(first, count)), offsets)
    elif is_text(kind):
        found = _text_hashes(values)
    else:
        found = _fixed_hashes(values)
    return _with_nulls(found, values)


def _own_offsets(values: pa.Array) -> tuple[npt.NDArray[np.int64], int, int]:
    """Return the offsets of lists from 0 on, and which elements of the unsliced array they are about."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    first = int(offsets[0])
    return offsets - first, first, int(offsets[-1]) - first


def _list_hashes(elements: Word, offsets: npt.NDArray[np.int64]) -> Word:
    """Hash each list from its elements, their places and its length."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    found = lengths.astype(np.uint64) * _GOLDEN
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return mixed(found)
    # The lists lie one behind the other.
    within = np.arange(len(elements)) - np.repeat(starts, lengths)
    placed = mixed(elements + within.astype(np.uint64) * _SECOND)
    found[filled] += np.add.reduceat(placed, starts[filled])
    return mixed(found)


def _text_hashes(values: pa.Array) -> Word:
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, offset_buffer, data = values.buffers()
    all_offsets = np.frombuffer(offset_buffer, np.int64 if wide else np.int32)
    offsets = all_offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    found = lengths.astype(np.uint64) * _GOLDEN
    if data is None or not len(lengths) or not lengths.max():
        return mixed(found)
    low, high = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(high - low + 8, np.uint8)
    padded[:-8] = np.frombuffer(data, np.uint8, high - low, low)
    # Eight bytes from every position on.
    eights: npt.NDArray[np.uint64] = np.ndarray((high - low + 1,), "<u8", padded.data, strides=(1,))
    starts = starts - low
    short = np.flatnonzero((lengths > 0) & (lengths <= _LONG_BYTES))
    reached = 0
    while len(short):
        left = lengths[short] - reached
        part = eights[starts[short] + reached]
        # Bytes behind the end belong to the next value.
        extra = np.maximum(8 - left, 0).astype(np.uint64) * np.uint64(8)
        part = (part << extra) >> extra
        found[short] = mixed(found[short] ^ part) + _FIRST
        reached += 8
        short = short[left > 8]
    for index in np.flatnonzero(lengths > _LONG_BYTES):
        start = int(starts[index])
        value = padded[start : start + int(lengths[index])].tobytes()
        found[index] ^= np.uint64(mmh3.hash64(value, signed=False)[0])
    return mixed(found)


def _fixed_hashes(values: pa.Array) -> Word:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    width = values.type.bit_width // 8
    buffer = values.buffers()[1]
    if buffer is None or not len(values) or not width:
        return np.full(len(values), _NULL)
    raw = np.frombuffer(buffer, np.uint8, len(values) * width, values.offset * width)
    if width in (1, 2, 4, 8):
        return raw.view(f"<u{width}").astype(np.uint64)
    padded = np.zeros((len(values), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = raw.reshape(-1, width)
    parts = padded.view("<u8")
    found = np.zeros(len(values), np.uint64)
    for index in range(parts.shape[1]):
        found = mixed(found + parts[:, index]) + _FIRST
    return found
