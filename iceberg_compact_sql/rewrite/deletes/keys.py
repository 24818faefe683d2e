"""Columns of equality keys in one canonical form each, so that promoted, renamed and differently stored ones compare.

Two values are equal as in Iceberg's Java readers: null equals null, NaN equals NaN, and -0.0 is not 0.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_compact_sql.rewrite.scan.arrays import BoolMask
from iceberg_compact_sql.rewrite.scan.inputs import ProjectionError

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_HASHED_BYTES_AT_ONCE = 4 * 1024**2
_LONG_VALUE_BYTES = 1024**2
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = np.uint64(0x100000001B3)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Key values as 64-bit numbers or as bytes; where `valid` is false the key is null."""

    numbers: Int64s | None
    octets: Any
    valid: BoolMask | None

    def __len__(self) -> int:
        return len(self.numbers) if self.numbers is not None else len(self.octets)

    @property
    def size_bytes(self) -> int:
        held = self.numbers.nbytes if self.numbers is not None else self.octets.nbytes if self.octets is not None else 0
        return int(held) + (len(self) if self.valid is not None else 0)

    def take(self, rows: Int64s) -> KeyColumn:
        valid = None if self.valid is None else self.valid[rows]
        if self.numbers is not None:
            return KeyColumn(self.numbers[rows], None, valid)
        return KeyColumn(None, self.octets.take(pa.array(rows)), valid)

    def equals(self, other: KeyColumn) -> BoolMask:
        """Compare row by row; null equals null."""
        if self.numbers is not None and other.numbers is not None:
            same: BoolMask = self.numbers == other.numbers
        else:
            same = pc.equal(self.octets, other.octets).to_numpy(zero_copy_only=False)
        if self.valid is None and other.valid is None:
            return same
        mine = np.ones(len(self), np.bool_) if self.valid is None else self.valid
        theirs = np.ones(len(other), np.bool_) if other.valid is None else other.valid
        both_null: BoolMask = ~mine & ~theirs
        return (same & mine & theirs) | both_null

    def hashes(self) -> Hashes:
        """Return hashes; equal values have equal hashes, different values nearly always different ones."""
        found = _mix(self.numbers.view(np.uint64)) if self.numbers is not None else _hash_octets(self.octets)
        return found if self.valid is None else np.where(self.valid, found, _NULL_HASH)


