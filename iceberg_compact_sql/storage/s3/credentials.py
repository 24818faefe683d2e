"""The AWS session of a catalog's settings: keys, profile, region, and the role to assume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_compact_sql.errors import InvalidArgumentError, MissingDependencyError

_PROFILE = ("s3.profile-name", "client.profile-name")
_ACCESS_KEY = ("s3.access-key-id", "client.access-key-id")
_ROLE = ("s3.role-arn", "client.role-arn")
_ROLE_SESSION = ("s3.role-session-name", "client.role-session-name")
_EXTERNAL_ID = "client.assume-role.external-id"


def s3_session(properties: Mapping[str, Any]) -> Any:
    """Return a boto3 session with the credentials of the settings; with a role, they are renewed before they expire."""
    import boto3
    from botocore.exceptions import ProfileNotFound  # type: ignore[import-untyped]

    region = first_property(properties, "s3.region", "client.region")
    try:
        session = boto3.session.Session(
            aws_access_key_id=first_property(properties, *_ACCESS_KEY),
            aws_secret_access_key=first_property(properties, "s3.secret-access-key", "client.secret-access-key"),
            aws_session_token=first_property(properties, "s3.session-token", "client.session-token"),
            region_name=region,
            profile_name=first_property(properties, *_PROFILE),
        )
    except ProfileNotFound as error:
        raise InvalidArgumentError(
            f"the AWS profile of the setting s3.profile-name does not exist: {error}",
            argument="catalog",
            hint="Name a profile of the AWS configuration files, or leave the setting out.",
        ) from None
    role = first_property(properties, *_ROLE)
    return session if role is None else _in_role(session, role, properties)


def _in_role(session: Any, role: str, properties: Mapping[str, Any]) -> Any:
    """Return a session with the credentials that STS gives for a role."""
    import boto3
    from botocore.credentials import (  # type: ignore[import-untyped]
        AssumeRoleCredentialFetcher,
        DeferredRefreshableCredentials,
    )
    from botocore.session import get_session  # type: ignore[import-untyped]

    extra = {"RoleSessionName": first_property(properties, *_ROLE_SESSION) or "iceberg-compact-sql"}
    if external := first_property(properties, _EXTERNAL_ID):
        extra["ExternalId"] = external
    fetcher = AssumeRoleCredentialFetcher(
        session._session.create_client, session.get_credentials(), role, extra_args=extra
    )
    core = get_session()
    core._credentials = DeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method="assume-role")
    return boto3.session.Session(botocore_session=core, region_name=session.region_name)


def with_profile_credentials(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings with the keys of the named AWS profile, for clients that do not support profiles.

    Otherwise pyarrow would read with the default credentials, and boto3 would delete with those of the profile.
    """
    profile = first_property(properties, *_PROFILE)
    if profile is None or first_property(properties, *_ACCESS_KEY):
        return properties
    try:
        session = s3_session({name: value for name, value in properties.items() if name not in _ROLE})
    except ImportError:
        raise MissingDependencyError(
            f"the AWS profile {profile!r} can be read only with boto3, which is not installed",
            argument="catalog",
            hint="Run: pip install 'iceberg-compact-sql[s3]'",
        ) from None
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


def first_property(properties: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of these properties that has a value."""
    return next((str(properties[name]) for name in names if properties.get(name)), None)
