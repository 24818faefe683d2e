"""Translates JDBC URIs to SQLAlchemy URIs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from iceberg_compact_sql.errors import NotFoundError, UnsupportedError

# Writers of one SQLite file wait for each other; Python's default of 5 s is too short beside a busy Spark job.
SQLITE_BUSY_SECONDS = 60
_DRIVERS = {
    "postgresql": "postgresql+psycopg2",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
_POSTGRES_OPTIONS = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connectTimeout": "connect_timeout",
    "ApplicationName": "application_name",
}


def sqlalchemy_uri(jdbc_uri: str, user: str | None, password: str | None, *, catalog: str) -> str:
    """Return the SQLAlchemy URI of a JDBC URI; options that only the Java driver has are left out.

    >>> sqlalchemy_uri("jdbc:postgresql://db:5432/lake?user=joe", None, "p@ss", catalog="lake")
    'postgresql+psycopg2://joe:p%40ss@db:5432/lake'
    """
    scheme, _, rest = jdbc_uri.removeprefix("jdbc:").partition(":")
    if jdbc_uri.startswith("jdbc:sqlite:"):
        return sqlite_uri(_sqlite_path(rest, catalog))
    if not jdbc_uri.startswith("jdbc:") or scheme not in _DRIVERS:
        kind = scheme if jdbc_uri.startswith("jdbc:") else "without jdbc:"
        message = f"catalog {catalog!r} is a JDBC catalog with a uri of kind {kind!r}"
        hint = "Known: sqlite, postgresql, mysql, mariadb."
        raise UnsupportedError(message, argument="catalog", value=catalog, hint=hint)
    parts = urlsplit(rest if rest.startswith("//") else f"//localhost/{rest}")
    options = dict(parse_qsl(parts.query))
    user = user or options.get("user") or (unquote(parts.username) if parts.username else None)
    password = password or options.get("password") or (unquote(parts.password) if parts.password else None)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    host, port = _host_and_port(hosts[0])
    database = unquote(parts.path.lstrip("/")) or None
    query = _postgres_query(options) if scheme == "postgresql" else {}
    if len(hosts) > 1 and scheme == "postgresql":
        # libpq tries each host in order; the URI itself then has no host.
        return _render(_DRIVERS[scheme], user, password, None, None, database, {**query, "host": tuple(hosts)})
    return _render(_DRIVERS[scheme], user, password, host, port, database, query)


def sqlite_uri(path: Path) -> str:
    """Return the URI of a SQLite file, with a busy timeout that suits catalogs."""
    return _render("sqlite", None, None, None, None, str(path), {"timeout": str(SQLITE_BUSY_SECONDS)})


def _render(
    driver: str,
    user: str | None,
    password: str | None,
    host: str | None,
    port: int | None,
    database: str | None,
    query: dict[str, str | tuple[str, ...]],
) -> str:
    # Imported late: only SQL catalogs need it, and a Spark worker may not have it.
    from sqlalchemy import URL

    url = URL.create(driver, user, password, host, port, database, query)
    return url.render_as_string(hide_password=False)


def _host_and_port(text: str) -> tuple[str | None, int | None]:
    parts = urlsplit(f"//{text}")
    return parts.hostname, parts.port


def _sqlite_path(rest: str, catalog: str) -> Path:
    path = rest.partition("?")[0].removeprefix("file:")
    if path in ("", ":memory:") or "mode=memory" in rest:
        message = f"catalog {catalog!r} is in the memory of the JVM, and no other process can read it"
        hint = "Use a SQLite file: jdbc:sqlite:/path/catalog.db"
        raise UnsupportedError(message, argument="catalog", value=catalog, hint=hint)
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    file = Path(path).absolute()
    if not file.is_file():
        # Connecting would create an empty database there.
        message = f"catalog {catalog!r}: there is no SQLite file {file}"
        hint = "Create the first table with the engine that owns the catalog, or correct its uri."
        raise NotFoundError(message, argument="catalog", value=catalog, hint=hint)
    return file


def _postgres_query(options: dict[str, str]) -> dict[str, str | tuple[str, ...]]:
    kept: dict[str, str | tuple[str, ...]] = {
        _POSTGRES_OPTIONS[key]: value for key, value in options.items() if key in _POSTGRES_OPTIONS
    }
    if schema := options.get("currentSchema"):
        kept["options"] = f"-csearch_path={schema}"
    return kept
