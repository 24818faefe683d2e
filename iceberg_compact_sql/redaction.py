"""Removes credentials from texts: all messages of drivers and servers are redacted before a user sees them."""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

_SECRET_WORDS = (
    r"password|passwd|pwd|secret|token|credential|access[-_.]?key|account[-_.]?key|private[-_.]?key"
    r"|connection[-_.]?string|signature|sas|authorization|cookie|api[-_.]?key|sse[-_.]key"
)
_SECRET_KEY = re.compile(rf"(?:{_SECRET_WORDS})", re.IGNORECASE)
# `https://user:password@host` and `//user:password@host`; the user name is masked too.
# A password may contain an unescaped @: mask everything up to the last one.
_URI_USER = re.compile(r"(//)[^/\s'\"]*:[^/\s'\"]*@")
# The signature of a SAS token.
_SIGNATURE = re.compile(r"([?&]sig=)[^&\s'\"]+", re.IGNORECASE)
# key=value, key: value, 'key': 'value', "key":"value" where the key contains a word for a secret.
_KEY_VALUE = re.compile(
    rf"((?:[\w.\-]*(?:{_SECRET_WORDS})[\w.\-]*)['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,;&'\"(){{}}\]\[]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=\-]{6,}", re.IGNORECASE)
# Names that hold one of the words but no secret: endpoints, classes, files and life times of tokens.
_HARMLESS = re.compile(r"uri|url|endpoint|exchange|enabled|refresh|timeout|provider|path|file|type", re.IGNORECASE)
_LIFE_TIME = re.compile(r"expires|expiration", re.IGNORECASE)
_SHORTEST_SECRET = 6
# Short values of letters only are masked as whole words: `postgres` is also a part of `postgresql://`.
_WORD = re.compile(r"[A-Za-z]{1,15}")
# Letters only or digits only: a password `admin` or `123456` is too common to be searched for.
_ONE_KIND = re.compile(r"[A-Za-z]+|[0-9]+")
_SHORTEST_OF_ONE_KIND = 8
# Vended credentials change every hour: the newest ones count.
_MOST_REMEMBERED = 10_000
_URI_PASSWORD = re.compile(r"//([^/\s:]*):([^/\s]*)@")
# `?password=...&` of a connection string, `;AccountKey=...;` of a store.
_URI_OPTION = re.compile(r"[?&;]([\w.\-]+)=([^&;\s]+)")
_HEADER = re.compile(r"(?:Bearer|Basic|Token|Digest)\s+(\S+)", re.IGNORECASE)
_ESCAPED_BYTE = re.compile(r"%[0-9A-F]{2}")
_remembered: dict[str, None] = {}
_remembering = threading.Lock()
MASK = "***"


def is_secret(key: str) -> bool:
    """Whether a property of this name holds a credential.

    >>> is_secret("s3.secret-access-key"), is_secret("oauth2-server-uri"), is_secret("jdbc.password")
    (True, False, True)
    """
    harmless = _HARMLESS.search(key.rpartition(".")[2]) or _LIFE_TIME.search(key)
    return bool(_SECRET_KEY.search(key)) and not harmless


def remember_secrets(properties: Mapping[str, object]) -> None:
    """Remember the credentials in these properties: `redact` masks their values from now on.

    Called wherever the session, its configuration or a server hands us properties. Values of other properties are not
    remembered, nor are values that are too short or too common to be searched for.
    """
    forms = [form for key, value in properties.items() for secret in _secrets(key, value) for form in _forms(secret)]
    with _remembering:
        for form in forms:
            _remembered.pop(form, None)
            _remembered[form] = None
        for oldest in list(_remembered)[: max(0, len(_remembered) - _MOST_REMEMBERED)]:
            del _remembered[oldest]


def mask_remembered(text: str) -> str:
    """Return the text with the values of all remembered credentials masked, in any encoding.

    >>> remember_secrets({"token": "tok-0123456789"})
    >>> mask_remembered("refused: tok-0123456789")
    'refused: ***'
    """
    return _mask(text, _forms_in(text))


