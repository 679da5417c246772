"""The section of the settings for MCP servers."""

from typing import Annotated

from pydantic import AfterValidator, Field

from copilot_runtime.config.checks import check_web_url
from copilot_runtime.config.section import Section, Words


def _check_web_urls(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(check_web_url, texts))


class McpSettings(Section):
    """MCP servers whose tools models may use, and those that pages may name."""

    servers: Annotated[Words, AfterValidator(_check_web_urls)] = Field(
        default=(), description="Addresses of MCP servers whose tools are actions.", repr=False
    )
    allowed: Words = Field(
        default=(), description="Origins or addresses of MCP servers that a page may name."
    )
