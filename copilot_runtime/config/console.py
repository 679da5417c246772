"""The section of the settings for the pages for people."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from copilot_runtime.config.section import Section, read_object, split_words


def _read_suggestions(value: Any) -> Any:
    """Parse `a, b` as a list, and JSON text as lists by agent."""
    is_object = isinstance(value, str) and value.lstrip().startswith("{")
    return read_object(value) if is_object else split_words(value)


class ConsoleSettings(Section):
    """The pages for people: the chat at /, and those of extensions."""

    enabled: bool = Field(
        default=True, description="Whether the pages are served. `console: false` is short."
    )
    title: str = Field(
        default="copilot-runtime", min_length=1, description="Name in the header of all pages."
    )
    logo: str = Field(
        default="",
        pattern=r"(?i)^(.+\.(svg|png))?$",
        description="Logo in header and browser tab: .svg or .png. Empty: ours.",
    )
    suggestions: Annotated[
        tuple[str, ...] | Mapping[str, tuple[str, ...]], BeforeValidator(_read_suggestions)
    ] = Field(
        default=(),
        description="Questions offered before the first message, or lists of them by agent: the "
        "page opens with the first one. Empty: those of the agent.",
    )


def _read_switch(value: Any) -> Any:
    """Parse `console: false` as a section."""
    return {"enabled": value} if isinstance(value, bool) else value


Console = Annotated[ConsoleSettings, BeforeValidator(_read_switch)]
