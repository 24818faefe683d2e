"""Creates a file atomically if it does not exist: on local disks by a hard link, on S3 by a conditional PUT."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import CommitStateUnknownException

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.storage.locations import split_location

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def refuse_create(path: str) -> UnsupportedError:
    """Return the error for a store on which a file cannot be created atomically."""
    return UnsupportedError(
        f"a hadoop catalog on {split_location(path).scheme}:// cannot be committed to from Python without risk of lost"
        " commits",
        argument="catalog",
        hint="Dry runs and scores work. Use a REST, JDBC, Hive or Glue catalog to change tables there.",
    )


def unknown_create(path: str, error: BaseException) -> CommitStateUnknownException:
    """Return the error for a store that did not say whether it created a file."""
    return CommitStateUnknownException(f"the store did not say whether {path} was created: {redact(error)}")


def create_locally(path: Path, data: bytes) -> bool:
    """Create a local file with its whole content; False if the name is taken.

    A hard link is the one local operation that publishes a complete file and fails if the name is taken.
    """
    scratch = path.with_name(f"{secrets.token_hex(16)}.metadata.json")
    try:
        with scratch.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(scratch, path)
        except FileExistsError:
            # NFS can lose the reply to a link call that succeeded. Then the file has a link count of 2.
            return scratch.stat().st_nlink > 1
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            message = f"the file system of {path.parent} has no hard links: commits would not be safe"
            raise UnsupportedError(message, argument="catalog", hint="Use a REST or JDBC catalog there.") from error
        return True
    finally:
        # Safe: only this call uses the random name; the published file is another link.
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()


def create_on_s3(client: Any, bucket: str, key: str, data: bytes, read: Callable[[], bytes]) -> bool:
    """Create an object with `If-None-Match: *`; False if the key is taken.

    `read` returns the current content of the key. Raises CommitStateUnknownException if S3 does not say whether the
    object was created.
    """
    try:
        client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
    except Exception as error:
        # The client retries a PUT that landed and gets 412: compare the content.
        with contextlib.suppress(OSError):
            return read() == data
        status = _http_status(error)
        if status in (409, 412):
            # A concurrent conditional write, or the key exists: nothing was written.
            return False
        if status is not None and 400 <= status < 500:
            raise
        raise unknown_create(f"s3://{bucket}/{key}", error) from None
    return True


def _http_status(error: Exception) -> int | None:
    response = getattr(error, "response", None)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    return status if isinstance(status, int) else None
