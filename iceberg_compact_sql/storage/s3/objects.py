"""Reads and writes whole objects of S3, with one request each, and compares checksums.

What S3 stored is proved by its answer: the CRC-32 that S3 computed, or the ETag where it is the MD5 of the content.
An encrypted object (SSE-KMS, SSE-C) has another ETag, and some servers send no checksum: then nothing is proved.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

from iceberg_compact_sql.storage.kinds.random_access import RandomAccess
from iceberg_compact_sql.storage.s3.client import one_request

# One request reads a small file whole; the footer of a large one needs a second request.
_FIRST_READ_BYTES = 4 * 1024 * 1024
_BODY_ATTEMPTS = 3


def get_object(client: Any, bucket: str, key: str, path: str, *, max_bytes: int | None = None) -> bytes | None:
    """Return the whole content of an object; None, without reading it, if it is larger than `max_bytes`."""
    for attempt in range(_BODY_ATTEMPTS):
        with one_request(path):
            answer = client.get_object(Bucket=bucket, Key=key)
            if max_bytes is not None and answer["ContentLength"] > max_bytes:
                answer["Body"].close()
                return None
            try:
                return bytes(answer["Body"].read())
            except Exception:
                # botocore retries a request until its answer begins, but not the rest of the answer.
                if attempt + 1 == _BODY_ATTEMPTS:
                    raise
    raise AssertionError("the last attempt returns or raises")


def put_object(client: Any, bucket: str, key: str, path: str, content: Any) -> bool:
    """Store an object; return whether the answer proves that S3 has exactly these bytes.

    Raises OSError if the answer shows other bytes.
    """
    with one_request(path):
        answer = client.put_object(Bucket=bucket, Key=key, Body=content)
    return require_same_bytes(path, content, answer)


def require_same_bytes(path: str, content: Any, answer: Mapping[str, Any]) -> bool:
    """Return whether an answer to an upload proves that these bytes were stored; raise if it shows other bytes."""
    checksum = answer.get("ChecksumCRC32")
    # The checksum of a multipart object is that of its parts' checksums, with their number after a dash.
    if checksum and "-" not in checksum:
        own = base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
        if checksum != own:
            raise OSError(f"{path} was stored with the CRC-32 {checksum}, but {own} was sent")
        return True
    etag = str(answer.get("ETag", "")).strip('"')
    return etag == hashlib.md5(content, usedforsecurity=False).hexdigest()


class ObjectReader(RandomAccess):
    """Random access to one object. The first request reads a small object whole, and returns the size."""

    def __init__(self, client: Any, bucket: str, key: str, path: str) -> None:
        super().__init__()
        self._client, self._bucket, self._key, self._path = client, bucket, key, path
        self._etag: str | None = None
        self._start, self._size = self._first()

    def read(self, size: int | None = -1) -> bytes:
        start = min(self._position, self._size)
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        known = self._start[start:end]
        data = known if len(known) == end - start else known + self._range(start + len(known), end)
        self._position = start + len(data)
        return data

    def _first(self) -> tuple[bytes, int]:
        try:
            with one_request(self._path):
                answer = self._client.get_object(
                    Bucket=self._bucket, Key=self._key, Range=f"bytes=0-{_FIRST_READ_BYTES - 1}"
                )
                data = bytes(answer["Body"].read())
        except OSError as error:
            if "InvalidRange" in str(error):
                # An empty object has no first byte.
                return b"", 0
            raise
        self._etag = answer.get("ETag")
        total = answer.get("ContentRange", "").rpartition("/")[2]
        return data, int(total) if total.isdigit() else len(data)

    def _range(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        # Require the version of the first request: a replaced object must be an error, not a mix of two versions.
        same = {"IfMatch": self._etag} if self._etag else {}
        with one_request(self._path):
            answer = self._client.get_object(
                Bucket=self._bucket, Key=self._key, Range=f"bytes={start}-{end - 1}", **same
            )
            return bytes(answer["Body"].read())
