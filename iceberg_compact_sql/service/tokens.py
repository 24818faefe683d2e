"""Who may do what: bearer tokens with roles and table patterns, kept as hashes and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from iceberg_compact_sql.redaction import masked_logger, remember_secrets
from iceberg_compact_sql.service.configuration.config import LOOPBACK, SHORTEST_TOKEN, Server
from iceberg_compact_sql.service.configuration.read_yaml import ConfigurationError
from iceberg_compact_sql.service.queue import matches_any

_log = masked_logger(__name__)
TOKEN_VARIABLE = "ICEBERG_COMPACT_SQL_TOKEN"
SESSION_SECONDS = 12 * 3600
_MOST_SESSIONS = 10_000


class Role(IntEnum):
    """What a token may do; a higher role may do everything of the lower ones."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True)
class Identity:
    """The owner of a token."""

    name: str
    role: Role
    tables: tuple[str, ...] = ("*",)

    @property
    def sees_all(self) -> bool:
        return "*" in self.tables

    def sees(self, table: str | None) -> bool:
        """Whether the token may see and touch this table; only a token for all tables sees what has no table."""
        if self.sees_all:
            return True
        # A pattern that reaches further than the token's own must not match it by accident.
        return table is not None and "*" not in table and matches_any(table, self.tables)


ANYBODY = Identity("local", Role.ADMIN)


class Tokens:
    """The tokens of a service. With none, everybody on this machine is an admin."""

    def __init__(self, server: Server, folder: Path, environment: Mapping[str, str]) -> None:
        self._fixed: dict[str, Identity] = {}
        self._file = None if server.token_file is None else Path(server.token_file)
        self._file_tokens: dict[str, Identity] = {}
        self._file_stamp: tuple[int, int, int] | None = None
        self._sessions: dict[str, tuple[Identity, float]] = {}
        self._lock = threading.Lock()
        self._add(server.token, Identity("token", Role.ADMIN))
        self._add(server.read_token, Identity("read_token", Role.VIEWER))
        if server.token is None and (from_environment := environment.get(TOKEN_VARIABLE)):
            if len(from_environment) < SHORTEST_TOKEN:
                raise ConfigurationError(f"{TOKEN_VARIABLE} is shorter than {SHORTEST_TOKEN} characters")
            self._add(from_environment, Identity("token", Role.ADMIN))
        for entry in server.tokens:
            identity = Identity(entry.name, Role[entry.role.upper()], entry.tables)
            self._add(entry.token, identity)
            if entry.token_hash is not None:
                self._fixed[entry.token_hash.removeprefix("sha256:")] = identity
        self._read_file()
        if server.host not in LOOPBACK and not self.required:
            self._add(_made_token(folder), Identity("token", Role.ADMIN))

    @property
    def required(self) -> bool:
        """Whether requests need a token."""
        return bool(self._fixed or self._file is not None)

    def identify(self, token: str) -> Identity | None:
        """The owner of a token; every known hash is compared, so that the time tells nothing."""
        self._read_file()
        given = _hash(token)
        found = None
        for known, identity in [*self._fixed.items(), *self._file_tokens.items()]:
            if hmac.compare_digest(known, given):
                found = identity
        return found

    def sign_in(self, token: str) -> str | None:
        """The id of a new browser session for a right token; None for a wrong one."""
        identity = self.identify(token)
        if identity is None:
            return None
        session = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            self._sessions = {key: entry for key, entry in self._sessions.items() if entry[1] > now}
            while len(self._sessions) >= _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[_hash(session)] = identity, now + SESSION_SECONDS
        return session

    def of_session(self, session: str) -> Identity | None:
        """The owner of a browser session that has not ended."""
        with self._lock:
            entry = self._sessions.get(_hash(session))
        return entry[0] if entry is not None and entry[1] > time.monotonic() else None

    def sign_out(self, session: str) -> None:
        with self._lock:
            self._sessions.pop(_hash(session), None)

    def _add(self, token: str | None, identity: Identity) -> None:
        if token is not None:
            remember_secrets({"token": token})
            self._fixed[_hash(token)] = identity

    def _read_file(self) -> None:
        """Read the token file again when it has changed; a file that cannot be read keeps the tokens as they were."""
        if self._file is None:
            return
        try:
            stat = self._file.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp == self._file_stamp:
                return
            lines = [line.strip() for line in self._file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            if self._file_stamp is None:
                message = f"server.token_file: {self._file} cannot be read: {type(error).__name__}"
                raise ConfigurationError(message, argument="server.token_file") from None
            _log.error("the token file cannot be read; the tokens stay as they were")
            return
        tokens: dict[str, Identity] = {}
        for number, line in enumerate(lines, 1):
            if not line or line.startswith("#"):
                continue
            name, separator, token = line.partition(":")
            name, token = (name, token) if separator else (f"line {number}", line)
            if len(token) < SHORTEST_TOKEN:
                message = f"server.token_file: the token in line {number} is shorter than {SHORTEST_TOKEN} characters"
                if self._file_stamp is None:
                    raise ConfigurationError(message, argument="server.token_file")
                _log.error("%s; the tokens stay as they were", message)
                return
            remember_secrets({"token": token})
            tokens[_hash(token)] = Identity(name, Role.ADMIN)
        self._file_tokens, self._file_stamp = tokens, stamp


def _made_token(folder: Path) -> str:
    """The token in the state folder, made on the first start; only its path is logged."""
    path = folder / "token"
    try:
        token = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        token = secrets.token_urlsafe(32)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(token)
    _log.warning("the service is reachable from other machines: its token is in %s", path)
    return token


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
