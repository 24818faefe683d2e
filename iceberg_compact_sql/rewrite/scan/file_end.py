"""The end of an open Parquet file, read once: two parsers need its footer, and each read is a request on a store."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from iceberg_compact_sql.parquet.footer import FIRST_READ_BYTES, MAX_FOOTER_BYTES

# The length of the footer and the magic bytes.
_TRAILER_BYTES = 8


@dataclass(frozen=True)
class FileEnd:
    """The last bytes of a file: its whole footer, unless the length that the file gives is wrong."""

    file: pa.NativeFile
    size_bytes: int
    content: bytes

    @classmethod
    def of(cls, file: pa.NativeFile) -> FileEnd:
        """Read the end of a file: one request, and one more if the footer is long."""
        size_bytes = file.size()
        content = file.read_at(min(size_bytes, FIRST_READ_BYTES), max(0, size_bytes - FIRST_READ_BYTES))
        wanted = _footer_bytes(content)
        if len(content) < wanted <= min(size_bytes, MAX_FOOTER_BYTES):
            content = file.read_at(wanted, size_bytes - wanted)
        return cls(file, size_bytes, content)

    def parquet_source(self) -> pa.NativeFile:
        """Return a file from which pyarrow can read the footer."""
        if isinstance(self.file, pa.BufferReader) or _footer_bytes(self.content) > len(self.content):
            return self.file
        return pa.BufferReader(self.content)

    def read_at(self, length: int, offset: int) -> bytes:
        """Return bytes of the file; the file is read only for those before its end."""
        start = offset - (self.size_bytes - len(self.content))
        if start < 0:
            return bytes(self.file.read_at(length, offset))
        return self.content[start : start + length]


def _footer_bytes(content: bytes) -> int:
    """Return the bytes from the start of the footer to the end of the file, as the file says."""
    return int.from_bytes(content[-8:-4], "little") + _TRAILER_BYTES if len(content) >= _TRAILER_BYTES else 0
