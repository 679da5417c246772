"""Reads the options of user interfaces, in our form or in that of the Node runtime."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from copilot_runtime.app.argument_checks import check_items, check_list, describe
from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.extensions.generative_ui.check import check_apps, check_names
from copilot_runtime.extensions.generative_ui.options import (
    A2ui,
    A2uiRecovery,
    DebugExposure,
    GenerativeUi,
    McpApps,
    McpAppServer,
    OpenGenerativeUi,
)
from copilot_runtime.extensions.generative_ui.shape import OptionShape
from copilot_runtime.extensions.mcp.client.server import McpServer

logger = logging.getLogger(__name__)

T = TypeVar("T")

_A2UI = OptionShape(
    "a2ui",
    {
        "enabled": ("enabled", "true or false"),
        "agents": ("agents", "a list of names"),
        "injectA2UITool": ("inject_tool", "true, false or the name of the tool"),
        "a2uiToolNames": ("tool_names", "a list of names"),
        "schema": ("schema", "a catalog"),
        "defaultCatalogId": ("default_catalog_id", "a text"),
        "recovery": ("recovery", "an object"),
    },
)
_RECOVERY = OptionShape(
    "a2ui.recovery",
    {
        "showProgressTokens": ("show_progress_tokens", "true or false"),
        "maxAttempts": ("max_attempts", "a number from 1 on"),
        "debugExposure": ("debug_exposure", "a text"),
    },
)
_MCP_APPS = OptionShape("mcp_apps", {"servers": ("servers", "a list")})
_PAGES = OptionShape(
    "open_generative_ui",
    {"enabled": ("enabled", "true or false"), "agents": ("agents", "a list of names")},
)
_SERVER_KEYS = {
    "type": ("transport", "a text"),
    "url": ("url", "a text"),
    "serverId": ("id", "a text"),
    "agentId": ("agent", "a text"),
    "headers": ("headers", "an object of texts"),
}
_SERVER_HINTS = {
    **dict.fromkeys(
        ("includeTools", "excludeTools"),
        "Node refuses it, too. What a page may call is McpApps(tools=..., uris=...).",
    ),
    **dict.fromkeys(
        ("command", "args", "env"),
        "A program that is started cannot have interfaces for pages. It is for mcp_servers=[...].",
    ),
}


def parse_a2ui(value: A2ui | Mapping[str, Any] | bool | None) -> A2ui | None:
    """Return the options of A2UI. Raises `ConfigurationFailed` for what cannot be used.

    A mapping has the keys of `a2ui` in the Node runtime 1.75.
    """
    if isinstance(value, Mapping):
        fields = _A2UI.read(value)
        if isinstance(recovery := fields.get("recovery"), Mapping):
            fields["recovery"] = _parse_recovery(recovery)
        return A2ui(**fields)
    if isinstance(value, bool):
        return A2ui(enabled=value)
    options = _expect(value, A2ui, "a2ui")
    if options is not None:
        check_names("a2ui", agents=options.agents, tool_names=options.tool_names)
    return options


def parse_mcp_apps(
    value: McpApps | Sequence[McpServer] | Mapping[str, Any] | None,
) -> McpApps | None:
    """Return the options of MCP Apps. Raises `ConfigurationFailed` for what cannot be used.

    A mapping has the keys of `mcpApps` in the Node runtime 1.75.
    """
    if isinstance(value, Mapping):
        servers = _MCP_APPS.read(value).get("servers", ())
        options = McpApps(servers=[*map(_parse_server, range(len(servers)), servers)])
    elif isinstance(value, McpApps) or value is None:
        options = value
    else:
        check_list("mcp_apps", value, "McpServer(url)", Sequence)
        check_items("mcp_apps", value, McpServer, "McpServer")
        options = McpApps(servers=[McpAppServer(server=one) for one in value])
    if options is not None:
        check_apps(options)
    return options


def parse_open_generative_ui(
    value: OpenGenerativeUi | Mapping[str, Any] | bool | None,
) -> OpenGenerativeUi | None:
    """Return the options of Open Generative UI. Raises `ConfigurationFailed`.

    A mapping has the keys of `openGenerativeUI` in the Node runtime 1.75.
    """
    if isinstance(value, Mapping):
        return OpenGenerativeUi(**_PAGES.read(value))
    if isinstance(value, bool):
        return OpenGenerativeUi(enabled=value)
    options = _expect(value, OpenGenerativeUi, "open_generative_ui")
    if options is not None:
        check_names("open_generative_ui", agents=options.agents)
    return options


def check_agents(options: GenerativeUi, names: Iterable[str]) -> None:
    """Compare the agents in the options with `names`, which are all there are.

    Raises `UnknownName` for a server whose agent is none of them. A scope with another name is as
    in Node: it is for nobody, which is logged.
    """
    agents = {*names}
    for server in options.mcp_apps.servers if options.mcp_apps else ():
        if server.agent is not None and server.agent not in agents:
            raise UnknownName("agent", server.agent, agents)
    for key, scope in (("a2ui", options.a2ui), ("open_generative_ui", options.open_generative_ui)):
        for name in (scope and scope.agents) or ():
            if name not in agents:
                logger.warning("%s is for the agent %r, which is not there.", key, name)


def _parse_recovery(value: Mapping[Any, Any]) -> A2uiRecovery:
    fields = _RECOVERY.read(value)
    exposure = fields.get("debug_exposure")
    if exposure is not None and exposure not in get_args(DebugExposure):
        raise ConfigurationFailed(
            f"'debugExposure' of a2ui.recovery is {exposure!r}.",
            hint=f"It is one of {', '.join(get_args(DebugExposure))}.",
        )
    return A2uiRecovery(**fields)


def _parse_server(number: int, value: object) -> McpAppServer:
    """Return one of the servers of a mapping of Node's."""
    place = f"mcp_apps.servers[{number}]"
    fields = OptionShape(place, _SERVER_KEYS, _SERVER_HINTS).read(value)
    if not fields.get("url"):
        raise ConfigurationFailed(
            f"{place} has no 'url'.", hint="It is {'type': 'http', 'url': 'https://...'}."
        )
    if fields.get("transport", "http") not in ("http", "sse"):
        raise ConfigurationFailed(
            f"'type' of {place} is {fields['transport']!r}.",
            hint="It is 'http' or 'sse': programs that are started cannot have interfaces.",
        )
    server = McpServer(
        fields["url"],
        headers=fields.get("headers", {}),
        transport=fields.get("transport", "http"),
    )
    return McpAppServer(server=server, id=fields.get("id", ""), agent=fields.get("agent"))


def _expect(value: object, kind: type[T], name: str) -> T | None:
    if value is None or isinstance(value, kind):
        return value
    raise ConfigurationFailed(
        f"{name} is {describe(value)}.",
        hint=f"Write {name}=True, {name}={kind.__name__}(...), or the mapping of the Node runtime.",
    )
