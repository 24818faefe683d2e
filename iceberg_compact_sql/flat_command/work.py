"""What the flat command does: its tables, and the calls of each step, from flags and a configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.errors import InvalidArgumentError, MissingDependencyError
from iceberg_compact_sql.redaction import remember_secrets

if TYPE_CHECKING:
    from iceberg_compact_sql.service.configuration.config import ServiceConfig, TableEntry

_PLUGIN = "org.apache.iceberg.spark.SparkCatalog"
_KINDS = {"sqlite": "jdbc", "postgresql": "jdbc", "mysql": "jdbc", "jdbc": "jdbc", "thrift": "hive"}


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags of the command; None where one is not given."""

    config: Path | None = None
    catalog_uri: str | None = None
    table: str | None = None
    strategy: str | None = None
    target_bytes: int | None = None
    expire: bool = False
    expire_older_than: str = "168h"
    expire_retain_last: int = 1
    expire_keep_files: bool = False
    orphans: bool = False
    orphan_age: str = "72h"
    dry_run: bool = False


@dataclass(frozen=True)
class Call:
    """One step on one table: the procedure and its arguments."""

    step: str
    procedure: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Names or patterns of tables with the arguments of their compaction, and the settings of the session."""

    flags: Flags
    settings: Mapping[str, str] = field(repr=False)
    tables: tuple[tuple[str, Mapping[str, Any]], ...]
    warehouse: str | None = None
    master: str | None = None
    dsn: str | None = field(default=None, repr=False)

    def calls(self, table: str, compaction: Mapping[str, Any]) -> list[Call]:
        """Return the steps of a table in the safe order: compaction always, the others when they are asked for."""
        flags, common = self.flags, {"table": table, "dry_run": self.flags.dry_run}
        calls = [Call("compact", "compact_table", {**compaction, **common})]
        if flags.expire:
            expiry = {
                "older_than": flags.expire_older_than,
                "retain_last": flags.expire_retain_last,
                "keep_files": flags.expire_keep_files,
            }
            calls.append(Call("expire", "expire_snapshots", expiry | common))
        if flags.orphans:
            calls.append(Call("orphans", "remove_orphans", {"older_than": flags.orphan_age} | common))
        return calls


def plan_work(flags: Flags, environment: Mapping[str, str] | None = None) -> Work:
    """Read the configuration and complete it with the flags; raises an error of usage when something is wrong."""
    # Imported late: strategies are those of the service's configuration.
    from iceberg_compact_sql.service.configuration.strategies import strategy_arguments

    if flags.config is None:
        if flags.table is None:
            raise InvalidArgumentError("give --table, or --config with tables", argument="--table")
        compaction = strategy_arguments(flags.strategy, {})
        settings = {} if flags.catalog_uri is None else _catalog_settings("default", flags.catalog_uri)
        return Work(flags=flags, settings=settings, tables=((flags.table, _with_target(flags, compaction)),))
    return _configured_work(flags, os.environ if environment is None else environment)


def _configured_work(flags: Flags, environment: Mapping[str, str]) -> Work:
    try:
        # Imported late: they need an extra.
        from iceberg_compact_sql.service.configuration.config import service_config
        from iceberg_compact_sql.service.configuration.read_yaml import read_yaml
        from iceberg_compact_sql.service.configuration.settings import spark_settings
    except ImportError as error:
        raise MissingDependencyError(
            f"--config needs {error.name}, which is not installed",
            hint="Run: pip install 'iceberg-compact-sql[service]'",
        ) from None
    assert flags.config is not None
    document = read_yaml(flags.config, environment)
    config = service_config(document)
    if config.spark.connect is not None:
        raise InvalidArgumentError(
            "spark.connect: this command starts Spark itself, and only where the work needs it",
            argument="spark.connect",
            hint="Use spark.master, or the service.",
        )
    settings = spark_settings(config)
    remember_secrets(settings)
    if flags.catalog_uri is not None:
        name = next(iter(config.all_catalogs()), "default")
        settings |= _catalog_settings(name, flags.catalog_uri, settings)
    postgres = document.get("postgres")
    return Work(
        flags=flags,
        settings=settings,
        tables=_tables(flags, config),
        warehouse=config.warehouse,
        master=config.spark.master,
        dsn=str(postgres["dsn"]) if isinstance(postgres, dict) and postgres.get("dsn") else None,
    )


def _tables(flags: Flags, config: ServiceConfig) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    entries = [entry for entry in config.tables if entry.enabled]
    if flags.table is not None:
        entry = next((entry for entry in entries if _names(entry, flags.table)), None)
        return ((flags.table, _compaction(flags, config, entry)),)
    if not entries:
        raise InvalidArgumentError("give --table, or tables in the configuration", argument="tables")
    return tuple((entry.name, _compaction(flags, config, entry)) for entry in entries)


def _names(entry: TableEntry, table: str) -> bool:
    return entry.name == table or fnmatchcase(table, entry.name)


def _compaction(flags: Flags, config: ServiceConfig, entry: TableEntry | None) -> dict[str, Any]:
    from iceberg_compact_sql.service.configuration.strategies import renamed, strategy_arguments

    strategy = flags.strategy or (entry.strategy if entry is not None else None)
    target = config.compaction.target_file_size
    arguments = strategy_arguments(strategy, config.compaction.configured(), target=target)
    # Options of other procedures belong to the service's jobs.
    if entry is not None and entry.procedure == "compact_table":
        arguments |= renamed(entry.options)
    return _with_target(flags, arguments)


def _with_target(flags: Flags, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return dict(arguments) if flags.target_bytes is None else {**arguments, "target": flags.target_bytes}


def _catalog_settings(name: str, uri: str, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a catalog by its address alone; one that is configured keeps its other settings."""
    prefix = f"spark.sql.catalog.{name}"
    kind = _KINDS.get(uri.partition(":")[0].partition("+")[0], "rest")
    remember_secrets({"uri": uri})
    return {
        prefix: _PLUGIN,
        f"{prefix}.type": (settings or {}).get(f"{prefix}.type", kind),
        f"{prefix}.uri": uri if kind != "jdbc" else _jdbc(uri),
        "spark.iceberg_compact_sql.catalog": name,
    }


def _jdbc(uri: str) -> str:
    """Return the address in JDBC's form; `sqlite:///file` and `postgresql+psycopg://host/db` are SQLAlchemy's."""
    if uri.startswith("jdbc:"):
        return uri
    if uri.startswith("sqlite:///"):
        return f"jdbc:sqlite:{uri.removeprefix('sqlite:///')}"
    scheme, _, rest = uri.partition("://")
    return f"jdbc:{scheme.partition('+')[0]}://{rest}"
