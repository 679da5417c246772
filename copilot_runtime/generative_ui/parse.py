"""Reads the options of user interfaces, in our form or in that of the Node runtime."""

from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.actions.mcp.server import McpServer
from copilot_runtime.generative_ui.options import A2ui, McpApps, McpAppServer, OpenGenerativeUi


def parse_a2ui(value: A2ui | Mapping[str, Any] | bool | None) -> A2ui | None:
    """Return the options of A2UI. Raises `ConfigurationFailed` for what cannot be used."""
    if isinstance(value, bool):
        return A2ui(enabled=value)
    return value if isinstance(value, A2ui) else None


def parse_mcp_apps(
    value: McpApps | Sequence[McpServer] | Mapping[str, Any] | None,
) -> McpApps | None:
    """Return the options of MCP Apps. Raises `ConfigurationFailed` for what cannot be used."""
    if value is None or isinstance(value, McpApps | Mapping):
        return value if isinstance(value, McpApps) else None
    return McpApps(servers=[McpAppServer(server=one) for one in value])


def parse_open_generative_ui(
    value: OpenGenerativeUi | Mapping[str, Any] | bool | None,
) -> OpenGenerativeUi | None:
    """Return the options of Open Generative UI. Raises `ConfigurationFailed`."""
    if isinstance(value, bool):
        return OpenGenerativeUi(enabled=value)
    return value if isinstance(value, OpenGenerativeUi) else None
