"""Objects of one S3 bucket by their exact keys, with as few requests as possible.

pyarrow refuses keys with an empty component (`a//b`, `/a`, `a/`) and resolves `.` and `..`, so that `a/./b` would
read, overwrite or delete the object `a/b`. It also asks for the size before each read, uploads every object in parts,
and does not return S3's checksums. boto3 sends every key unchanged and makes exactly the requests that it is told to
make. So boto3 does everything except random access to large objects, which pyarrow reads in parallel if it can address
the key. Without boto3 pyarrow does everything, and the keys that it cannot address are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.errors import MissingDependencyError, UnsupportedError
from iceberg_compact_sql.storage.exclusive_create import create_on_s3
from iceberg_compact_sql.storage.listing import every_level, listed_in_threads, modified_ms
from iceberg_compact_sql.storage.locations import split_location
from iceberg_compact_sql.storage.object_keys import has_plain_components
from iceberg_compact_sql.storage.protocol import ByteSink, Store, StoredFile
from iceberg_compact_sql.storage.request_limit import request_limit
from iceberg_compact_sql.storage.s3.bulk_delete import delete_keys
from iceberg_compact_sql.storage.s3.client import (
    S3Clients,
    one_request,
    only_boto3_reads,
    reason_without_client,
    s3_clients,
)
from iceberg_compact_sql.storage.s3.objects import ObjectReader, get_object, put_object
from iceberg_compact_sql.storage.s3.upload import ObjectUpload


class S3Store:
    """One bucket; `open_inner` opens the same bucket through pyarrow or fsspec, when it is first needed."""

    def __init__(self, open_inner: Callable[[], Store], properties: Mapping[str, Any], bucket: str) -> None:
        self._open_inner = open_inner
        self._properties = properties
        self._bucket = bucket
        self._reason = reason_without_client(properties)
        self.bulk = self._reason is None

    @functools.cached_property
    def _inner(self) -> Store:
        return self._open_inner()

    @property
    def _clients(self) -> S3Clients:
        return s3_clients(self._properties)

    @property
    def _client(self) -> Any:
        return self._clients.quick

    def require_addressable(self, path: str) -> None:
        if self._reason is not None:
            self._require_plain(path)

    def read(self, path: str) -> bytes:
        if self._reason is not None:
            self._require_plain(path)
            return self._inner.read(path)
        content = get_object(self._client, self._bucket, _key(path), path)
        assert content is not None, "an object without a limit is read whole"
        return content

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        if self._reason is not None:
            return None
        return get_object(self._client, self._bucket, _key(path), path, max_bytes=max_bytes)

    def open_input(self, path: str) -> pa.NativeFile:
        if self._through_inner(path):
            return self._inner.open_input(path)
        return pa.PythonFile(ObjectReader(self._client, self._bucket, _key(path), path), mode="r")

    def open_output(self, path: str) -> ByteSink:
        if self._reason is not None:
            self._require_plain(path)
            return self._inner.open_output(path)
        return ObjectUpload(self._clients, self._bucket, _key(path), path)

    def write(self, path: str, content: bytes) -> None:
        if self._reason is not None:
            self._require_plain(path)
            self._inner.write(path, content)
            return
        put_object(self._client, self._bucket, _key(path), path, content)

    def create(self, path: str, content: bytes) -> bool:
        self.require_create(path)
        return create_on_s3(self._client, self._bucket, _key(path), content, lambda: self.read(path))

    def require_create(self, path: str) -> None:
        if self._reason is not None:
            raise MissingDependencyError(
                f"commits to a hadoop catalog on S3 need boto3: {self._reason}",
                argument="catalog",
                hint="Run: pip install 'iceberg-compact-sql[s3]'",
            )

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        if self._reason is not None:
            self._require_plain(root.rstrip("/"))
            yield from self._inner.walk(root, enter)
            return
        base = root.rstrip("/")
        top = _prefix(base)
        # The folders directly below the root are listed in parallel: the requests of one flat listing are sequential.
        files, prefixes = self._list(top, base, delimiter="/")
        inside = [prefix for prefix in prefixes if enter(prefix[len(top) :].removesuffix("/"))]
        for page in (files, *listed_in_threads(lambda prefix: self._list(prefix, base, delimiter=None)[0], inside)):
            for file in page:
                if every_level(file.path[len(base) + 1 :], enter):
                    yield file

    def level(self, root: str, *, follow_links: bool = False) -> tuple[list[StoredFile], list[str]]:
        if self._reason is not None:
            self._require_plain(root.rstrip("/"))
            return self._inner.level(root, follow_links=follow_links)
        base = root.rstrip("/")
        top = _prefix(base)
        files, prefixes = self._list(top, base, delimiter="/")
        # A caller cannot list a folder without a name (`a//b`).
        return files, [name for prefix in prefixes if (name := prefix[len(top) : -1])]

    def has_folder(self, path: str) -> bool:
        if self._reason is not None:
            self._require_plain(path.rstrip("/"))
            return self._inner.has_folder(path)
        with one_request(path):
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=_prefix(path.rstrip("/")), MaxKeys=1)
        return bool(answer.get("KeyCount"))

    def make_folder(self, path: str) -> None:
        if self._reason is not None:
            self._require_plain(path.rstrip("/"))
            self._inner.make_folder(path)
            return
        with one_request(path):
            # An empty object represents a folder, as in the tools of Hadoop and Amazon.
            self._client.put_object(Bucket=self._bucket, Key=_prefix(path.rstrip("/")), Body=b"")

    def stat(self, path: str) -> StoredFile | None:
        if self._reason is not None:
            self._require_plain(path)
            return self._inner.stat(path)
        try:
            with one_request(path):
                answer = self._client.head_object(Bucket=self._bucket, Key=_key(path))
        except FileNotFoundError:
            return None
        return StoredFile(path, int(answer["ContentLength"]), modified_ms(answer["LastModified"]))

    def delete(self, path: str) -> None:
        if self._reason is not None:
            self._require_plain(path)
            self._inner.delete(path)
            return
        with one_request(path):
            # Safe: the caller decided that this file may be deleted, and the key is exactly that of its path.
            self._client.delete_object(Bucket=self._bucket, Key=_key(path))

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        if self._reason is not None:
            return None
        by_key = {_key(path): path for path in paths}
        with request_limit().slot():
            failed = delete_keys(self._clients, self._bucket, list(by_key))
        return {by_key[key]: reason for key, reason in failed.items()}

    def move(self, source: str, target: str) -> None:
        if self._reason is not None:
            self._require_plain(source)
            self._require_plain(target)
            self._inner.move(source, target)
            return
        origin = {"Bucket": self._bucket, "Key": _key(source)}
        with one_request(source):
            # Copy first, then delete: an interrupted move leaves two objects, never none.
            self._copy(origin, {"Bucket": split_location(target).authority, "Key": _key(target)})
            self._client.delete_object(**origin)

    def _copy(self, origin: dict[str, str], target: dict[str, str]) -> None:
        try:
            self._clients.patiently(lambda client: client.copy_object(CopySource=origin, **target))
        except self._clients.patient.exceptions.ClientError as error:
            if error.response.get("Error", {}).get("Code") not in ("InvalidRequest", "EntityTooLarge"):
                raise
            # One copy request is limited to 5 GB; this copies in parts.
            self._clients.patient.copy(origin, **target)

    def _list(self, prefix: str, base: str, *, delimiter: str | None) -> tuple[list[StoredFile], list[str]]:
        """Return the objects below a prefix, as locations below `base`, and the prefixes that end with a delimiter."""
        files: list[StoredFile] = []
        prefixes: list[str] = []
        top = _prefix(base)
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": prefix}
        if delimiter:
            request["Delimiter"] = delimiter
        with one_request(base):
            for page in self._client.get_paginator("list_objects_v2").paginate(**request):
                prefixes += [item["Prefix"] for item in page.get("CommonPrefixes", ())]
                files += [
                    StoredFile(f"{base}/{item['Key'][len(top) :]}", item["Size"], modified_ms(item["LastModified"]))
                    for item in page.get("Contents", ())
                    # An empty object whose key ends with a slash represents a folder.
                    if (item["Size"] or not item["Key"].endswith("/")) and item["Key"] != top
                ]
        return files, prefixes

    def _through_inner(self, path: str) -> bool:
        """Whether pyarrow or fsspec addresses exactly this key, with all that the bucket needs."""
        if self._reason is not None:
            self._require_plain(path)
            return True
        return has_plain_components(_key(path)) and not only_boto3_reads(self._properties)

    def _require_plain(self, path: str) -> None:
        key = _key(path)
        if key and not has_plain_components(key):
            raise UnsupportedError(
                f"the S3 key {key!r} has an empty, '.' or '..' component, which only boto3 can address, and"
                f" {self._reason}",
                value=path,
                hint="Run: pip install 'iceberg-compact-sql[s3]'"
                if self._reason == "boto3 is not installed"
                else "Give access keys or a profile instead of that setting.",
            )


def _key(path: str) -> str:
    return split_location(path).key


def _prefix(folder: str) -> str:
    key = _key(folder)
    return f"{key}/" if key else ""
