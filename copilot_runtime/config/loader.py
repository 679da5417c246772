"""Read the settings: defaults < copilot.yml < environment < options of the command.

Nothing else in this package reads the environment, except adapters that look for their API key
and address, `http/client.py` for proxies, and `copilot-runtime chat` for COPILOT_URL.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import create_model

from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.config.plugins import load_plugins
from copilot_runtime.config.problems import SettingOrigins, reject_misspelt_variable
from copilot_runtime.config.section import ReadVariables, Section, SectionVariables
from copilot_runtime.config.settings import PREFIX, CoreSettings
from copilot_runtime.config.yaml_model import load_yaml
from copilot_runtime.extensions import SETTINGS, VARIABLES

if TYPE_CHECKING:
    import yaml


DEFAULT_FILE = "copilot.yml"
FILE_VARIABLE = "COPILOT_CONFIG"
_OPENAI_URL = "https://api.openai.com/v1"


def load_settings(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> CoreSettings:
    """Load the settings: defaults, then the file, then the environment, then `overrides`.

    The file is `path`, else the one that COPILOT_CONFIG names, else copilot.yml if it exists.
    Raises `ConfigurationFailed` with the file, the line and the key of the error.
    """
    return read_settings(path, environ, overrides=overrides)[0]


def read_settings(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[CoreSettings, SettingOrigins]:
    """Load the settings as `load_settings` does, and also return the origin of each one."""
    environ = os.environ if environ is None else environ
    REDACTOR.learn(environ)
    document = _read_document(path, environ)
    values = {key: value for key, value in document.values.items() if value is not None}
    origins = SettingOrigins(document.path, document.lines)
    kind = build_settings_class()
    rows = {row.variable: row.name for row in kind.describe()}
    sections = _load_variables()
    others = [FILE_VARIABLE, *(name for section in sections for name in section.names)]
    for section in sections:
        _put_section(values, origins, environ, section.section, section.read_before)
    for variable, text in environ.items():
        if variable in rows:
            section, _, key = rows[variable].rpartition(".")
            _put(values, section, key, text)
            origins.overrides[rows[variable]] = f"The environment variable {variable}"
        elif variable.startswith(PREFIX) and variable not in others:
            reject_misspelt_variable(variable, [*rows, *others[1:]])
    for section in sections:
        _put_section(values, origins, environ, section.section, section.read_after)
    if environ.get("DEBUG") and "log_debug" not in values:
        values["log_debug"] = environ["DEBUG"]
        origins.overrides["log_debug"] = "The environment variable DEBUG"
    for name, value in (overrides or {}).items():
        values[name] = value
        origins.overrides[name] = f"The option --{name}"
    REDACTOR.learn(values)  # before errors about them
    return kind.model_validate(values, context=origins), origins


def find_named_file() -> str:
    """Return the settings file that COPILOT_CONFIG names, or an empty string."""
    return os.environ.get(FILE_VARIABLE, "")


def learn_secrets(*sources: Any) -> None:
    """Redact the secrets of the environment, of settings, and of arguments of a program."""
    REDACTOR.learn([os.environ, *sources])


@cache
def load_settings_class() -> type[CoreSettings]:
    """Return the class of all settings of this package, including the sections of extensions."""
    return Registry("copilot_runtime.settings", {"settings": SETTINGS})["settings"]


def build_settings_class() -> type[CoreSettings]:
    """Return the class of all settings, including the sections of installed plugins.

    Raises `ConfigurationFailed` for a plugin that cannot be imported, or whose section has the name
    of another setting.
    """
    kind = load_settings_class()
    fields: dict[str, Any] = {}
    for name, extension in load_plugins().items():
        section = getattr(extension, "settings", None)
        if section is None:
            continue
        if not (isinstance(section, type) and issubclass(section, Section)):
            raise ConfigurationFailed(
                f"The settings of the extension {name!r} are not a Section class.",
                hint="Derive it from copilot_runtime.config.section.Section.",
            )
        if name in kind.model_fields:
            raise ConfigurationFailed(
                f"The extension {name!r} has settings, but {name!r} is already a setting.",
                hint="Give the extension another name in its entry point.",
            )
        fields[name] = (section, _build_defaults(name, section))
    return create_model(kind.__name__, __base__=kind, **fields) if fields else kind


def _build_defaults(name: str, section: type[Section]) -> Section:
    if not name.isidentifier() or name.startswith("_"):
        raise ConfigurationFailed(
            f"The extension {name!r} has settings, but {name!r} cannot name a section.",
            hint="Name its entry point with letters, digits and underscores, and a letter first.",
        )
    try:
        return section()
    except ValueError as error:  # of pydantic
        raise ConfigurationFailed(
            f"The settings of the extension {name!r} have no valid defaults: {error}",
            hint="Give every field a default.",
        ) from error


def adapter_name(settings: CoreSettings, environ: Mapping[str, str] | None = None) -> str:
    """Return the configured adapter, else `openai` if there is a key for it, else `demo`."""
    environ = os.environ if environ is None else environ
    return settings.adapter.name or ("openai" if environ.get("OPENAI_API_KEY") else "demo")


def has_transcription(settings: CoreSettings) -> bool:
    """Return whether there is a transcription model, by the settings or by OpenAI's key."""
    transcription = settings.transcription
    if transcription.model or transcription.base_url:
        return transcription.model != "none"
    # a self-hosted model server at OPENAI_BASE_URL rarely supports speech
    elsewhere = os.environ.get("OPENAI_BASE_URL", "").rstrip("/") not in ("", _OPENAI_URL)
    return bool(os.environ.get("OPENAI_API_KEY")) and not elsewhere


