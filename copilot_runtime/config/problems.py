"""Explain invalid settings: the error, its location, and suggestions."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.secrets import SECRET_NAMES
from copilot_runtime.config.checks import mask_credentials, mask_store_url

REDACTED_NAMES = (
    *("adapter.options", "knowledge.embedder_options", "secret", "mcp_apps.servers"),
    *("telemetry.headers", "telemetry.metrics_token", "telemetry.receive_token"),
)
"""Settings whose values must not appear in messages, because they may hold a key."""

_URL_NAMES = (
    *("threads", "carrier", "limits.store", "api_keys.store", "planner.store", "analyst.data"),
    *("knowledge.vector_database", "knowledge.storage", "analyst.files", "mcp.servers"),
)
"""Settings that are URLs, of which messages only contain the scheme."""


@dataclass(frozen=True, slots=True)
class SettingOrigins:
    """The origin of each setting, by dotted name; `overrides` has those not from the file."""

    path: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    overrides: dict[str, str] = field(default_factory=dict[str, str])

    def describe(self, name: str) -> str:
        """Return the origin of a setting: a file and line, a variable, or an option."""
        if name in self.overrides:
            return self.overrides[name]
        if self.path is not None:
            line = f", line {self.lines[name]}" if name in self.lines else ""
            return f"{self.path}{line}"
        return "Settings"

    def find_source(self, name: str) -> str:
        """Return the origin of a setting in short form; empty for a default."""
        if name in self.overrides:
            return self.overrides[name].removeprefix("The environment variable ")
        if name in self.lines and self.path is not None:
            return f"{self.path.name}:{self.lines[name]}"
        return ""


def explain(
    error: ValidationError, names: Sequence[str], origins: SettingOrigins
) -> ConfigurationFailed:
    """Return one error for all invalid settings; `names` are the existing settings."""
    sentences: list[str] = []
    for problem in error.errors(include_url=False):
        name = _name(problem["loc"], names)
        place = origins.describe(name)
        if problem["type"] == "extra_forbidden":
            sentences.append(f"{place}: there is no setting {name!r}.{_suggest(name, names)}")
        elif problem["type"] in _SECTION_ERRORS:
            sentences.append(f"{place}: {_explain_section(name, problem['input'], names)}")
        else:
            value = _show(name, problem["input"])
            reason = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
            sentences.append(f"{place}: {name!r} is {value}; it {_phrase_reason(reason)}.")
    return ConfigurationFailed(
        "\n".join(sentences), hint="`copilot-runtime settings` lists every setting."
    )


def reject_misspelt_variable(variable: str, variables: Iterable[str]) -> None:
    """Raise `ConfigurationFailed` for a variable that resembles a setting, or names a section."""
    names = [*variables]
    inside = [name for name in names if name.startswith(f"{variable}_")]
    close = inside or get_close_matches(variable, names, n=1, cutoff=0.88)
    if close:
        raise ConfigurationFailed(
            f"The environment variable {variable} sets nothing. Did you mean {close[0]}?",
            hint="`copilot-runtime settings` lists every variable.",
        )


def _name(location: tuple[int | str, ...], names: Sequence[str]) -> str:
    """Return the dotted name of a setting, without indexes inside its value."""
    parts = [str(part) for part in location]
    dotted = ".".join(parts)
    return next((".".join(parts[:n]) for n in (1, 2) if ".".join(parts[:n]) in names), dotted)


_ELSEWHERE = {
    "services": " Services that tools call are in the file that the setting 'tools' names; those "
    "that are offered are 'grpc.services'."
}
"""Unknown settings that are configured elsewhere, with the sentence for the error."""


def _suggest(name: str, names: Sequence[str]) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    sections = dict.fromkeys(other.rpartition(".")[0] for other in names if "." in other)
    in_snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    close = get_close_matches(in_snake_case, [*names, *sections], n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    section, dot, _ = name.rpartition(".")
    siblings = [other for other in names if other.rpartition(".")[0] == section]
    return f" Known{' there' if dot else ''}: {', '.join(siblings)}."


_SECTION_ERRORS = ("model_type", "model_attributes_type")
"""Pydantic's error types for a value that is not a section."""


def _explain_section(name: str, value: object, names: Sequence[str]) -> str:
    """Return a sentence about a section that was given a single value."""
    keys = [other.removeprefix(f"{name}.") for other in names if other.startswith(f"{name}.")]
    is_safe = _is_word(value) and not {"secret", "secrets"}.intersection(keys)
    example = f"{{{keys[0]}: {value if is_safe else '...'}}}"
    found = repr(value) if is_safe else "one value"
    return (
        f"{name!r} is {found}, but it is a section with the keys {', '.join(keys)}: "
        f"write {name}: {example}."
    )


def _show(name: str, value: Any) -> str:
    """Return the abbreviated value of a setting, without secrets."""
    if name in REDACTED_NAMES or SECRET_NAMES.fullmatch(name.rpartition(".")[2]):
        return "not valid"
    return _abbreviate(mask_secrets(value, is_url=name in _URL_NAMES))


def mask_secrets(value: Any, *, is_url: bool = False) -> Any:
    """Return a value in which passwords in URLs and values with secret names are masked.

    With `is_url`, only the scheme of a URL remains.
    """
    if isinstance(value, Mapping):
        return {
            name: "***" if SECRET_NAMES.fullmatch(str(name)) else mask_secrets(item, is_url=is_url)
            for name, item in cast("Mapping[str, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [mask_secrets(item, is_url=is_url) for item in cast("Sequence[Any]", value)]
    if not isinstance(value, str):
        return value
    return mask_store_url(value) if is_url else mask_credentials(value)


def _is_word(value: object) -> bool:
    """Return whether a value is an identifier, and so cannot be a key."""
    return isinstance(value, str) and value.isidentifier() and len(value) <= 32


def _abbreviate(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _phrase_reason(reason: str) -> str:
    return reason if reason.startswith("should") else f"is refused because {reason}"
