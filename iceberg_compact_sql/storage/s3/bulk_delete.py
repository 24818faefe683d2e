"""S3's bulk delete: up to 1,000 keys in one request."""

from __future__ import annotations

from collections.abc import Sequence

from iceberg_compact_sql.storage.s3.client import S3Clients

_KEYS_PER_REQUEST = 1000
# Errors that the client has already retried several times, with waits.
_DOWN = (500, 502, 503, 504)
_FOR_A_MOMENT = ("InternalError", "SlowDown", "ServiceUnavailable")


def delete_keys(clients: S3Clients, bucket: str, keys: Sequence[str]) -> dict[str, str]:
    """Delete keys with DeleteObjects, which reports missing keys as deleted.

    Returns the reason for each key that was not deleted. Raises if the store refuses the whole request.
    """
    failures: dict[str, str] = {}
    for start in range(0, len(keys), _KEYS_PER_REQUEST):
        chunk = keys[start : start + _KEYS_PER_REQUEST]
        try:
            failures.update(_request(clients, bucket, chunk))
        except clients.patient.exceptions.ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status not in _DOWN:
                # The store does not support or allow this request: the caller deletes one by one.
                raise
            failures.update(dict.fromkeys(chunk, f"{error}"))
    return failures


def _request(clients: S3Clients, bucket: str, keys: Sequence[str]) -> dict[str, str]:
    """Return failure reasons by key; keys with a transient error are tried once more."""
    failed: dict[str, str] = {}
    for _ in range(2):
        wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        answer = clients.patiently(lambda client, wanted=wanted: client.delete_objects(Bucket=bucket, Delete=wanted))  # type: ignore[misc]
        failed = {e["Key"]: f"{e.get('Code')}: {e.get('Message')}" for e in answer.get("Errors", ())}
        if not any(reason.startswith(_FOR_A_MOMENT) for reason in failed.values()):
            break
        keys = list(failed)
    return failed
