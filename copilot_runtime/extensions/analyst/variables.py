"""Environment variables of AXIS that configure the data analyst."""

from collections.abc import Iterator, Mapping
from typing import Any

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.section import Override, SectionVariables

ENABLED = "COPILOT_ENABLED"
MEMORY_ENABLED = "COPILOT_MEMORY_ENABLED"
MODEL = "LLM_MODEL_NAME"
ANALYST_VARIABLES = (ENABLED, MEMORY_ENABLED)
"""The variables that have our own prefix."""

DEFAULT_NAME = "analyst"

_SWITCHES = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def read_analyst_variables(
    section: Mapping[str, Any], environ: Mapping[str, str]
) -> Iterator[Override]:
    """Yield the overrides of the section `analyst`, given its values so far.

    `COPILOT_ENABLED` disables the analyst, or sets its name if there is data. `LLM_MODEL_NAME`
    applies if the settings have no model.
    """
    name = section.get("name") or ""
    if (is_enabled := _read_switch(ENABLED, environ)) is not None:
        if is_enabled and not name and section.get("data"):
            name = DEFAULT_NAME
            yield Override("name", name, ENABLED)
        elif not is_enabled and name:
            name = ""
            yield Override("name", "", ENABLED)
    if (remembers := _read_switch(MEMORY_ENABLED, environ)) is not None:
        yield Override("memory_enabled", remembers, MEMORY_ENABLED)
    if name and not section.get("model") and (model := environ.get(MODEL, "").strip()):
        yield Override("model", model, MODEL)


def _read_switch(variable: str, environ: Mapping[str, str]) -> bool | None:
    """Return the boolean of a variable; `None` if it is unset. Raises `ConfigurationFailed`."""
    text = environ.get(variable, "").strip().lower()
    if not text:
        return None
    if text not in _SWITCHES:
        raise ConfigurationFailed(
            f"The environment variable {variable} is {text!r}.", hint="It is true or false."
        )
    return _SWITCHES[text]


ANALYST = SectionVariables(
    section="analyst", names=ANALYST_VARIABLES, read_after=read_analyst_variables
)