def key_column(array: pa.Array) -> KeyColumn:
    """Return the canonical form of an Arrow array; Iceberg's specification forbids list, map and struct keys."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    kind = array.type
    if pa.types.is_null(kind):
        return KeyColumn(np.zeros(len(array), np.int64), None, np.zeros(len(array), np.bool_))
    if pa.types.is_floating(kind):
        return KeyColumn(_float_bits(array), None, valid)
    if pa.types.is_decimal(kind):
        wide = pc.cast(array, pa.decimal128(38, kind.scale)).fill_null(0)
        return KeyColumn(None, _octets(wide.view(pa.binary(16))), valid)
    if pa.types.is_fixed_size_binary(kind):
        return KeyColumn(None, _octets(array), valid)
    if any(check(kind) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)) or (
        pa.types.is_large_binary(kind)
    ):
        return KeyColumn(None, _octets(array), valid)
    return KeyColumn(_integers(array), None, valid)


def matching(column: KeyColumn, wanted: KeyColumn, *, only_nulls: bool = False) -> KeyColumn:
    """Return `column` in the form of `wanted`; a column with only nulls matches every form.

    With `only_nulls` it is the wanted column that is, and only the nulls of `column` matter.
    """
    if (column.numbers is None) == (wanted.numbers is None):
        return column
    valid = np.ones(len(column), np.bool_) if column.valid is None else column.valid
    if bool(valid.any()) and not only_nulls:
        raise ProjectionError("a key column has different types in the data file and in the delete file")
    if wanted.numbers is not None:
        return KeyColumn(np.zeros(len(column), np.int64), None, valid)
    return KeyColumn(None, pa.array([b""] * len(column), pa.large_binary()), valid)


def row_hashes(columns: Sequence[KeyColumn]) -> Hashes:
    """Return one hash for each row over all columns of the key."""
    found = columns[0].hashes()
    for column in columns[1:]:
        found = _mix(found * _MULTIPLIERS[0] + column.hashes())
    return found


def concat_columns(parts: Sequence[KeyColumn]) -> KeyColumn:
    """Return the rows of all columns, in order; columns with only nulls take the form of the others."""
    form = next((part for part in parts if part.valid is None or part.valid.any()), parts[0])
    parts = [matching(part, form) for part in parts]
    valid = None
    if any(part.valid is not None for part in parts):
        valid = np.concatenate([np.ones(len(p), np.bool_) if p.valid is None else p.valid for p in parts])
    if form.numbers is not None:
        return KeyColumn(np.concatenate([part.numbers for part in parts if part.numbers is not None]), None, valid)
    return KeyColumn(None, pa.concat_arrays([part.octets for part in parts]), valid)


def _integers(array: pa.Array) -> Int64s:
    kind = array.type
    if pa.types.is_date64(kind):
        array = pc.cast(array, pa.date32())
    elif pa.types.is_timestamp(kind):
        array = pc.cast(array, pa.timestamp("us", tz=kind.tz)) if kind.unit != "us" else array
    elif pa.types.is_time(kind):
        array = pc.cast(array, pa.time64("us"))
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)):
        raise ProjectionError(f"columns of type {kind} cannot be keys of an equality delete")
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(array.type) or pa.types.is_time(array.type):
        array = array.view(pa.int64())
    numbers: Int64s = pc.cast(array, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


def _float_bits(array: pa.Array) -> Int64s:
    values = pc.cast(array, pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), np.float64("nan"), values)
    bits: Int64s = values.view(np.int64)
    return bits


def _octets(array: pa.Array) -> pa.LargeBinaryArray:
    if pa.types.is_fixed_size_binary(array.type):
        array = pc.cast(array, pa.binary())
    elif pa.types.is_string(array.type):
        array = array.view(pa.binary())
    elif pa.types.is_large_string(array.type):
        array = array.view(pa.large_binary())
    return pc.cast(array, pa.large_binary()).fill_null(b"")


def _mix(values: Hashes) -> Hashes:
    """Return the finaliser of splitmix64: one-to-one, so different numbers never share a hash."""
    mixed = (values ^ (values >> np.uint64(30))) * _MULTIPLIERS[0]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIERS[1]
    result: Hashes = mixed ^ (mixed >> np.uint64(31))
    return result


def _hash_octets(array: pa.LargeBinaryArray) -> Hashes:
    """Return a polynomial over the bytes, in blocks of bounded size; very long values are hashed one by one."""
    _, offsets_buffer, data_buffer = array.buffers()
    if len(array) == 0:
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(offsets_buffer, np.int64, len(array) + 1, array.offset * 8)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    found = np.empty(len(array), np.uint64)
    first = 0
    while first < len(array):
        last = int(np.searchsorted(offsets, offsets[first] + _HASHED_BYTES_AT_ONCE, "right")) - 1
        last = min(max(last, first + 1), len(array))
        if lengths[first] > _LONG_VALUE_BYTES:
            last = first + 1
            digest = hashlib.blake2b(data[offsets[first] : offsets[last]].tobytes(), digest_size=8).digest()
            found[first] = int.from_bytes(digest, "little")
        else:
            longer = np.flatnonzero(lengths[first:last] > _LONG_VALUE_BYTES)
            last = first + int(longer[0]) if len(longer) else last
            found[first:last] = _polynomial(data, offsets[first : last + 1], lengths[first:last])
        first = last
    return _mix(found)


def _polynomial(data: Any, offsets: Int64s, lengths: Int64s) -> Hashes:
    longest = int(lengths.max())
    powers = np.cumprod(np.full(longest + 1, _STEP, np.uint64), dtype=np.uint64)
    if int(lengths.min()) == longest:
        # Keys of one length are a matrix: no index for each byte is needed.
        block = data[offsets[0] : offsets[-1]].reshape(len(lengths), longest).astype(np.uint64)
        same_length: Hashes = (block + np.uint64(1)) @ powers[:longest]
        return same_length
    within = np.arange(int(offsets[-1] - offsets[0])) - np.repeat(offsets[:-1] - offsets[0], lengths)
    terms = (data[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)) * powers[within]
    sums = np.zeros(len(lengths), np.uint64)
    filled = lengths > 0
    if filled.any():
        sums[filled] = np.add.reduceat(terms, (offsets[:-1] - offsets[0])[filled])
    return sums
