"""Settings of S3 reach the one client, and moto sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.file_io import ExactFileIO
from iceberg_compact_sql.storage.s3.client import make_s3_client
from iceberg_compact_sql.storage.stores import Stores
from tests.support.s3 import S3Server


def sent_headers(properties: dict[str, str], operation: str, **arguments: Any) -> tuple[str, dict[str, str]]:
    """The address and the headers of a request, taken before it is sent."""
    client = make_s3_client(properties)
    sent: list[Any] = []

    def stop(request: Any, **_: Any) -> None:
        sent.append(request)
        raise InterruptedError

    client.meta.events.register("before-send.s3", stop)
    with pytest.raises(InterruptedError):
        getattr(client, operation)(Bucket="lake", Key="k", **arguments)
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else value for name, value in sent[0].headers.items()
    }
    return sent[0].url, headers


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "http://127.0.0.1:9/lake/k"),
        ({"s3.force-virtual-addressing": "true", "s3.endpoint": "http://s3.example"}, "http://lake.s3.example/k"),
    ],
)
def test_path_style_and_virtual_hosts(s3_server: S3Server, settings: dict[str, str], url: str) -> None:
    properties = {**s3_server.properties, "s3.endpoint": "http://127.0.0.1:9", **settings}
    assert sent_headers(properties, "get_object")[0] == url


def test_session_tokens_payers_and_keys_are_sent(s3_server: S3Server) -> None:
    properties = {
        **s3_server.properties,
        "s3.session-token": "the-token",
        "s3.requester-pays-enabled": "true",
        "s3.sse.type": "kms",
        "s3.sse.key": "arn:aws:kms:us-east-1:1:key/a",
    }
    _, put = sent_headers(properties, "put_object", Body=b"x")
    assert put["x-amz-security-token"] == "the-token"
    assert put["x-amz-request-payer"] == "requester"
    assert put["x-amz-server-side-encryption"] == "aws:kms"
    assert put["x-amz-server-side-encryption-aws-kms-key-id"] == "arn:aws:kms:us-east-1:1:key/a"
    _, get = sent_headers(properties, "get_object")
    assert get["x-amz-request-payer"] == "requester" and "x-amz-server-side-encryption" not in get


def test_an_anonymous_request_is_not_signed(s3_server: S3Server) -> None:
    _, headers = sent_headers({**s3_server.properties, "s3.anonymous": "true"}, "get_object")
    assert "authorization" not in headers


def test_a_key_of_the_client_is_refused(s3_server: S3Server) -> None:
    with pytest.raises(UnsupportedError, match=r"s3\.sse\.type = custom"):
        make_s3_client({**s3_server.properties, "s3.sse.type": "custom"})


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_role_is_assumed(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3_server.endpoint)
    properties = {**s3_server.properties, "s3.role-arn": "arn:aws:iam::123456789012:role/maintenance"}
    _, headers = sent_headers(properties, "get_object")
    # The keys of a role begin with ASIA, and come with a token.
    assert "Credential=ASIA" in headers["authorization"] and headers["x-amz-security-token"]
    stores = Stores(ExactFileIO(properties))
    path = f"{scheme}://{s3_server.bucket}/{tmp_path.name}/a//b"
    stores.write(path, b"content")
    assert stores.read(path) == b"content"
