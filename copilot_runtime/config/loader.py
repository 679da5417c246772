"""Read the settings: defaults < copilot.yml < environment < options of the command.

Nothing else in this package reads the environment, except adapters that look for their API key
and address, `http/client.py` for proxies, and `copilot-runtime chat` for COPILOT_URL.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.file import Document, read_document
from copilot_runtime.config.problems import SettingOrigins, reject_misspelt_variable
from copilot_runtime.config.settings import PREFIX, Settings
from copilot_runtime.extensions.analyst.variables import ANALYST_VARIABLES, read_analyst_variables
from copilot_runtime.extensions.tracing.variables import (
    Override,
    own_variables,
    read_own_variables,
    read_shared_variables,
)

DEFAULT_FILE = "copilot.yml"
FILE_VARIABLE = "COPILOT_CONFIG"
_OPENAI_URL = "https://api.openai.com/v1"


def load_settings(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
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
) -> tuple[Settings, SettingOrigins]:
    """Read the settings as `load_settings` does, and return where each one came from as well."""
    environ = os.environ if environ is None else environ
    document = _document(path, environ)
    values = {key: value for key, value in document.values.items() if value is not None}
    origins = SettingOrigins(document.path, document.lines)
    rows = {row.variable: row.name for row in Settings.describe()}
    _put_telemetry(values, origins, environ, read_shared_variables)
    for variable, text in environ.items():
        if variable in rows:
            section, _, key = rows[variable].rpartition(".")
            _put(values, section, key, text)
            origins.overrides[rows[variable]] = f"The environment variable {variable}"
        elif variable.startswith(PREFIX) and variable not in (
            FILE_VARIABLE,
            *own_variables(),
            *ANALYST_VARIABLES,
        ):
            reject_misspelt_variable(variable, [*rows, *own_variables(), *ANALYST_VARIABLES])
    _put_telemetry(values, origins, environ, read_own_variables)
    for key, value, variable in read_analyst_variables(values.get("analyst"), environ):
        _put(values, "analyst", key, value)
        origins.overrides[f"analyst.{key}"] = f"The environment variable {variable}"
    if storage := _find_storage(values.get("knowledge"), environ):
        _put(values, "knowledge", "storage", storage)
        origins.overrides["knowledge.storage"] = "The environment variable STORAGE_TYPE"
    if environ.get("DEBUG") and "log_debug" not in values:
        values["log_debug"] = environ["DEBUG"]
        origins.overrides["log_debug"] = "The environment variable DEBUG"
    for name, value in (overrides or {}).items():
        values[name] = value
        origins.overrides[name] = f"The option --{name}"
    return Settings.model_validate(values, context=origins), origins


def adapter_name(settings: Settings, environ: Mapping[str, str] | None = None) -> str:
    """Return the adapter to use: the one set, else OpenAI if it has a key, else the demo."""
    environ = os.environ if environ is None else environ
    return settings.adapter.name or ("openai" if environ.get("OPENAI_API_KEY") else "demo")


def has_transcription(settings: Settings, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether there is a transcription model: in the settings, or by OpenAI's key."""
    environ = os.environ if environ is None else environ
    transcription = settings.transcription
    if transcription.model or transcription.base_url:
        return transcription.model != "none"
    # a model server of one's own, which OPENAI_BASE_URL then names, seldom understands speech
    elsewhere = environ.get("OPENAI_BASE_URL", "").rstrip("/") not in ("", _OPENAI_URL)
    return bool(environ.get("OPENAI_API_KEY")) and not elsewhere


def _find_storage(knowledge: Any, environ: Mapping[str, str]) -> str:
    """Return where knowledge is by the variables of Copilot-LD, if the settings do not say.

    These names are not ours alone. So they only say where knowledge is, and a bucket that is named
    has some; `STORAGE_TYPE=local` in the environment of another program changes nothing.
    """
    section: Mapping[str, Any] = knowledge if isinstance(knowledge, Mapping) else {}
    kind = environ.get("STORAGE_TYPE", "")
    bucket = environ.get("S3_BUCKET") or environ.get("S3_BUCKET_NAME", "")
    if section.get("storage"):
        return ""
    if kind == "s3" and bucket:
        region = environ.get("S3_REGION", "")
        return f"s3://{bucket}?region={region}" if region else f"s3://{bucket}"
    if not kind or not section.get("sources"):
        return ""
    if kind not in ("local", "memory"):
        wrong = "S3_BUCKET is not set" if kind == "s3" else "there are local, memory and s3"
        raise ConfigurationFailed(
            f"The environment variable STORAGE_TYPE is {kind!r}, but {wrong}.",
            hint="Set knowledge.storage in copilot.yml, such as s3://bucket/prefix.",
        )
    return "memory" if kind == "memory" else ""


def _document(path: str | Path | None, environ: Mapping[str, str]) -> Document:
    named = path or environ.get(FILE_VARIABLE)
    file = Path(named or DEFAULT_FILE)
    if not named and not file.is_file():
        return Document(None, {}, {})
    return read_document(file, environ)


def _put_telemetry(
    values: dict[str, Any],
    origins: SettingOrigins,
    environ: Mapping[str, str],
    read: Callable[[Mapping[str, Any], Mapping[str, str]], Iterable[Override]],
) -> None:
    """Put what variables of others say into the section `telemetry`."""
    section = values.get("telemetry") or {}
    if not isinstance(section, Mapping):
        return
    for key, value, variable in read(cast("Mapping[str, Any]", section), environ):
        _put(values, "telemetry", key, value)
        origins.overrides[f"telemetry.{key}"] = f"The environment variable {variable}"


def _put(values: dict[str, Any], section: str, key: str, text: Any) -> None:
    if not section:
        values[key] = text or None if key == "cloud_base_url" else text
    elif isinstance(inner := values.get(section, {}), Mapping):
        values[section] = {**inner, key: text}
