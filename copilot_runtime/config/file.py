"""Read the YAML file of settings, and remember on which line each key stands."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.yaml_model import TOO_MANY_ALIASES, find_bomb

if TYPE_CHECKING:
    import yaml

_VARIABLE = re.compile(r"\$(\$)?\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
"""`${NAME}`, `${NAME:-default}`, and `$${NAME}` for the text itself."""


@dataclass(frozen=True, slots=True)
class Document:
    """A settings file. `lines` has the line of each key, written with dots."""

    path: Path | None
    values: Mapping[str, Any]
    lines: Mapping[str, int]


def read_document(path: Path, environ: Mapping[str, str]) -> Document:
    """Parse the file and put environment variables in place of `${NAME}`.

    Raises `ConfigurationFailed` with the file and the line.
    """
    import yaml  # only for those who have such a file

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationFailed(
            f"The settings file '{path}' cannot be read: {error.strerror or error}.",
            hint="Name another with --config or COPILOT_CONFIG, or leave both out.",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationFailed(f"The settings file '{path}' is not UTF-8 text.") from error
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if (bomb := find_bomb(root)) is not None:
            raise ConfigurationFailed(f"{path}, line {bomb + 1}: {TOO_MANY_ALIASES}.")
        values = yaml.safe_load(text)
        lines = dict(_lines(path, root)) if root is not None else {}
        values = _expand(values, environ, path, lines, "")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigurationFailed(f"{path}{line}: not YAML: {error.problem}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationFailed(f"{path}: not YAML: {error}.") from error
    if not isinstance(values, dict | None):
        raise ConfigurationFailed(
            f"{path}: expected settings such as 'port: 8000', found a {type(values).__name__}."
        )
    return Document(path, cast("dict[str, Any]", values or {}), lines)


def _lines(path: Path, node: "yaml.Node", prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield each key with its line; refuse a key that stands there twice."""
    from yaml import MappingNode

    if not isinstance(node, MappingNode):
        return
    key_lines: dict[str, int] = {}
    for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
        name, line = str(key.value), key.start_mark.line + 1
        if name in key_lines:
            raise ConfigurationFailed(
                f"{path}, line {line}: {prefix + name!r} was set before, on line {key_lines[name]}."
            )
        key_lines[name] = line
        yield prefix + name, line
        if prefix.count(".") < 2:  # deeper than any setting of ours
            yield from _lines(path, value, f"{prefix}{name}.")


def _expand(
    value: Any, environ: Mapping[str, str], path: Path, lines: Mapping[str, int], key: str
) -> Any:
    if isinstance(value, dict):
        return {
            name: _expand(inner, environ, path, lines, f"{key}.{name}" if key else str(name))
            for name, inner in cast("dict[Any, Any]", value).items()
        }
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_expand(inner, environ, path, lines, key) for inner in items]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        substitute = environ.get(match["name"]) or match["default"]
        if substitute is None:
            line = f", line {lines[key]}" if key in lines else ""
            raise ConfigurationFailed(
                f"{path}{line}: {key!r} needs the environment variable {match['name']!r}, "
                "which is not set.",
                hint=f"Set it, or write ${{{match['name']}:-a default}}.",
            )
        return substitute

    return _VARIABLE.sub(replace, value)
