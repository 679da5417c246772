"""Environment variables of other programs that change a section of the settings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Override(NamedTuple):
    """A value for a key of a section, and the environment variable that sets it."""

    key: str
    value: Any
    variable: str


ReadVariables = Callable[[Mapping[str, Any], Mapping[str, str]], Iterable[Override]]
"""Returns the overrides of a section, given its values so far and the environment."""


def _read_nothing(section: Mapping[str, Any], environ: Mapping[str, str]) -> Iterable[Override]:  # noqa: ARG001
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionVariables:
    """The environment variables of an extension for its section, besides `COPILOT_SECTION_KEY`."""

    section: str
    names: Sequence[str] = ()
    """Those that start with `COPILOT_`, which would be misspelt settings otherwise."""
    read_before: ReadVariables = _read_nothing
    """Reads variables that count less than `COPILOT_SECTION_KEY`."""
    read_after: ReadVariables = _read_nothing
    """Reads variables that count more, or only where the settings leave a value open."""
