"""MCP servers whose tools are actions, and our actions as an MCP server."""

from collections.abc import Sequence

from copilot_runtime.api.argument_checks import check_items, check_list
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.extensions.mcp.client.source import (
    AllowRule,
    McpActions,
    McpAllowlist,
    McpServer,
)
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.security.loopback import LoopbackGuard


class McpExtension(Extension):
    """Adds the tools of MCP servers, of the program, the settings, and those that a page names."""

    name = "mcp"
    requires = ("knowledge",)
    options = ("mcp_servers", "mcp_allowed")

    def __init__(self) -> None:
        self._actions: McpActions | None = None
        self._guard: LoopbackGuard | None = None

    def build(self, core: Core) -> Contribution:
        servers: Sequence[McpServer] = core.options.get("mcp_servers") or ()
        check_list("mcp_servers", servers, "McpServer(url)")
        check_items("mcp_servers", servers, McpServer, "McpServer")
        allowed = build_allowlist(servers, core.options.get("mcp_allowed") or (), core)
        self._actions = McpActions(allowed) if allowed.any else None
        self._guard = core.guard
        return Contribution(
            parts={McpAllowlist: allowed},
            sources=[self._actions] if self._actions is not None else [],
            stages=[allowed],
            transports=["mcp"] if narrow_settings(core.settings).serve_mcp else [],
        )

    def find_failing_checks(self) -> Sequence[str]:
        problems = self._actions.list_problems() if self._actions is not None else ()
        if self._guard is not None and self._guard.has_login:  # strangers learn no names of tools
            return ["tools"] if problems else ()
        return [f"tools: {problem}" for problem in problems]


def build_allowlist(servers: Sequence[McpServer], allowed: AllowRule, core: Core) -> McpAllowlist:
    """Return the MCP servers of the program and of the settings, and which a page may name."""
    section = narrow_settings(core.settings).mcp
    listed = [McpServer(url, http_client=core.http_client) for url in section.servers]
    if not callable(allowed) and not isinstance(allowed, str):
        allowed = [*allowed, *section.allowed]
    templates = () if callable(allowed) else (one for one in allowed if isinstance(one, McpServer))
    for one in (*servers, *listed, *templates):
        REDACTOR.learn({"url": one.url, "headers": one.headers, "env": one.env})
    return McpAllowlist(allowed, [*servers, *listed])
