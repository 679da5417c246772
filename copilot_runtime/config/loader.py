"""Read the settings: defaults < copilot.yml < environment < options of the command.

Nothing else in this package reads the environment, except adapters that look for their API key
and address, `http/client.py` for proxies, and `copilot-runtime chat` for COPILOT_URL.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import create_model

from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.file import Document, read_document
from copilot_runtime.config.plugins import load_plugins
from copilot_runtime.config.problems import SettingOrigins, reject_misspelt_variable
from copilot_runtime.config.section import Section
from copilot_runtime.config.settings import PREFIX, CoreSettings
from copilot_runtime.config.variables import ReadVariables, SectionVariables
from copilot_runtime.extensions import SETTINGS, VARIABLES

DEFAULT_FILE = "copilot.yml"
FILE_VARIABLE = "COPILOT_CONFIG"
_OPENAI_URL = "https://api.openai.com/v1"


def load_settings(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> CoreSettings:
    """Read the settings: defaults, then the file, then the environment, then `overrides`.

    The file is `path`, else what COPILOT_CONFIG names, else copilot.yml if it exists.
    Raises `ConfigurationFailed` with the file, the line and the key that is wrong.
    """
    return read_settings(path, environ, overrides=overrides)[0]


def read_settings(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[CoreSettings, SettingOrigins]:
    """Read the settings as `load_settings` does, and return where each one came from as well."""
    environ = os.environ if environ is None else environ
    document = _document(path, environ)
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
    return kind.model_validate(values, context=origins), origins


@cache
def load_settings_class() -> type[CoreSettings]:
    """Return the class of all settings of this package, which has the sections of extensions."""
    return Registry("copilot_runtime.settings", {"settings": SETTINGS})["settings"]


def build_settings_class() -> type[CoreSettings]:
    """Return the class of all settings, with a section for each installed plugin that has one.

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
                f"The settings of the extension {name!r} are no class of settings.",
                hint="Derive it from copilot_runtime.config.section.Section.",
            )
        if name in kind.model_fields:
            raise ConfigurationFailed(
                f"The extension {name!r} has settings, and {name!r} is a setting already.",
                hint="Give the extension another name in its entry point.",
            )
        fields[name] = (section, section())
    return create_model(kind.__name__, __base__=kind, **fields) if fields else kind


def adapter_name(settings: CoreSettings, environ: Mapping[str, str] | None = None) -> str:
    """Return the adapter to use: the one set, else OpenAI if it has a key, else the demo."""
    environ = os.environ if environ is None else environ
    return settings.adapter.name or ("openai" if environ.get("OPENAI_API_KEY") else "demo")


def has_transcription(settings: CoreSettings, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether there is a transcription model: in the settings, or by OpenAI's key."""
    environ = os.environ if environ is None else environ
    transcription = settings.transcription
    if transcription.model or transcription.base_url:
        return transcription.model != "none"
    # a model server of one's own, which OPENAI_BASE_URL then names, seldom understands speech
    elsewhere = environ.get("OPENAI_BASE_URL", "").rstrip("/") not in ("", _OPENAI_URL)
    return bool(environ.get("OPENAI_API_KEY")) and not elsewhere


def _document(path: str | Path | None, environ: Mapping[str, str]) -> Document:
    named = path or environ.get(FILE_VARIABLE)
    file = Path(named or DEFAULT_FILE)
    if not named and not file.is_file():
        return Document(None, {}, {})
    return read_document(file, environ)


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
    """Put the values of an extension's environment variables into its section."""
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
