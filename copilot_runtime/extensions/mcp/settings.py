"""The settings section `mcp`."""

from typing import Annotated

from pydantic import AfterValidator, Field

from copilot_runtime.config.checks import check_web_url
from copilot_runtime.config.section import Section, Words


def _check_web_urls(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(check_web_url, texts))


class McpSettings(Section):
    """MCP servers whose tools models may use, and servers that frontends may name."""

    servers: Annotated[Words, AfterValidator(_check_web_urls)] = Field(
        default=(), description="URLs of MCP servers whose tools become actions.", repr=False
    )
    allowed: Words = Field(
        default=(), description="Origins or URLs of MCP servers that a frontend may name."
    )
