"""S3's bulk delete: up to 1,000 keys in one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_KEYS_PER_REQUEST = 1000
# Errors that the client has already retried several times, with waits.
_DOWN = (500, 502, 503, 504)
_FOR_A_MOMENT = ("InternalError", "SlowDown", "ServiceUnavailable")


def delete_keys(client: Any, bucket: str, keys: Sequence[str]) -> dict[str, str]:
    """Delete keys with DeleteObjects, which reports missing keys as deleted.

    Returns the reason for each key that was not deleted. Raises if the store refuses the whole request.
    """
    failures: dict[str, str] = {}
    for start in range(0, len(keys), _KEYS_PER_REQUEST):
        chunk = keys[start : start + _KEYS_PER_REQUEST]
        try:
            failures.update(_request(client, bucket, chunk))
        except client.exceptions.ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status not in _DOWN:
                # The store does not support or allow this request: the caller deletes one by one.
                raise
            failures.update(dict.fromkeys(chunk, f"{error}"))
    return failures


def _request(client: Any, bucket: str, keys: Sequence[str]) -> dict[str, str]:
    """Return failure reasons by key; keys with a transient error are tried once more."""
    failed: dict[str, str] = {}
    for _ in range(2):
        answer = client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
        failed = {e["Key"]: f"{e.get('Code')}: {e.get('Message')}" for e in answer.get("Errors", ())}
        if not any(reason.startswith(_FOR_A_MOMENT) for reason in failed.values()):
            break
        keys = list(failed)
    return failed
