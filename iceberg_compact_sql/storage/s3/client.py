"""Makes all S3 clients, with the same profile, endpoint, region, credentials and timeouts.

pyarrow's S3 file systems come from pyiceberg, with the settings of `s3.*` and `client.*`. The boto3 client here is made
from the same settings, so that both reach the same bucket as the same user.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.storage.request_limit import DEFAULT_REQUESTS, request_limit
from iceberg_compact_sql.storage.request_timeouts import TIMEOUT_PREFIX, timeouts_of
from iceberg_compact_sql.storage.s3.credentials import first_property, s3_session
from iceberg_compact_sql.storage.s3.request_headers import add_request_headers, requester_pays

T = TypeVar("T")
_SETTINGS = ("s3.", "client.", TIMEOUT_PREFIX)
# A remote signer has no equivalent in boto3: no client is made with it.
_NOT_TRANSLATED = ("s3.signer",)
_CA_BUNDLE = "s3.ca-bundle"
_WAIT_SECONDS = 0.5


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


def only_boto3_reads(properties: Mapping[str, Any]) -> bool:
    """Whether the bucket needs what pyarrow's S3 file system is not told: certificates, or who pays."""
    own_certificates = properties.get(_CA_BUNDLE) or os.environ.get("AWS_CA_BUNDLE")
    encrypted = not str(properties.get("s3.endpoint", "")).startswith("http://")
    return requester_pays(properties) or (encrypted and bool(own_certificates))


@dataclass(frozen=True, slots=True)
class S3Clients:
    """Two boto3 clients: `quick` gives up soon on a store that does not answer; `patient` is for slow requests.

    The patient client waits as long as all attempts of the quick one together, and sends a request once. Use it through
    `patiently`.
    """

    quick: Any
    patient: Any
    attempts: int

    def patiently(self, work: Callable[[Any], T]) -> T:
        """Return the result of a slow request of the patient client; repeat it while S3 answers that it is busy.

        A request that was not answered in time is not repeated: the first one took all the time that there is.
        """
        from botocore.exceptions import ClientError, EndpointConnectionError  # type: ignore[import-untyped]

        for attempt in range(1, self.attempts + 1):
            try:
                return work(self.patient)
            except (ClientError, EndpointConnectionError) as error:
                if attempt == self.attempts or not _is_busy(error):
                    raise
                time.sleep(_WAIT_SECONDS * 2**attempt * random.random())
        raise AssertionError("the last attempt returns or raises")


def s3_clients(properties: Mapping[str, Any]) -> S3Clients:
    """Return the clients for the settings of a FileIO: the same ones for the same settings, to reuse connections."""
    relevant = {name: str(value) for name, value in properties.items() if name.startswith(_SETTINGS)}
    return _shared_clients(tuple(sorted(relevant.items())), request_limit().requests)


@functools.lru_cache(maxsize=16)
def _shared_clients(properties: tuple[tuple[str, str], ...], connections: int) -> S3Clients:
    settings = dict(properties)
    return S3Clients(
        make_s3_client(settings, connections=connections),
        make_s3_client(settings, connections=connections, patient=True),
        timeouts_of(settings).attempts,
    )


def make_s3_client(properties: Mapping[str, Any], *, connections: int = DEFAULT_REQUESTS, patient: bool = False) -> Any:
    """Return a boto3 client for the settings of a FileIO; call it only if `reason_without_client` gives no reason."""
    from botocore import UNSIGNED  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    timeouts = timeouts_of(properties)
    answer_seconds = timeouts.patient_seconds if patient else timeouts.answer_seconds
    endpoint = first_property(properties, "s3.endpoint")
    virtual = _is_true(properties, "s3.force-virtual-addressing")
    settings: dict[str, Any] = {
        "retries": {"total_max_attempts": 1 if patient else timeouts.attempts, "mode": "standard"},
        "max_pool_connections": connections,
        "connect_timeout": float(properties.get("s3.connect-timeout") or timeouts.connect_seconds),
        "read_timeout": float(properties.get("s3.request-timeout") or answer_seconds),
        # As in pyarrow: a custom endpoint uses path-style addressing unless the settings say otherwise.
        "s3": {"addressing_style": "virtual" if virtual else "path" if endpoint else "auto"},
    }
    if proxy := first_property(properties, "s3.proxy-uri"):
        settings["proxies"] = {"http": proxy, "https": proxy}
    if _is_true(properties, "s3.anonymous"):
        settings["signature_version"] = UNSIGNED
    verify = first_property(properties, _CA_BUNDLE)
    client = s3_session(properties).client("s3", endpoint_url=endpoint, config=Config(**settings), verify=verify)
    add_request_headers(client, properties)
    return client


@contextlib.contextmanager
def one_request(path: str) -> Iterator[None]:
    """Hold a slot of the run's limit of requests; turn boto3's errors into the OSErrors that other stores raise."""
    from botocore.exceptions import BotoCoreError, ClientError

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


def _is_busy(error: Exception) -> bool:
    """Whether a server answered that it is overloaded, or refused the connection."""
    response = getattr(error, "response", None)
    return response is None or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500


def _is_true(properties: Mapping[str, Any], name: str) -> bool:
    return str(properties.get(name, "")).lower() in ("true", "1", "t", "y", "yes", "on")
