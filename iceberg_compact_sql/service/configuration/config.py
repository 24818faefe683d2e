"""The configuration of the service: a document of plain values into frozen models, with the path in every error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from iceberg_compact_sql.errors import did_you_mean
from iceberg_compact_sql.procedures.registry import names
from iceberg_compact_sql.service.configuration.cron import check_cron
from iceberg_compact_sql.service.configuration.deploy_shape import from_deploy_shape
from iceberg_compact_sql.service.configuration.read_yaml import ConfigurationError
from iceberg_compact_sql.service.configuration.strategies import OLD_NAMES, Strategy, strategy_name
from iceberg_compact_sql.units import parse_duration_ms, parse_size, zone

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WINDOW = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]):([0-5]\d)")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
SHORTEST_TOKEN = 16


def _window(text: object) -> tuple[int, int]:
    match = _WINDOW.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a window: write 22:00-06:00")
    start, end = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
    if start == end:
        raise ValueError(f"{text!r} is not a window: it begins when it ends")
    return start, end


def _zone(text: str) -> str:
    zone(text)
    return text


def _token(text: str) -> str:
    if len(text) < SHORTEST_TOKEN:
        raise ValueError(f"a token of {len(text)} characters is too short: use at least {SHORTEST_TOKEN}")
    return text


def _token_hash(text: str) -> str:
    if _HASH.fullmatch(text) is None:
        raise ValueError("is not a hash: write sha256:<64 hexadecimal digits>")
    return text


Size = Annotated[int, BeforeValidator(lambda value: parse_size(value))]
Duration = Annotated[int, BeforeValidator(lambda value: parse_duration_ms(value))]
Cron = Annotated[str, AfterValidator(check_cron)]
Zone = Annotated[str, AfterValidator(_zone)]
Token = Annotated[str, AfterValidator(_token)]
Window = Annotated[tuple[int, int], BeforeValidator(_window)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TokenEntry(_Model):
    """A token of `server.tokens`, with its role and the tables that it may see."""

    name: str
    token: Token | None = None
    token_hash: Annotated[str, AfterValidator(_token_hash)] | None = None
    role: Literal["viewer", "operator", "admin"] = "viewer"
    tables: tuple[str, ...] = ("*",)

    @model_validator(mode="after")
    def _one_secret(self) -> TokenEntry:
        if (self.token is None) == (self.token_hash is None):
            raise ValueError("give exactly one of token and token_hash")
        return self


class Server(_Model):
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    token: Token | None = None
    token_file: str | None = None
    read_token: Token | None = None
    tokens: tuple[TokenEntry, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_body: Size = 64 * 1024


class Catalog(BaseModel):
    """One catalog; every other key is a property of it."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)
    name: str = "default"
    type: str = "rest"
    uri: str | None = None
    warehouse: str | None = None
    namespace: str | None = None


class Storage(_Model):
    type: Literal["s3", "adls", "gcs", "local"] = "s3"
    bucket: str | None = None
    region: str | None = None
    endpoint: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    path_style: bool | None = None


class Spark(_Model):
    master: str | None = None
    connect: str | None = None
    conf: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one_engine(self) -> Spark:
        if self.master is not None and self.connect is not None:
            raise ValueError("give one of master and connect")
        if self.connect is not None and not self.connect.startswith("sc://"):
            raise ValueError("connect begins with sc://")
        return self


class State(_Model):
    folder: str = "./iceberg-compact-state"
    url: str | None = None
    keep: Duration = 90 * 86_400_000


class StrategyEntry(_Model):
    enabled: bool = True
    threshold: float | int | str | None = None
    target_size: int | str | None = None
    fragment_ratio_threshold: float | None = None
    idle: str | None = None

    def strategy(self) -> Strategy:
        return Strategy(**self.model_dump())


class Compaction(_Model):
    target_file_size: int | str | None = None
    max_parallelism: int = Field(default=1, ge=1, le=64)
    strategies: dict[str, StrategyEntry] = {}

    @model_validator(mode="after")
    def _known(self) -> Compaction:
        for name in self.strategies:
            strategy_name(name)
        if self.target_file_size is not None:
            parse_size(self.target_file_size)
        return self

    def configured(self) -> dict[str, Strategy]:
        return {strategy_name(name): entry.strategy() for name, entry in self.strategies.items()}


