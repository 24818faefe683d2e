"""Makes all S3 clients, with the same profile, endpoint, region, credentials and timeouts.

pyarrow's S3 file systems come from pyiceberg, with the settings of `s3.*` and `client.*`. The boto3 client here is made
from the same settings, so that both reach the same bucket as the same user.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.errors import InvalidArgumentError, MissingDependencyError
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.storage.request_limit import DEFAULT_REQUESTS, request_limit

_SETTINGS = ("s3.", "client.")
_PROFILE = ("s3.profile-name", "client.profile-name")
_ACCESS_KEY = ("s3.access-key-id", "client.access-key-id")
# Settings for which boto3 has no equivalent: no client is made with them.
_NOT_TRANSLATED = ("s3.role-arn", "client.role-arn", "s3.signer")
# A store that does not answer is an error after less than 30 seconds: 3 attempts of 8 seconds, and the waits between.
_ATTEMPTS = 3
_CONNECT_SECONDS = 4.0
_ANSWER_SECONDS = 8.0
# Copying an object, completing an upload and deleting 1,000 keys take longer.
_PATIENT_ANSWER_SECONDS = 60.0


def reason_without_client(properties: Mapping[str, Any]) -> str | None:
    """Why boto3 cannot be used with these settings; None if it can."""
    setting = next((name for name in _NOT_TRANSLATED if properties.get(name)), None)
    if setting is not None:
        return f"the setting {setting} cannot be used with boto3"
    try:
        import boto3  # noqa: F401 - imported late: most runs never need it
    except ImportError:
        return "boto3 is not installed"
    return None


@dataclass(frozen=True, slots=True)
class S3Clients:
    """Two boto3 clients: `quick` gives up soon on a store that does not answer; `patient` is for slow requests."""

    quick: Any
    patient: Any


def s3_clients(properties: Mapping[str, Any]) -> S3Clients:
    """Return the clients for the settings of a FileIO: the same ones for the same settings, to reuse connections."""
    relevant = {name: str(value) for name, value in properties.items() if name.startswith(_SETTINGS)}
    return _shared_clients(tuple(sorted(relevant.items())), request_limit().requests)


@functools.lru_cache(maxsize=16)
def _shared_clients(properties: tuple[tuple[str, str], ...], connections: int) -> S3Clients:
    settings = dict(properties)
    return S3Clients(
        make_s3_client(settings, connections=connections),
        make_s3_client(settings, connections=connections, answer_seconds=_PATIENT_ANSWER_SECONDS),
    )


def make_s3_client(
    properties: Mapping[str, Any], *, connections: int = DEFAULT_REQUESTS, answer_seconds: float = _ANSWER_SECONDS
) -> Any:
    """Return a boto3 client for the settings of a FileIO; call it only if `reason_without_client` gives no reason."""
    from botocore import UNSIGNED  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    endpoint = _first(properties, "s3.endpoint")
    virtual = _is_true(properties, "s3.force-virtual-addressing")
    settings: dict[str, Any] = {
        "retries": {"max_attempts": _ATTEMPTS, "mode": "standard"},
        "max_pool_connections": connections,
        "connect_timeout": float(properties.get("s3.connect-timeout") or _CONNECT_SECONDS),
        "read_timeout": float(properties.get("s3.request-timeout") or answer_seconds),
        # As in pyarrow: a custom endpoint uses path-style addressing unless the settings say otherwise.
        "s3": {"addressing_style": "virtual" if virtual else "path" if endpoint else "auto"},
    }
    if proxy := _first(properties, "s3.proxy-uri"):
        settings["proxies"] = {"http": proxy, "https": proxy}
    if _is_true(properties, "s3.anonymous"):
        settings["signature_version"] = UNSIGNED
    return _session(properties).client("s3", endpoint_url=endpoint, config=Config(**settings))


def with_profile_credentials(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings with the keys of the named AWS profile, for clients that do not support profiles.

    Otherwise pyarrow would read with the default credentials, and boto3 would delete with those of the profile.
    """
    profile = _first(properties, *_PROFILE)
    if profile is None or _first(properties, *_ACCESS_KEY):
        return properties
    if reason_without_client(properties) == "boto3 is not installed":
        raise MissingDependencyError(
            f"the AWS profile {profile!r} can be read only with boto3, which is not installed",
            argument="catalog",
            hint="Run: pip install 'iceberg-compact-sql[s3]'",
        )
    session = _session(properties)
    credentials = session.get_credentials()
    if credentials is None:
        return properties
    keys = credentials.get_frozen_credentials()
    added = {"s3.access-key-id": keys.access_key, "s3.secret-access-key": keys.secret_key}
    if keys.token:
        added["s3.session-token"] = keys.token
    if session.region_name:
        added["s3.region"] = session.region_name
    return {**properties, **added}


@contextlib.contextmanager
def one_request(path: str) -> Iterator[None]:
    """Hold a slot of the run's limit of requests; turn boto3's errors into the OSErrors that other stores raise."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    try:
        with request_limit().slot():
            yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = f"{path}: {redact(error)}"
        if status == 404:
            raise FileNotFoundError(text) from None
        if status in (401, 403):
            raise PermissionError(text) from None
        raise OSError(text) from error
    except BotoCoreError as error:
        raise OSError(f"{path}: {redact(error)}") from error


def _session(properties: Mapping[str, Any]) -> Any:
    import boto3
    from botocore.exceptions import ProfileNotFound

    try:
        return boto3.session.Session(
            aws_access_key_id=_first(properties, *_ACCESS_KEY),
            aws_secret_access_key=_first(properties, "s3.secret-access-key", "client.secret-access-key"),
            aws_session_token=_first(properties, "s3.session-token", "client.session-token"),
            region_name=_first(properties, "s3.region", "client.region"),
            profile_name=_first(properties, *_PROFILE),
        )
    except ProfileNotFound as error:
        raise InvalidArgumentError(
            f"the AWS profile of the setting s3.profile-name does not exist: {error}",
            argument="catalog",
            hint="Name a profile of the AWS configuration files, or leave the setting out.",
        ) from None


def _is_true(properties: Mapping[str, Any], name: str) -> bool:
    return str(properties.get(name, "")).lower() in ("true", "1", "t", "y", "yes", "on")


def _first(properties: Mapping[str, Any], *names: str) -> str | None:
    return next((str(properties[name]) for name in names if properties.get(name)), None)
