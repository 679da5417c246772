"""Builds what models and agents may call, beside what the program gave."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from copilot_runtime.actions.sources import ActionList
from copilot_runtime.api.action import ActionSource
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.knowledge.build import keep_as_resources, select_by_policy
from copilot_runtime.extensions.mcp.client.source import AllowRule, McpAllowlist, McpServer

if TYPE_CHECKING:
    import httpx

    from copilot_runtime.extensions.knowledge import Knowledge
    from copilot_runtime.extensions.tools.catalog import ToolCatalog

_TOOL = "tool.ToolFunction"
"""The type of the resources that tools are."""


def build_tools(settings: Settings, knowledge: "Knowledge | None") -> "list[ToolCatalog]":
    """Return the tools of the settings, if they name a file. Raises for a mistake in it."""
    if not settings.tools:
        return []
    from copilot_runtime.extensions.tools.catalog import ToolCatalog

    catalog = ToolCatalog(
        settings.tools,
        read_resources=None if knowledge is None else knowledge.read_texts,
        select_names=select_by_policy(knowledge, _TOOL),
    )
    catalog.load()
    if knowledge is not None:
        keep_as_resources(catalog, _TOOL, "tools", knowledge)
    return [catalog]


def find_catalogs(sources: Sequence[ActionSource]) -> "Sequence[ToolCatalog]":
    """Return those sources of actions that are tools which an operator wrote."""
    others = [source for source in sources if not isinstance(source, ActionList)]
    if not others:
        return ()
    from copilot_runtime.extensions.tools.catalog import ToolCatalog

    return [source for source in others if isinstance(source, ToolCatalog)]


def build_allowlist(
    servers: Sequence[McpServer],
    allowed: AllowRule,
    settings: Settings,
    http_client: "httpx.AsyncClient | None",
) -> McpAllowlist:
    """Return the MCP servers of the program and of the settings, and which a page may name."""
    listed = [McpServer(url, http_client=http_client) for url in settings.mcp.servers]
    if not callable(allowed) and not isinstance(allowed, str):
        allowed = [*allowed, *settings.mcp.allowed]
    return McpAllowlist(allowed, [*servers, *listed])
