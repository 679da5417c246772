"""Parse the options of generative UI, in our format or that of the Node runtime."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import combinations
from typing import Any, TypeVar, cast, get_args
from urllib.parse import urlsplit

from copilot_runtime.api.argument_checks import check_items, check_list, describe, find_url
from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.extensions.generative_ui.options import (
    A2ui,
    A2uiRecovery,
    DebugExposure,
    GenerativeUi,
    McpApps,
    McpAppServer,
    OpenGenerativeUi,
)
from copilot_runtime.extensions.mcp.client.server import McpServer

_LEAST_SIMILARITY = 0.6


def is_names(value: object) -> bool:
    """Return `True` if a value is a list of non-empty strings."""
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(item, str) and item for item in cast("list[object]", value))


def _is_texts(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    items = cast("Mapping[object, object]", value).items()
    return all(isinstance(text, str) for item in items for text in item)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


FORMS: Mapping[str, Callable[[object], bool]] = {
    "true or false": lambda value: isinstance(value, bool),
    "true, false or the name of the tool": lambda value: (
        isinstance(value, bool) or (isinstance(value, str) and value != "")
    ),
    "a text": lambda value: isinstance(value, str),
    "a number from 1 on": _is_count,
    "a list": lambda value: isinstance(value, list | tuple),
    "a list of names": is_names,
    "a catalog": lambda value: isinstance(value, Mapping | list | tuple),
    "an object": lambda value: isinstance(value, Mapping),
    "an object of texts": _is_texts,
}
"""The accepted forms of values: description and check."""


@dataclass(frozen=True, slots=True)
class OptionShape:
    """The keys of a mapping: key to (field of our options, form), and hints for unknown keys."""

    place: str
    keys: Mapping[str, tuple[str, str]]
    hints: Mapping[str, str] = field(default_factory=dict[str, str])

    def read(self, value: object) -> dict[str, Any]:
        """Return the fields of our options; `None` counts as missing.

        Raises `ConfigurationFailed` if the value is not a mapping, or for an unknown key or an
        invalid value.
        """
        if not isinstance(value, Mapping):
            raise ConfigurationFailed(f"{self.place} is {describe(value)}, and not an object.")
        fields: dict[str, Any] = {}
        for key, item in cast("Mapping[object, Any]", value).items():
            if key not in self.keys:
                raise self._build_error(str(key))
            name, form = self.keys[cast("str", key)]
            if item is None:
                continue
            if not FORMS[form](item):
                raise ConfigurationFailed(f"{key!r} of {self.place} is not {form}.")
            fields[name] = item
        return fields

    def _build_error(self, key: str) -> ConfigurationFailed:
        hint = self.hints.get(key)
        # our own names are accepted in Node's spelling; `injectA2UiTool` is `injectA2UITool`
        spellings = {_fold(own): name for name, (own, _) in self.keys.items()}
        spellings |= {_fold(name): name for name in self.keys}
        close = get_close_matches(_fold(key), spellings, n=1, cutoff=_LEAST_SIMILARITY)
        guess = f"Did you mean {spellings[close[0]]!r}?" if close and hint is None else ""
        way_out = guess or f"Known: {', '.join(self.keys)}."
        return ConfigurationFailed(f"{self.place} has no key {key!r}. {way_out}", hint=hint)


def _fold(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


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
    """Return the options of A2UI. Raises `ConfigurationFailed` for an invalid value.

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
    """Return the options of MCP Apps. Raises `ConfigurationFailed` for an invalid value.

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
    """Check the agent names in the options against `names`, the names of all agents.

    Raises `UnknownName` for an MCP server with an unknown agent. Other options with an unknown
    agent match nothing, as in Node, which is logged.
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
    """Return an MCP server from a mapping in Node's format."""
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


def check_names(place: str, **options: object) -> None:
    """Raise `ConfigurationFailed` if an option is not a list of names, but a single one."""
    for option, names in options.items():
        if names is not None and not is_names(names):
            hint = f"Write {option}=[{names!r}]." if isinstance(names, str) else None
            raise ConfigurationFailed(f"{option!r} of {place} is not a list of names.", hint=hint)


def check_apps(options: McpApps) -> None:
    """Raise `ConfigurationFailed` for options of MCP Apps that would allow more than intended."""
    check_servers(options.servers)
    check_list("uris", options.uris, "'ui://'", Sequence)
    check_items("uris", options.uris, str, "")
    if options.tools not in ("app", "all"):
        raise ConfigurationFailed(f"tools is {options.tools!r}.", hint="It is 'app' or 'all'.")
    for name in ("timeout", "max_request_bytes", "max_result_bytes", "max_requests"):
        value = getattr(options, name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            text = value if isinstance(value, int | float) else describe(value)
            raise ConfigurationFailed(
                f"{name} is {text}, and not a number above 0.", hint=f"Write McpApps({name}=...)."
            )


def check_servers(servers: Sequence[McpAppServer]) -> None:
    """Raise `ConfigurationFailed` for unusable or indistinguishable servers."""
    for one in check_list("servers", servers, "McpAppServer(server=McpServer(url))", Sequence):
        if not isinstance(one, McpAppServer):
            raise ConfigurationFailed(
                f"servers has an item that is {describe(one)}.",
                hint=f"Write servers=[McpAppServer(server=McpServer({find_url(one)!r}))].",
            )
    for one in servers:
        server = one.server
        if server.command:
            raise ConfigurationFailed(
                f"The MCP server {server.label!r} is a command, and has no interfaces for pages.",
                hint="MCP Apps are for servers with a URL; a command is for mcp_servers=[...].",
            )
        parts = urlsplit(server.url)
        if parts.username is not None or parts.password is not None:
            raise ConfigurationFailed(
                f"The address of the MCP server {server.label!r} has a user or password in it.",
                hint="Write McpServer(url, headers={'authorization': ...}).",
            )
    for first, second in combinations(servers, 2):
        if None not in (first.agent, second.agent) and first.agent != second.agent:
            continue  # their agents never share a run
        same_endpoint = (first.server.url, first.server.uses_sse) == (
            second.server.url,
            second.server.uses_sse,
        )
        if first.id and first.id == second.id:
            raise ConfigurationFailed(f"Two servers of MCP Apps have the id {first.id!r}.")
        if same_endpoint and not (first.id and second.id):
            raise ConfigurationFailed(
                f"The MCP server {first.server.label!r} is there twice, at the same address.",
                hint="Give each an id of its own: McpAppServer(id=...), in Node's form serverId.",
            )
