"""Uploads an object while it is written: one PUT for a small one, parts in parallel for a large one."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from iceberg_compact_sql.events import ThreadPool
from iceberg_compact_sql.storage.request_limit import request_limit
from iceberg_compact_sql.storage.s3.client import S3Clients, one_request
from iceberg_compact_sql.storage.s3.objects import put_object, require_same_bytes

# S3 takes parts from 5 MB on, and 10,000 of them: later parts are larger, so that an object may have 5 TB.
_PART_BYTES = 8 * 1024**2
_LARGE_PART_BYTES = 512 * 1024**2
_SMALL_PARTS = 4_000
_MEDIUM_PART_BYTES = 64 * 1024**2
_MEDIUM_PARTS = 8_000
# Parts of all uploads of this process that are in memory and on their way.
_parts_under_way = threading.BoundedSemaphore(8)


class ObjectUpload:
    """A new object; it exists when `close` has returned.

    `proved` is true after `close` if the answers of S3 prove that it stored exactly the bytes written. An upload that
    is not closed leaves no object: `discard` removes its parts.
    """

    def __init__(self, clients: S3Clients, bucket: str, key: str, path: str) -> None:
        self._clients, self._bucket, self._key, self._path = clients, bucket, key, path
        self._buffer = bytearray()
        self._size_bytes = 0
        self._upload_id: str | None = None
        self._pool: ThreadPool | None = None
        self._parts: list[Future[tuple[dict[str, Any], bool]]] = []
        # The number of first parts that are known to have arrived.
        self._checked = 0
        self.closed = False
        self.proved = False

    def write(self, data: Any, /) -> int:
        if self.closed:
            raise ValueError(f"{self._path} is closed")
        view = memoryview(data).cast("B")
        written = len(view)
        self._size_bytes += written
        while len(view):
            part_bytes = self._part_bytes()
            if len(self._buffer) == part_bytes:
                self._send_part()
            room = part_bytes - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
        return written

    def tell(self) -> int:
        return self._size_bytes

    def flush(self) -> None:
        """Do nothing: an object exists only as a whole."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._upload_id is None:
            content, self._buffer = bytes(self._buffer), bytearray()
            self.proved = put_object(self._clients.quick, self._bucket, self._key, self._path, content)
            return
        try:
            if self._buffer:
                self._send_part()
            parts = [part.result() for part in self._parts]
            with one_request(self._path):
                # The patient client: S3 assembles the object before it answers.
                self._clients.patiently(
                    lambda client: client.complete_multipart_upload(
                        **self._target, UploadId=self._upload_id, MultipartUpload={"Parts": [part for part, _ in parts]}
                    )
                )
        except BaseException:
            self._abort()
            raise
        finally:
            self._stop_pool()
        self.proved = all(proved for _, proved in parts)

    def discard(self) -> None:
        """End the upload without an object."""
        if self.closed:
            return
        self.closed = True
        self._buffer = bytearray()
        self._stop_pool()
        self._abort()

    @property
    def _target(self) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key}

    def _part_bytes(self) -> int:
        if len(self._parts) < _SMALL_PARTS:
            return _PART_BYTES
        return _MEDIUM_PART_BYTES if len(self._parts) < _MEDIUM_PARTS else _LARGE_PART_BYTES

    def _send_part(self) -> None:
        if self._upload_id is None:
            with one_request(self._path):
                answer = self._clients.quick.create_multipart_upload(**self._target)
            self._upload_id = answer["UploadId"]
            self._pool = ThreadPool(4, "upload")
        content, self._buffer = bytes(self._buffer), bytearray()
        assert self._pool is not None
        _parts_under_way.acquire()
        try:
            self._parts.append(self._pool.submit(self._upload_part, len(self._parts) + 1, content))
        except BaseException:
            _parts_under_way.release()
            raise
        # Raise the error of a part early: the rest would be sent in vain.
        while self._checked < len(self._parts) and self._parts[self._checked].done():
            self._parts[self._checked].result()
            self._checked += 1

    def _upload_part(self, number: int, content: bytes) -> tuple[dict[str, Any], bool]:
        try:
            with one_request(self._path):
                answer = self._clients.quick.upload_part(
                    **self._target, UploadId=self._upload_id, PartNumber=number, Body=content
                )
        finally:
            _parts_under_way.release()
        part = {"PartNumber": number, "ETag": answer["ETag"]}
        if checksum := answer.get("ChecksumCRC32"):
            part["ChecksumCRC32"] = checksum
        return part, require_same_bytes(self._path, content, answer)

    def _stop_pool(self) -> None:
        if self._pool is not None:
            # Running parts must end first: a part that arrives after the abort would stay.
            self._pool.shutdown(wait=True)
            self._pool = None

    def _abort(self) -> None:
        if self._upload_id is not None:
            self._stop_pool()
            # The first error matters more. A bucket's lifecycle rule removes parts that are left.
            with contextlib.suppress(Exception), request_limit().slot():
                self._clients.quick.abort_multipart_upload(**self._target, UploadId=self._upload_id)

    def __enter__(self) -> ObjectUpload:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            # Do not upload an incomplete object.
            self.discard()
