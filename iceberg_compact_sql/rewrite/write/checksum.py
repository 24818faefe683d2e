"""A digest of a table's rows, column by column, that does not depend on how they are chunked or encoded in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa

_DECODED_BYTES = 64 * 1024**2
_DECODED_ROWS = 128 * 1024
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


class TableDigest:
    """Digests batches of one table in order; equal digests mean equal rows in equal order.

    Validity, list lengths and values count, floats bit by bit. Chunk borders, slices, dictionaries, 32 or 64 bit
    offsets and whatever lies under a null do not.

    >>> digests = []
    >>> for chunks in (["a", None, "b"],), (["a"], [None, "b"]):
    ...     digest = TableDigest(pa.schema([("x", pa.string())]))
    ...     for chunk in chunks:
    ...         digest.update(pa.record_batch([pa.array(chunk, pa.string())], names=["x"]))
    ...     digests.append(digest.digest())
    >>> digests[0] == digests[1]
    True
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns = [_column(field.type) for field in schema]

    def update(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Take the next rows; a batch of another shape is a TypeError."""
        if len(batch.schema) != len(self._columns):
            raise TypeError(f"{len(batch.schema)} columns were given, {len(self._columns)} are expected")
        for field, expected, column, values in zip(
            batch.schema, self._schema, self._columns, batch.columns, strict=True
        ):
            if _shape(field.type) != _shape(expected.type):
                raise TypeError(f"column {expected.name!r} is {field.type}, not {expected.type}")
            for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else (values,):
                column.update(chunk)

    def digest(self) -> tuple[bytes, ...]:
        """One digest per leaf column, in schema order; more rows may follow."""
        return tuple(leaf for column in self._columns for leaf in column.leaf_digests(b""))


class _Column:
    """Hash states of one node of the schema: where its nulls are, how long its values are, and the values."""

    def __init__(self, children: tuple[_Column, ...] = ()) -> None:
        self._rows = 0
        self._nulls = mmh3.mmh3_x64_128()
        self._lengths = mmh3.mmh3_x64_128()
        self._values = mmh3.mmh3_x64_128()
        self.children = children

    def update(self, array: pa.Array) -> None:
        for block in _plain_blocks(array):
            if pa.types.is_null(block.type):
                self._rows += len(block)
                continue
            present = block
            if block.null_count:
                where = np.flatnonzero(block.is_null().to_numpy(zero_copy_only=False)) + self._rows
                self._nulls.update(where.astype(np.int64, copy=False).data)
                # Arrow cannot make an empty array of types that contain a uuid: use an empty slice instead.
                present = block.slice(0, 0) if block.null_count == len(block) else block.drop_null()
            self._rows += len(block)
            if len(present):
                self._take(present)

    def leaf_digests(self, above: bytes) -> Iterator[bytes]:
        states = (self._nulls, self._lengths, self._values)
        path = above + self._rows.to_bytes(8, "little") + b"".join(state.digest() for state in states)
        if not self.children:
            yield hashlib.blake2b(path, digest_size=16).digest()
        for child in self.children:
            yield from child.leaf_digests(path)

    def _take(self, array: pa.Array) -> None:
        """Hash the values of an array without nulls."""
        raise TypeError(f"values of {array.type} cannot be compared")

    def _hash_lengths(self, lengths: np.ndarray[Any, Any]) -> None:
        self._lengths.update(np.ascontiguousarray(lengths, dtype=np.uint32).data)


class _NullColumn(_Column):
    pass


class _FixedColumn(_Column):
    def _take(self, array: pa.Array) -> None:
        width = array.type.bit_width // 8
        values = memoryview(array.buffers()[1])
        self._values.update(values[array.offset * width : (array.offset + len(array)) * width])


class _BooleanColumn(_Column):
    def _take(self, array: pa.Array) -> None:
        self._values.update(array.cast(pa.uint8()).to_numpy())


class _TextColumn(_Column):
    def _take(self, array: pa.Array) -> None:
        wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        _, offsets_buffer, data = array.buffers()
        offsets = np.frombuffer(offsets_buffer, dtype=np.int64 if wide else np.int32)
        offsets = offsets[array.offset : array.offset + len(array) + 1]
        self._hash_lengths(np.diff(offsets))
        if data is not None and offsets[-1] > offsets[0]:
            self._values.update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])


class _StructColumn(_Column):
    def _take(self, array: pa.Array) -> None:
        for position, child in enumerate(self.children):
            child.update(array.field(position))


class _ListColumn(_Column):
    def _take(self, array: pa.Array) -> None:
        self._hash_lengths(array.value_lengths().to_numpy(zero_copy_only=False))
        self.children[0].update(array.flatten())


class _MapColumn(_Column):
    def _take(self, array: pa.Array) -> None:
        offsets = array.offsets.to_numpy()
        self._hash_lengths(np.diff(offsets))
        # Unlike a list's values, a map's keys and items are those of the unsliced array.
        start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
        self.children[0].update(array.keys.slice(start, length))
        self.children[1].update(array.items.slice(start, length))


def _column(kind: pa.DataType) -> _Column:
    if isinstance(kind, pa.BaseExtensionType):
        return _column(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _column(kind.value_type)
    if pa.types.is_struct(kind):
        return _StructColumn(tuple(_column(field.type) for field in kind))
    if pa.types.is_map(kind):
        return _MapColumn((_column(kind.key_type), _column(kind.item_type)))
    if any(is_list(kind) for is_list in _LISTS):
        return _ListColumn((_column(kind.value_type),))
    if any(is_text(kind) for is_text in _TEXTS):
        return _TextColumn()
    if pa.types.is_boolean(kind):
        return _BooleanColumn()
    if pa.types.is_null(kind):
        return _NullColumn()
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _FixedColumn()
    raise TypeError(f"values of {kind} cannot be compared")


def _shape(kind: pa.DataType) -> tuple[Any, ...]:
    """What two types must share for their values to be hashed alike."""
    if isinstance(kind, pa.BaseExtensionType):
        return _shape(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _shape(kind.value_type)
    if pa.types.is_struct(kind):
        return ("struct", *(_shape(field.type) for field in kind))
    if pa.types.is_map(kind):
        return ("map", _shape(kind.key_type), _shape(kind.item_type))
    if any(is_list(kind) for is_list in _LISTS):
        return ("list", _shape(kind.value_type))
    if any(is_text(kind) for is_text in _TEXTS):
        return ("text",)
    if pa.types.is_timestamp(kind):
        return ("timestamp", kind.unit, kind.tz is not None)
    return (str(kind),)


def _plain_blocks(array: pa.Array) -> Iterator[pa.Array]:
    """The array as it is, or a dictionary decoded in blocks of bounded size."""
    if isinstance(array, pa.ExtensionArray):
        yield from _plain_blocks(array.storage)
    elif pa.types.is_dictionary(array.type):
        rows = _decoded_rows(array.dictionary)
        for start in range(0, len(array), rows):
            yield from _plain_blocks(array.slice(start, rows).dictionary_decode())
    else:
        yield array


def _decoded_rows(dictionary: pa.Array) -> int:
    if not len(dictionary) or not any(is_text(dictionary.type) for is_text in _TEXTS):
        return _DECODED_ROWS
    wide = pa.types.is_large_string(dictionary.type) or pa.types.is_large_binary(dictionary.type)
    offsets = np.frombuffer(dictionary.buffers()[1], dtype=np.int64 if wide else np.int32)
    longest = int(np.diff(offsets[dictionary.offset : dictionary.offset + len(dictionary) + 1]).max())
    return max(1, min(_DECODED_ROWS, _DECODED_BYTES // max(1, longest)))