def _read_document(path: str | Path | None, environ: Mapping[str, str]) -> "_Document":
    """Parse the settings file and replace `${NAME}` by environment variables.

    Raises `ConfigurationFailed` with the file and the line.
    """
    named = path or environ.get(FILE_VARIABLE)
    file = Path(named or DEFAULT_FILE)
    if not named and not file.exists():
        return _Document(None, {}, {})
    if file.is_dir():
        raise ConfigurationFailed(
            f"The settings file '{file}' is a folder.",
            hint="Remove it, or name a file with --config or COPILOT_CONFIG. Docker creates such a "
            "folder for a mounted file that is not there.",
        )
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationFailed(
            f"The settings file '{file}' cannot be read: {error.strerror or error}.",
            hint="Name another with --config or COPILOT_CONFIG, or leave both out.",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationFailed(f"The settings file '{file}' is not UTF-8 text.") from error
    root, values = load_yaml(text, lambda at: f"{file}" if at is None else f"{file}, line {at + 1}")
    lines = dict(_lines(file, root)) if root is not None else {}
    try:
        values = _expand(values, environ, file, lines, "")
    except RecursionError as error:  # a value contains itself
        raise ConfigurationFailed(f"{file}: not YAML: {error}.") from error
    if not isinstance(values, dict | None):
        raise ConfigurationFailed(
            f"{file}: expected settings such as 'port: 8000', found a {type(values).__name__}."
        )
    return _Document(file, values or {}, lines)


@dataclass(frozen=True, slots=True)
class _Document:
    """A settings file; `lines` has the line number of each key, by its dotted name."""

    path: Path | None
    values: Mapping[str, Any]
    lines: Mapping[str, int]


@cache
def _load_variables() -> Sequence[SectionVariables]:
    table = Registry("copilot_runtime.variables", VARIABLES, noun="table of variables")
    return [table[name] for name in VARIABLES]


def _put_section(
    values: dict[str, Any],
    origins: SettingOrigins,
    environ: Mapping[str, str],
    section: str,
    read: ReadVariables,
) -> None:
    """Merge the environment variables of an extension into the values of its section."""
    found = values.get(section) or {}
    if not isinstance(found, Mapping):
        return
    for key, value, variable in read(cast("Mapping[str, Any]", found), environ):
        _put(values, section, key, value)
        origins.overrides[f"{section}.{key}"] = f"The environment variable {variable}"


def _put(values: dict[str, Any], section: str, key: str, text: Any) -> None:
    if not section:
        values[key] = text or None if key == "cloud_base_url" else text
    elif isinstance(inner := values.get(section, {}), Mapping):
        values[section] = {**inner, key: text}


_VARIABLE = re.compile(r"\$(\$)?\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
"""`${NAME}`, `${NAME:-default}`, and `$${NAME}` for a literal `${NAME}`."""


def _lines(path: Path, node: "yaml.Node", prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield each key with its line number. Raises `ConfigurationFailed` for a duplicate key."""
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


def is_independent(
    settings: CoreSettings, read: CoreSettings, options: Collection[str] = ()
) -> bool:
    """Return whether settings were constructed independently of the loaded settings `read`.

    `options` are the names of settings that `read` has from the command line. Loaded settings are
    not marked as such: they have all the values that were loaded, perhaps with some changes.
    """
    names = read.model_fields_set.difference(options)
    if not names:
        return bool(settings.model_fields_set - read.model_fields_set)
    if not names <= settings.model_fields_set:
        return True
    return all(getattr(settings, name) != getattr(read, name) for name in names)


def find_origins(
    program: str, settings: CoreSettings, read: CoreSettings, origins: SettingOrigins
) -> SettingOrigins:
    """Return the origins of a program's settings, given the `origins` of the loaded ones."""
    defaults = type(settings)()
    is_own = is_independent(settings, read)
    overrides, lines = dict[str, str](), dict[str, int]()
    for row in type(settings).describe():
        find = attrgetter(row.name)
        if is_own or find(settings) != find(read):
            if find(settings) != find(defaults):
                overrides[row.name] = program
        elif row.name in origins.overrides:
            overrides[row.name] = origins.overrides[row.name]
        elif row.name in origins.lines:
            lines[row.name] = origins.lines[row.name]
    return SettingOrigins(None if is_own else origins.path, lines, overrides)


_SCHEMES = ("api_keys", "jwt", "proxy", "service_tokens")
"""Names of authentication schemes, each with a section of the same name."""


class UnusedCredential(NamedTuple):
    """Settings of an authentication scheme that is not enabled: the problem, and the fix."""

    text: str
    hint: str


def list_unused_credentials(settings: CoreSettings) -> Sequence[UnusedCredential]:
    """Return the authentication schemes with settings that `access.authenticate` does not name.

    Empty if a plugin is among the schemes, because it may read these settings itself.
    """
    named = settings.access.authenticate
    if not {*named} <= {*_SCHEMES}:
        return []
    return [
        UnusedCredential(
            f"Unused settings {', '.join(names)}: access.authenticate does not name {scheme}.",
            f"Set access.authenticate: [{', '.join((*named, scheme))}].",
        )
        for scheme in _SCHEMES
        if scheme not in named and (names := _list_names(settings, scheme))
    ]


def _list_names(settings: CoreSettings, scheme: str) -> Sequence[str]:
    """Return the settings of an authentication scheme that differ from their defaults."""
    section = getattr(settings, scheme)
    shared = {"proxy.addresses"}  # also for proxies that do not authenticate
    if "service_tokens" in settings.access.authenticate:
        shared.add("api_keys.store")  # it also stores used tokens
    return [
        f"{scheme}.{name}"
        for name, field in type(section).model_fields.items()
        if getattr(section, name) != field.default and f"{scheme}.{name}" not in shared
    ]
