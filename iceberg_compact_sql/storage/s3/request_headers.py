"""Headers that every request to a bucket needs: who pays, and how objects are encrypted on the server.

The names of the settings are those of Iceberg's S3FileIO and of pyiceberg.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_compact_sql.errors import InvalidArgumentError, UnsupportedError
from iceberg_compact_sql.storage.s3.credentials import first_property

_PAYER = "s3.requester-pays-enabled"
_TYPE = ("s3.server-side-encryption", "s3.sse.type")
_KEY = ("s3.sse-kms-key-id", "s3.sse.key")
# Iceberg's words for S3's algorithms.
_ALGORITHMS = {
    "s3": "AES256",
    "aes256": "AES256",
    "kms": "aws:kms",
    "aws:kms": "aws:kms",
    "dsse-kms": "aws:kms:dsse",
    "aws:kms:dsse": "aws:kms:dsse",
}
_CREATING = ("PutObject", "CreateMultipartUpload", "CopyObject")


def requester_pays(properties: Mapping[str, Any]) -> bool:
    """Whether every request says that its sender pays; pyarrow cannot send that header."""
    return str(properties.get(_PAYER, "")).lower() == "true"


def add_request_headers(client: Any, properties: Mapping[str, Any]) -> None:
    """Make a boto3 client send the headers that the settings ask for."""
    encryption = _encryption(properties)
    pays = requester_pays(properties)
    if not encryption and not pays:
        return

    def add(params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
        added = dict(encryption) if model.name in _CREATING else {}
        if pays and model.input_shape is not None and "RequestPayer" in model.input_shape.members:
            added["RequestPayer"] = "requester"
        return {**added, **params}

    # One handler for both: botocore takes the answer of the first one.
    client.meta.events.register("provide-client-params.s3", add)


def _encryption(properties: Mapping[str, Any]) -> dict[str, str]:
    kind = first_property(properties, *_TYPE)
    if kind is None or kind.lower() == "none":
        return {}
    if kind.lower() == "custom":
        raise UnsupportedError(
            "objects that are encrypted with a key of the client (s3.sse.type = custom) are not supported",
            argument="catalog",
            hint="Use keys of the server: s3.sse.type = kms.",
        )
    algorithm = _ALGORITHMS.get(kind.lower())
    if algorithm is None:
        raise InvalidArgumentError(
            f"s3.sse.type is {kind!r} but must be one of none, s3, kms, dsse-kms", argument="catalog", value=kind
        )
    key = first_property(properties, *_KEY)
    headers = {"ServerSideEncryption": algorithm}
    return headers if key is None or algorithm == "AES256" else {**headers, "SSEKMSKeyId": key}
