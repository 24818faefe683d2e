"""Texts without credentials: everything that comes from a driver or a server passes here before a user sees it."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET_WORDS = (
    r"password|passwd|pwd|secret|token|credential|access[-_.]?key|account[-_.]?key|private[-_.]?key"
    r"|connection[-_.]?string|signature|sas|authorization|api[-_.]?key"
)
_SECRET_KEY = re.compile(rf"(?:{_SECRET_WORDS})", re.IGNORECASE)
# `https://user:password@host` and `//user:password@host`; the user goes too, it is half of a credential.
# A password may have an @ in it, as people write them: all up to the last one goes.
_URI_USER = re.compile(r"(//)[^/\s'\"]*:[^/\s'\"]*@")
# The signature of a SAS token.
_SIGNATURE = re.compile(r"([?&]sig=)[^&\s'\"]+", re.IGNORECASE)
# key=value, key: value, 'key': 'value', "key":"value" where the key smells of a secret.
_KEY_VALUE = re.compile(
    rf"((?:[\w.\-]*(?:{_SECRET_WORDS})[\w.\-]*)['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,;&'\"(){{}}\]\[]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=\-]{6,}", re.IGNORECASE)
# Names that hold one of the words but no secret: endpoints and life times of tokens.
_HARMLESS = re.compile(r"(uri|url|endpoint|expires|exchange|enabled|refresh|timeout|provider)", re.IGNORECASE)
_SHORTEST_SECRET = 6
MASK = "***"


def is_secret(key: str) -> bool:
    """Whether a property of this name holds a credential.

    >>> is_secret("s3.secret-access-key"), is_secret("oauth2-server-uri"), is_secret("jdbc.password")
    (True, False, True)
    """
    return bool(_SECRET_KEY.search(key)) and not _HARMLESS.search(key.rpartition(".")[2])


def redact(text: object, properties: Mapping[str, object] | None = None) -> str:
    """The text with every credential masked: by shape, and by value for the secrets among `properties`.

    >>> redact("cannot connect to postgresql://joe:hunter2@db:5432/x?password=hunter2")
    'cannot connect to postgresql://***@db:5432/x?password=***'
    """
    clean = str(text)
    for key, value in (properties or {}).items():
        if isinstance(value, Mapping):
            clean = redact(clean, {f"{key}.{inner}": deep for inner, deep in value.items()})
        elif is_secret(key) and len(str(value)) >= _SHORTEST_SECRET:
            clean = clean.replace(str(value), MASK)
    clean = _URI_USER.sub(rf"\1{MASK}@", clean)
    clean = _SIGNATURE.sub(rf"\1{MASK}", clean)
    clean = _BEARER.sub(rf"\1 {MASK}", clean)
    return _KEY_VALUE.sub(_mask_value, clean)


def _mask_value(match: re.Match[str]) -> str:
    key = re.split(r"['\"]?\s*[=:]", match[1], maxsplit=1)[0]
    return f"{match[1]}{MASK}" if is_secret(key) else match[0]
