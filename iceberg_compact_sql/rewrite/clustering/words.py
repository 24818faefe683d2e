"""Sort keys as unsigned 64-bit words: comparing the words of two rows compares the rows.

Numbers, dates and times are one word; long decimals, uuids and fixed binaries are several. A string or binary is one
word too, which a `TextWord` function makes: the rank of the value, or its place among some cut values. So strings of
any length are exact. Nothing here runs for each row in Python, except the comparison of long strings.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, parse_transform

from iceberg_compact_sql.plan.layouts.order import OrderField
from iceberg_compact_sql.rewrite.write.partitioning import column_at, partition_column, path_to

Word = npt.NDArray[np.uint64]
# Takes strings or binaries without nulls; returns one word for each.
TextWord = Callable[[pa.Array], Word]

_SIGN = np.uint64(1 << 63)
# A decimal of so many digits fits 64 bits.
_SHORT_DECIMAL = 18


@dataclass(frozen=True, slots=True)
class SortKey:
    """One field of an order, resolved in the table's schema."""

    field: OrderField
    column: Callable[[pa.RecordBatch], pa.Array]

    @classmethod
    def of(cls, schema: Schema, field: OrderField) -> SortKey:
        transform = parse_transform(field.transform)
        path = path_to(schema, field.source_id)
        if path is not None and isinstance(transform, IdentityTransform):
            # Dictionaries stay: only their few values are compared.
            return cls(field, lambda batch: column_at(batch, path))
        key = PartitionField(field.source_id, 1000, transform, f"{field.transform} of column {field.source_id}")
        return cls(field, partition_column(schema, key))

    def words(self, values: pa.Array, text_word: TextWord, *, null_word: bool) -> list[Word]:
        """Return the words of a column of this key, most significant first, with direction and place of nulls.

        `null_word` adds a word that tells nulls from values; without it the column must not hold nulls.
        """
        words = value_words(values, text_word)
        if self.field.descending:
            words = [~word for word in words]
        if not null_word:
            return words
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        # 0 for what comes first, 1 for what comes last.
        first = (is_null ^ self.field.nulls_first).astype(np.uint64)
        return [first, *(np.where(is_null, np.uint64(0), word) for word in words)]


def value_words(values: pa.Array, text_word: TextWord) -> list[Word]:
    """Return the words of the values in ascending order; what stands for a null has no meaning.

    NaN is above every number, whatever its bits, and -0.0 equals 0.0, as in Spark.
    """
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return value_words(values.storage, text_word)
    if pa.types.is_null(kind):
        return []
    if pa.types.is_dictionary(kind):
        codes = values.indices.fill_null(0).to_numpy(zero_copy_only=False)
        if not len(values.dictionary):
            return [np.zeros(len(codes), np.uint64)]
        if is_text(kind):
            return [text_word(values.dictionary)[codes]]
        return [word[codes] for word in value_words(values.dictionary, text_word)]
    if pa.types.is_floating(kind):
        return [_float_word(values)]
    if pa.types.is_decimal(kind):
        return _decimal_words(values)
    if pa.types.is_fixed_size_binary(kind):
        return _fixed_words(values)
    if is_text(kind):
        # Work on distinct values only: most columns repeat them, and a rank needs them anyway.
        return value_words(values.dictionary_encode(), text_word)
    return [_integer_word(values)]


def is_text(kind: pa.DataType) -> bool:
    """Whether values have bytes of any length."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(plain) for test in tests)


def text_ranks(values: pa.Array) -> Word:
    """Return the rank of each string or binary among the given ones: the exact order inside these values only."""
    return _unsigned(pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False))


def text_places(cuts: Sequence[bytes]) -> TextWord:
    """Return the word of a string among sorted, distinct cut values: 2 n between two of them, 2 n + 1 at cut n.

    >>> text_places([b"b", b"d"])(pa.array(["a", "b", "c", "d", "e"])).tolist()
    [0, 1, 2, 3, 4]
    """

    def place(value: bytes) -> int:
        position = bisect.bisect_left(cuts, value)
        return 2 * position + (position < len(cuts) and cuts[position] == value)

    def places(values: pa.Array) -> Word:
        wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
        raw = values.cast(pa.large_binary() if wide else pa.binary())
        return np.fromiter(map(place, raw.to_pylist()), np.uint64, len(raw))

    return places


def _integer_word(values: pa.Array) -> Word:
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        values = values.view(pa.int64())
    elif not pa.types.is_integer(kind):
        raise TypeError(f"values of {kind} have no order")
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    return _unsigned(numbers.astype(np.int64).view(np.uint64) ^ _SIGN)


def _float_word(values: pa.Array) -> Word:
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    # Adding 0.0 turns -0.0 into 0.0. All NaN get the same bits, with the sign of a positive number.
    numbers = np.where(np.isnan(numbers), np.float64("nan"), numbers + 0.0)
    bits = numbers.view(np.int64)
    return (bits ^ ((bits >> np.int64(63)) | np.int64(-(1 << 63)))).view(np.uint64)


def _decimal_words(values: pa.Array) -> list[Word]:
    halves = _fixed_bytes(values, 16).view("<u8").reshape(-1, 2)
    if values.type.precision <= _SHORT_DECIMAL:
        return [halves[:, 0] ^ _SIGN]
    return [halves[:, 1] ^ _SIGN, halves[:, 0].copy()]


def _fixed_words(values: pa.Array) -> list[Word]:
    width = values.type.byte_width
    raw = _fixed_bytes(values, width).reshape(-1, width)
    padded = np.zeros((len(raw), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = raw
    words = padded.view(">u8").astype(np.uint64)
    return [np.ascontiguousarray(words[:, index]) for index in range(words.shape[1])]


def _fixed_bytes(values: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values) * width, np.uint8)
    return np.frombuffer(buffer, np.uint8, len(values) * width, values.offset * width)


def _unsigned(numbers: npt.NDArray[Any]) -> Word:
    return numbers.astype(np.uint64, copy=False)


def order_of(words: Sequence[Word], rows: int) -> npt.NDArray[np.int64]:
    """Return the positions of the rows in order; rows with equal words keep their order.

    If the spans of all words and a row number fit 64 bits, one plain sort of numbers does it.
    """
    if rows < 2 or not words:
        return np.arange(rows)
    lows = [int(word.min()) for word in words]
    widths = [(int(word.max()) - low).bit_length() for word, low in zip(words, lows, strict=True)]
    row_width = (rows - 1).bit_length()
    if sum(widths) + row_width > 64:
        return np.lexsort(list(words[::-1]))
    packed = np.zeros(rows, np.uint64)
    for word, low, width in zip(words, lows, widths, strict=True):
        if width:
            packed = (packed << np.uint64(width)) | (word - np.uint64(low))
    packed = (packed << np.uint64(row_width)) | np.arange(rows, dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << row_width) - 1)).astype(np.int64)
