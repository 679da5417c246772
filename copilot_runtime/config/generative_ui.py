"""The sections of the settings for user interfaces that models make."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from copilot_runtime.config.sections import Count, Section, Words


def _spell_switch(value: Any) -> Any:
    """Read YAML's true and false as texts: the other values are names."""
    return str(value).lower() if isinstance(value, bool) else value


class A2uiSettings(Section):
    """Surfaces that pages draw from data. Where nothing is set, pages with a catalog have them."""

    enabled: bool | None = Field(
        default=None,
        description="Whether agents may draw. Empty: if anything else is set here, or the page "
        "says that it has a catalog.",
    )
    agents: Words = Field(default=(), description="Agents it is for. Empty: all.")
    inject_tool: Annotated[str, BeforeValidator(_spell_switch)] = Field(
        default="",
        description="Whether agents are offered a tool to draw: true, false, or the name it has "
        "instead of render_a2ui. Empty: where the page says that it has a catalog.",
    )
    tool_names: Words = Field(
        default=("render_a2ui",), description="Tools of agents whose calls draw a surface."
    )
    catalog: str = Field(
        default="",
        description="File of JSON with the components that agents may use, in place of the page's.",
    )
    default_catalog_id: str = Field(
        default="", description="Id of the catalog of surfaces for which no other is known."
    )
    progress_tokens: bool = Field(
        default=True, description="Whether pages see how much of a surface is written."
    )
    max_attempts: Count = Field(
        default=3, description="Most attempts at one surface, as pages show it."
    )
    debug_exposure: Literal["hidden", "collapsed", "verbose"] | None = Field(
        default=None,
        description="How pages show what was wrong with a surface. Empty: they choose.",
    )
    cards: bool = Field(
        default=True,
        description="Whether plans, sources, tables and charts of our agents are surfaces.",
    )
    max_operations: Count = Field(default=1000, description="Most operations in one result.")
    max_bytes: Count = Field(
        default=1_000_000, description="Largest result with operations, in bytes."
    )


class OpenGenerativeUiSettings(Section):
    """Pages that models write, drawn in a sandbox of the page while they are written."""

    enabled: bool = Field(
        default=False, description="Whether what models write with the page's tool is drawn."
    )
    agents: Words = Field(default=(), description="Agents it is for. Empty: all.")
