"""The generative UI extension: A2UI surfaces, MCP Apps, and sandboxed pages written by models."""

from typing import Any

from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.generative_ui.build import (
    build_a2ui,
    build_mcp_apps,
    build_middleware,
    build_open_generative_ui,
    find_app_proxy,
)
from copilot_runtime.extensions.generative_ui.options import A2ui, GenerativeUi
from copilot_runtime.extensions.generative_ui.parse import (
    check_agents,
    parse_a2ui,
    parse_mcp_apps,
    parse_open_generative_ui,
)
from copilot_runtime.extensions.mcp.client.source import McpAllowlist
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.transports.agui.decode import AppRequests
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.transport import Services


class GenerativeUiExtension(Extension):
    """Adds the middleware for the options of the program, or else of the settings."""

    name = "generative_ui"
    requires = ("mcp",)
    options = ("a2ui", "mcp_apps", "open_generative_ui")

    def build(self, core: Core) -> Contribution:
        self._options = build_options(core)
        middleware = build_middleware(
            self._options,
            core.parts.get(McpAllowlist),
            core.load_secret,
            core.telemetry,
            lambda key: core.conversations.runs(key),
        )
        found: dict[type, Any] = {GenerativeUi: self._options}
        if (proxy := find_app_proxy(middleware)) is not None:
            found[AppRequests] = proxy
        pages = self._options.open_generative_ui
        return Contribution(
            parts=found,
            middleware=middleware,
            info={
                **_describe_a2ui(self._options.a2ui),
                "openGenerativeUIEnabled": pages is not None and pages.enabled,
            },
        )

    def connect(self, core: Core, services: Services, authenticator: Authenticator) -> None:  # noqa: ARG002
        agents = core.conversations.runtime.agents
        if not callable(agents):  # otherwise some are only known once a request arrives
            check_agents(self._options, [*agents, DEFAULT_AGENT])


def build_options(core: Core) -> GenerativeUi:
    """Return the program's options, completed by those of the settings.

    Raises `ConfigurationFailed` for invalid options.
    """
    settings, options = narrow_settings(core.settings), core.options
    a2ui, mcp_apps = options.get("a2ui"), options.get("mcp_apps")
    pages = options.get("open_generative_ui")
    return GenerativeUi(
        a2ui=build_a2ui(settings.a2ui) if a2ui is None else parse_a2ui(a2ui),
        mcp_apps=build_mcp_apps(settings.mcp_apps, core.http_client)
        if mcp_apps is None
        else parse_mcp_apps(mcp_apps),
        open_generative_ui=build_open_generative_ui(settings.open_generative_ui)
        if pages is None
        else parse_open_generative_ui(pages),
    )


def _describe_a2ui(a2ui: A2ui | None) -> dict[str, Any]:
    """Return the A2UI fields of `/info`.

    Frontends with their own catalog can use A2UI without them.
    """
    if a2ui is None or not a2ui.enabled:
        return {"a2uiEnabled": False}
    scope = {} if a2ui.agents is None else {"agents": list(a2ui.agents)}
    return {"a2uiEnabled": True, "a2ui": {"enabled": True, **scope}}
