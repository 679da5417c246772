"""Builds the middleware of what an operator has set."""

from collections.abc import Sequence

from copilot_runtime.generative_ui.a2ui.middleware import A2uiMiddleware
from copilot_runtime.generative_ui.cards.middleware import CardMiddleware
from copilot_runtime.generative_ui.mcp_apps.middleware import McpAppsMiddleware
from copilot_runtime.generative_ui.mcp_apps.proxy import AppProxy
from copilot_runtime.generative_ui.open_generative_ui.middleware import OpenGenerativeUiMiddleware
from copilot_runtime.generative_ui.options import GenerativeUi
from copilot_runtime.interfaces import Middleware


def build_middleware(options: GenerativeUi, secret: str = "") -> Sequence[Middleware]:
    """Return the middleware of a runtime, the innermost first.

    A2UI is always there, for pages that bring a catalog of their own, unless it is switched off.
    """
    found: list[Middleware] = []
    if (pages := options.open_generative_ui) is not None and pages.enabled:
        found.append(OpenGenerativeUiMiddleware(pages))
    if options.mcp_apps is not None and options.mcp_apps.servers:
        found.append(McpAppsMiddleware(options.mcp_apps, secret.encode()))
    if options.a2ui is None or options.a2ui.enabled:
        found += [CardMiddleware(options.a2ui), A2uiMiddleware(options.a2ui)]
    return found


def find_app_proxy(middleware: Sequence[Middleware]) -> AppProxy | None:
    """Return what answers MCP apps in frames, if there is one."""
    return next((one.proxy for one in middleware if isinstance(one, McpAppsMiddleware)), None)
