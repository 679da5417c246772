"""Builds the middleware of what an operator has set."""

from collections.abc import Sequence

from copilot_runtime.api.agent import Middleware
from copilot_runtime.extensions.generative_ui.a2ui.clicks import ReadRuns
from copilot_runtime.extensions.generative_ui.a2ui.middleware import A2uiMiddleware
from copilot_runtime.extensions.generative_ui.cards.middleware import CardMiddleware
from copilot_runtime.extensions.generative_ui.mcp_apps.middleware import McpAppsMiddleware
from copilot_runtime.extensions.generative_ui.mcp_apps.proxy import AppProxy
from copilot_runtime.extensions.generative_ui.mcp_apps.tokens import LoadSecret
from copilot_runtime.extensions.generative_ui.open_generative_ui.middleware import (
    OpenGenerativeUiMiddleware,
)
from copilot_runtime.extensions.generative_ui.options import GenerativeUi
from copilot_runtime.extensions.mcp.client.allowlist import McpAllowlist
from copilot_runtime.telemetry import NO_TELEMETRY, Telemetry


def build_middleware(
    options: GenerativeUi,
    allowed: McpAllowlist | None = None,
    load_secret: LoadSecret | None = None,
    telemetry: Telemetry = NO_TELEMETRY,
    read_runs: ReadRuns | None = None,
) -> Sequence[Middleware]:
    """Return the middleware of a runtime, the innermost first.

    A2UI is always there, for pages that bring a catalog of their own, unless it is switched off.
    MCP Apps are there if the operator has set them: with servers, or for those that a request may
    name by `allowed`. `load_secret` returns what tokens for servers are made with, and `read_runs`
    the runs of a thread.
    """
    found: list[Middleware] = []
    if (pages := options.open_generative_ui) is not None and pages.enabled:
        found.append(OpenGenerativeUiMiddleware(pages))
    if (apps := options.mcp_apps) is not None and (apps.servers or (allowed and allowed.any)):
        found.append(McpAppsMiddleware(apps, allowed, load_secret, telemetry))
    if options.a2ui is None or options.a2ui.enabled:
        found += [CardMiddleware(options.a2ui), A2uiMiddleware(options.a2ui, read_runs)]
    return found


def find_app_proxy(middleware: Sequence[Middleware]) -> AppProxy | None:
    """Return what answers MCP apps in frames, if there is one."""
    return next((one.proxy for one in middleware if isinstance(one, McpAppsMiddleware)), None)
