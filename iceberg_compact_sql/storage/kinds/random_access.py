"""The position in an open file, for readers that ask their store for ranges of bytes."""

from __future__ import annotations

import io


class RandomAccess(io.RawIOBase):
    """The base of a reader with a known size: it keeps `_position`, and the reader implements `read`."""

    _size: int

    def __init__(self) -> None:
        super().__init__()
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position
