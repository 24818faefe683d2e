"""Reads a YAML file safely: no tags, no key twice, and `${NAME}` from the environment inside strings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from iceberg_compact_sql.errors import InvalidArgumentError

_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ConfigurationError(InvalidArgumentError):
    """The configuration is wrong; one sentence for each fault."""

    condition = "ICEBERG_COMPACT_CONFIGURATION"


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which also refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int, float, bool)):
                if key in seen:
                    line = key_node.start_mark.line + 1
                    raise ConfigurationError(f"the key '{key}' is given twice (line {line})", hint="Give it once.")
                seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """The mapping in a YAML file, with variables filled in. Raises ConfigurationError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"{path} cannot be read: {reason}", argument="--config") from None
    return parse_yaml(text, environment)


def parse_yaml(text: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The mapping in a YAML text, with variables filled in. Raises ConfigurationError.

    >>> parse_yaml("catalog: {uri: 'http://${HOST:-localhost}/$$x'}", {})
    {'catalog': {'uri': 'http://localhost/$x'}}
    """
    try:
        document = yaml.load(text, _Loader)
    except yaml.constructor.ConstructorError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigurationError(f"the YAML uses a tag, which is refused{where}", hint="Write plain values.") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"the YAML cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise ConfigurationError("the file holds no mapping of keys to values", hint="Write `key: value` lines.")
    filled = _filled(document, "", environment)
    assert isinstance(filled, dict)
    return filled


def _filled(value: Any, path: str, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {str(key): _filled(item, f"{path}.{key}".lstrip("."), environment) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, f"{path}[{index}]", environment) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name is None:
            return "$"
        if name in environment:
            return environment[name]
        if default is None:
            raise ConfigurationError(
                f"{path}: the environment variable {name} is not set",
                argument=path,
                hint=f"Set it, or write ${{{name}:-default}}.",
            )
        return default

    return _VARIABLE.sub(replacement, value)
