"""Builds the options of user interfaces that models make."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from copilot_runtime.api.agent import DEFAULT_AGENT, Agents
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.generative_ui.from_settings import (
    build_a2ui,
    build_mcp_apps,
    build_open_generative_ui,
)
from copilot_runtime.extensions.generative_ui.options import (
    A2ui,
    GenerativeUi,
    McpApps,
    OpenGenerativeUi,
)
from copilot_runtime.extensions.generative_ui.parse import (
    check_agents,
    parse_a2ui,
    parse_mcp_apps,
    parse_open_generative_ui,
)
from copilot_runtime.extensions.mcp.client.source import McpServer

if TYPE_CHECKING:
    import httpx

    from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint


def build_generative_ui(
    settings: Settings,
    a2ui: "A2ui | Mapping[str, Any] | bool | None",
    mcp_apps: "McpApps | Sequence[McpServer] | Mapping[str, Any] | None",
    open_generative_ui: "OpenGenerativeUi | Mapping[str, Any] | bool | None",
    http_client: "httpx.AsyncClient | None",
) -> GenerativeUi:
    """Return what was given, and for the rest what the settings say.

    Raises `ConfigurationFailed` for what cannot be used.
    """
    return GenerativeUi(
        a2ui=build_a2ui(settings.a2ui) if a2ui is None else parse_a2ui(a2ui),
        mcp_apps=build_mcp_apps(settings.mcp_apps, http_client)
        if mcp_apps is None
        else parse_mcp_apps(mcp_apps),
        open_generative_ui=build_open_generative_ui(settings.open_generative_ui)
        if open_generative_ui is None
        else parse_open_generative_ui(open_generative_ui),
    )


def check_agent_names(
    options: GenerativeUi, agents: Agents, endpoints: "Sequence[RemoteEndpoint]"
) -> None:
    """Raise `UnknownName` for options for an agent that is not there, where all are known."""
    if not callable(agents) and not endpoints:
        check_agents(options, [*agents, DEFAULT_AGENT])
