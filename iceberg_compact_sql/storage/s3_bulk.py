"""S3's own bulk delete: a thousand keys a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.io import FileIO

from iceberg_compact_sql.storage.locations import Location, split_location

_S3_SCHEMES = ("s3", "s3a", "s3n")
_KEYS_PER_REQUEST = 1000
# What the client has tried several times already, with waits.
_DOWN = (500, 502, 503, 504)
_FOR_A_MOMENT = ("InternalError", "SlowDown", "ServiceUnavailable")
# Settings that boto3 would have to be told in another way: single deletes through the FileIO's file system then.
_NOT_TRANSLATED = ("s3.role-arn", "client.role-arn", "s3.anonymous", "s3.signer", "s3.proxy-uri", "s3.resolve-region")


class BulkDeleter:
    """Deletes keys of one bucket with DeleteObjects, which reports keys that were not there as deleted."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def delete(self, paths: Sequence[str]) -> dict[str, str]:
        """Reasons by path for the keys that the store did not delete."""
        failures: dict[str, str] = {}
        by_key = {split_location(path).path[1:]: path for path in paths}
        keys = list(by_key)
        for start in range(0, len(keys), _KEYS_PER_REQUEST):
            chunk = keys[start : start + _KEYS_PER_REQUEST]
            try:
                failed = self._request(chunk)
            except self._client.exceptions.ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                if status not in _DOWN:
                    # A store that does not know or allow this request: the caller deletes one by one.
                    raise
                failed = dict.fromkeys(chunk, f"{error}")
            failures.update((by_key[key], reason) for key, reason in failed.items())
        return failures

    def _request(self, keys: Sequence[str]) -> dict[str, str]:
        """Reasons by key; those that the store could not delete for a moment are asked for once more."""
        failed: dict[str, str] = {}
        for _ in range(2):
            answer = self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
            failed = {e["Key"]: f"{e.get('Code')}: {e.get('Message')}" for e in answer.get("Errors", ())}
            if not any(reason.startswith(_FOR_A_MOMENT) for reason in failed.values()):
                break
            keys = list(failed)
        return failed


def bulk_deleter(io: FileIO, location: Location) -> BulkDeleter | None:
    """A bulk deleter for an S3 location, or None where boto3 is missing or the settings say more than it is told."""
    properties = io.properties
    if location.scheme not in _S3_SCHEMES or any(properties.get(name) for name in _NOT_TRANSLATED):
        return None
    try:
        import boto3
        from botocore.config import Config  # type: ignore[import-untyped]
    except ImportError:
        return None
    session = boto3.session.Session(
        aws_access_key_id=_first(properties, "s3.access-key-id", "client.access-key-id"),
        aws_secret_access_key=_first(properties, "s3.secret-access-key", "client.secret-access-key"),
        aws_session_token=_first(properties, "s3.session-token", "client.session-token"),
        region_name=_first(properties, "s3.region", "client.region"),
        profile_name=_first(properties, "s3.profile-name", "client.profile-name"),
    )
    endpoint = _first(properties, "s3.endpoint")
    virtual = str(properties.get("s3.force-virtual-addressing", "false")).lower() == "true"
    addressing = "path" if endpoint and not virtual else "auto"
    config = Config(retries={"max_attempts": 5, "mode": "standard"}, s3={"addressing_style": addressing})
    return BulkDeleter(session.client("s3", endpoint_url=endpoint, config=config), location.authority)


def _first(properties: Mapping[str, Any], *names: str) -> str | None:
    return next((str(properties[name]) for name in names if properties.get(name)), None)