def mask_rows(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows of a result without credentials: reasons and messages of servers are among them."""
    # All texts are searched at once: a result may have a million rows.
    forms = _forms_in(
        "\n".join(str(cell) for row in rows for cell in row if isinstance(cell, (str, list, tuple, dict)))
    )
    return [tuple(_mask_cell(cell, forms) for cell in row) for row in rows] if forms else list(rows)


def masked_logger(name: str) -> logging.Logger:
    """The logger of a module of this package; its records hold no credential, whichever handler shows them.

    The filter is on each logger of the package: one on the package's logger would not see the records of its children.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_without_secrets)
    return logger


def _without_secrets(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    masked = mask_remembered(message)
    if masked != message:
        record.msg, record.args = masked, None
    if record.exc_info:
        shown = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        masked = mask_remembered(shown)
        if masked != shown and record.exc_info[1] is not None:
            # Formatters show the text if there is one; those that write JSON format the exception themselves.
            stand_in = _masked_exception(record.exc_info[1])
            record.exc_info, record.exc_text = (type(stand_in), stand_in, record.exc_info[2]), masked
    record.stack_info = record.stack_info and mask_remembered(record.stack_info)
    return True


def _masked_exception(error: BaseException) -> BaseException:
    """An exception of the same name and traceback whose message, notes and causes show no credential."""
    kind = type(error)
    # An own class: the constructor of the real one may want other arguments than a message.
    named = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    stand_in: BaseException = named(mask_remembered(str(error)))
    stand_in.__traceback__ = error.__traceback__
    stand_in.__context__ = error.__context__ and _masked_exception(error.__context__)
    stand_in.__cause__ = error.__cause__ and _masked_exception(error.__cause__)
    stand_in.__suppress_context__ = error.__suppress_context__
    for note in getattr(error, "__notes__", ()):
        stand_in.add_note(mask_remembered(str(note)))
    return stand_in


def _forms_in(text: str) -> list[str]:
    """The remembered values that the text may show, the longest first."""
    with _remembering:
        known = [form for form in _remembered if form in text]
    return sorted(known, key=len, reverse=True)


def _mask(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        if _WORD.fullmatch(form):
            text = re.sub(rf"(?<![\w./\-]){form}(?![\w/\-]|\.\w)", MASK, text)
        else:
            text = text.replace(form, MASK)
    return text


def _mask_cell(cell: Any, forms: Sequence[str]) -> Any:
    if isinstance(cell, str):
        return _mask(cell, forms)
    if isinstance(cell, (list, tuple)):
        return type(cell)(_mask_cell(item, forms) for item in cell)
    if isinstance(cell, dict):
        return {key: _mask_cell(item, forms) for key, item in cell.items()}
    return cell


def _secrets(key: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner, deep in value.items():
            yield from _secrets(f"{key}.{inner}", deep)
        return
    text = str(value)
    for user, password in _URI_PASSWORD.findall(text):
        yield from (password, unquote(password), f"{user}:{password}", f"{unquote(user)}:{unquote(password)}")
    for option, password in _URI_OPTION.findall(text):
        if is_secret(option):
            yield from (password, unquote(password), unquote_plus(password))
    if is_secret(key):
        yield text
        header = _HEADER.fullmatch(text)
        if header is not None:
            yield header[1]
        elif key.lower().endswith("credential"):
            # An OAuth2 credential is an id and the secret.
            yield text.partition(":")[2]


def _forms(secret: str) -> Iterator[str]:
    """A secret as servers repeat it: plain, in a URL, in JSON, in HTML, and in base64 as HTTP's Basic sends it."""
    if len(secret) < (_SHORTEST_OF_ONE_KIND if _ONE_KIND.fullmatch(secret) else _SHORTEST_SECRET):
        return
    in_url = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    yield from {secret, *in_url, *(_ESCAPED_BYTE.sub(lambda match: match[0].lower(), form) for form in in_url)}
    in_json = json.dumps(secret)[1:-1]
    yield from {in_json, json.dumps(secret, ensure_ascii=False)[1:-1], in_json.replace("/", "\\/"), repr(secret)[1:-1]}
    yield from {html.escape(secret), html.escape(secret, quote=False)}
    encoded = base64.b64encode(secret.encode()).decode()
    yield from {encoded, encoded.rstrip("="), base64.urlsafe_b64encode(secret.encode()).decode().rstrip("=")}


def redact(text: object, properties: Mapping[str, object] | None = None) -> str:
    """Return the text with every credential masked: by pattern, and by value for the secrets in `properties`.

    >>> redact("cannot connect to postgresql://joe:hunter2@db:5432/x?password=hunter2")
    'cannot connect to postgresql://***@db:5432/x?password=***'
    """
    clean = mask_remembered(str(text))
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