class Scheduler(_Model):
    enabled: bool = True
    default_schedule: Cron | None = None
    time_zone: Zone = "UTC"
    catch_up: Literal["once", "none"] = "once"
    dry: bool = False


class When(_Model):
    """Thresholds on the state of a table; one that is reached starts a run."""

    score: float | None = None
    small_files: int | None = None
    files_saved: int | None = None
    delete_files: int | None = None
    delete_ratio: float | None = None
    snapshots: int | None = None
    metadata_bytes: Size | None = None
    depth: float | None = None
    every: Duration = 5 * 60_000
    min_interval: Duration = 30 * 60_000
    quiet: Duration = 0

    def thresholds(self) -> dict[str, float]:
        values = self.model_dump(exclude={"every", "min_interval", "quiet"})
        return {name: value for name, value in values.items() if value is not None}

    @model_validator(mode="after")
    def _some(self) -> When:
        if not self.thresholds():
            raise ValueError("give at least one threshold, such as small_files: 200")
        return self


class TableEntry(_Model):
    name: str
    schedule: Cron | None = None
    when: When | None = None
    strategy: str | None = None
    options: dict[str, Any] = {}
    procedure: str = "compact_table"
    steps: tuple[str, ...] | None = None
    time_zone: Zone | None = None
    enabled: bool = True
    window: Window | None = None
    dry: bool = False

    @model_validator(mode="after")
    def _fits(self) -> TableEntry:
        if self.strategy is not None:
            strategy_name(self.strategy)
        procedure = names().get(self.procedure)
        if procedure is None or procedure.name == "help":
            hint = did_you_mean(self.procedure, names()) or ""
            raise ValueError(f"there is no procedure '{self.procedure}'. {hint}".strip())
        return self


class Budgets(_Model):
    max_cost_per_day: float | None = Field(default=None, gt=0)
    max_bytes_per_day: Size | None = None


class Metrics(_Model):
    table_labels: int = Field(default=200, ge=0)


class Tracing(_Model):
    otlp_endpoint: str | None = None


class ServiceConfig(_Model):
    """Everything that the service is told."""

    server: Server = Server()
    catalog: Catalog | None = None
    catalogs: dict[str, Catalog] = {}
    warehouse: str | None = None
    storage: Storage | None = None
    spark: Spark = Spark()
    state: State = State()
    compaction: Compaction = Compaction()
    scheduler: Scheduler = Scheduler()
    tables: tuple[TableEntry, ...] = ()
    budgets: Budgets = Budgets()
    metrics: Metrics = Metrics()
    tracing: Tracing = Tracing()

    def all_catalogs(self) -> dict[str, Catalog]:
        """The catalogs by name; the first is the default one."""
        first = {} if self.catalog is None else {self.catalog.name: self.catalog}
        return first | self.catalogs


def service_config(document: Mapping[str, Any]) -> ServiceConfig:
    """Check a document of either shape; raises ConfigurationError with one sentence for each fault."""
    document = from_deploy_shape(document)
    try:
        config = ServiceConfig.model_validate(dict(document))
    except ValidationError as error:
        faults = [_fault(fault) for fault in error.errors()]
        raise ConfigurationError("\n".join(faults), argument=faults[0].partition(":")[0]) from None
    _check_options(config)
    return config


def _check_options(config: ServiceConfig) -> None:
    """Refuse options that the procedure of a table does not have, with the path."""
    for index, entry in enumerate(config.tables):
        known = [parameter.name for parameter in names()[entry.procedure].parameters]
        for name in entry.options:
            if OLD_NAMES.get(name, name) not in known:
                path = f"tables[{index}].options.{name}"
                hint = did_you_mean(name, [*known, *OLD_NAMES]) or f"Options: {', '.join(known)}."
                raise ConfigurationError(f"{path}: unknown option", argument=path, hint=hint)


def _fault(fault: Any) -> str:
    path = ""
    for part in fault["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        known = _fields_at(fault["loc"][:-1])
        hint = did_you_mean(str(fault["loc"][-1]), known) or f"Known keys: {', '.join(sorted(known))}."
        message = f"unknown key. {hint}"
    return f"{path or 'the configuration'}: {message}"


def _fields_at(location: tuple[Any, ...]) -> list[str]:
    model: Any = ServiceConfig
    for part in location:
        if isinstance(part, int):
            continue
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            continue
        model = _model_in(field.annotation)
        if model is None:
            return []
    return list(getattr(model, "model_fields", {}))


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _model_in(part))), None)
