"""Builds the options of user interfaces that models make."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copilot_runtime.api.agent import DEFAULT_AGENT, Agents
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.generative_ui.options import (
    A2ui,
    A2uiRecovery,
    GenerativeUi,
    McpApps,
    McpAppServer,
    OpenGenerativeUi,
)
from copilot_runtime.extensions.generative_ui.parse import (
    check_agents,
    check_apps,
    parse_a2ui,
    parse_mcp_apps,
    parse_open_generative_ui,
)
from copilot_runtime.extensions.generative_ui.settings import (
    A2uiSettings,
    McpAppServerSettings,
    McpAppsSettings,
    OpenGenerativeUiSettings,
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


_SWITCHES = {"": None, "true": True, "false": False}


def build_a2ui(settings: A2uiSettings) -> A2ui | None:
    """Return the options of A2UI; None if nothing is set.

    Raises `ConfigurationFailed` for a catalog that cannot be read.
    """
    if settings == A2uiSettings():
        return None
    return A2ui(
        enabled=settings.enabled is not False,
        agents=settings.agents or None,
        inject_tool=_SWITCHES.get(settings.inject_tool, settings.inject_tool),
        tool_names=settings.tool_names,
        schema=_read_catalog(settings.catalog),
        default_catalog_id=settings.default_catalog_id or None,
        recovery=A2uiRecovery(
            show_progress_tokens=settings.progress_tokens,
            max_attempts=settings.max_attempts,
            debug_exposure=settings.debug_exposure,
        ),
        cards=settings.cards,
        max_operations=settings.max_operations,
        max_bytes=settings.max_bytes,
    )


def build_mcp_apps(
    settings: McpAppsSettings, http_client: "httpx.AsyncClient | None" = None
) -> McpApps | None:
    """Return the options of MCP Apps; None if nothing is set, or they are switched off.

    Raises `ConfigurationFailed` for servers that cannot be used.
    """
    if settings == McpAppsSettings() or settings.enabled is False:
        return None
    if not settings.servers and not settings.enabled:
        raise ConfigurationFailed(
            "The settings of mcp_apps name no servers.",
            hint="Set mcp_apps.servers, or mcp_apps.enabled for servers that a page names.",
        )
    options = McpApps(
        servers=[_build_server(one, http_client) for one in settings.servers],
        tools=settings.tools,
        uris=settings.uris,
        timeout=settings.timeout,
        max_request_bytes=settings.max_request_bytes,
        max_result_bytes=settings.max_result_bytes,
        max_requests=settings.max_requests,
    )
    check_apps(options)
    return options


def _build_server(
    one: McpAppServerSettings, http_client: "httpx.AsyncClient | None"
) -> McpAppServer:
    server = McpServer(
        one.url, headers=one.headers, transport=one.transport, http_client=http_client
    )
    return McpAppServer(server=server, id=one.id, agent=one.agent or None)


def build_open_generative_ui(settings: OpenGenerativeUiSettings) -> OpenGenerativeUi | None:
    """Return the options of Open Generative UI; None if nothing is set."""
    if settings == OpenGenerativeUiSettings():
        return None
    return OpenGenerativeUi(enabled=settings.enabled, agents=settings.agents or None)


def _read_catalog(path: str | Mapping[str, Any]) -> Any:
    if not path:
        return None
    if not isinstance(path, str):
        return path
    try:
        catalog = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationFailed(
            f"The catalog {path!r} of a2ui cannot be read: {error.strerror or error}."
        ) from error
    except ValueError as error:
        raise ConfigurationFailed(f"The catalog {path!r} of a2ui is not JSON.") from error
    if not isinstance(catalog, dict | list):
        raise ConfigurationFailed(
            f"The catalog {path!r} of a2ui is no object.",
            hint='It is {"catalogId": "...", "components": {"Name": {...}}}.',
        )
    return catalog
