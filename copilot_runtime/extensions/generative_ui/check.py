"""Checks options before the first request."""

from collections.abc import Sequence
from itertools import combinations
from urllib.parse import urlsplit

from copilot_runtime.app.argument_checks import check_items, check_list, describe, find_url
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.generative_ui.options import McpApps, McpAppServer
from copilot_runtime.extensions.generative_ui.shape import is_names


def check_names(place: str, **options: object) -> None:
    """Raise `ConfigurationFailed` for an option that is no list of names, such as its only one."""
    for option, names in options.items():
        if names is not None and not is_names(names):
            hint = f"Write {option}=[{names!r}]." if isinstance(names, str) else None
            raise ConfigurationFailed(f"{option!r} of {place} is not a list of names.", hint=hint)


def check_apps(options: McpApps) -> None:
    """Raise `ConfigurationFailed` for options of MCP Apps that would allow what is not meant."""
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
    """Raise `ConfigurationFailed` for servers that a page could not use, or not tell apart."""
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
            continue  # no run has both
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
