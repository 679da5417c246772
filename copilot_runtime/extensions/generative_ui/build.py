"""Build the generative-UI middleware from the options of arguments and settings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copilot_runtime.api.agent import Middleware
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.generative_ui.a2ui.clicks import ReadRuns
from copilot_runtime.extensions.generative_ui.a2ui.middleware import A2uiMiddleware
from copilot_runtime.extensions.generative_ui.cards import CardMiddleware
from copilot_runtime.extensions.generative_ui.mcp_apps.middleware import McpAppsMiddleware
from copilot_runtime.extensions.generative_ui.mcp_apps.proxy import AppProxy
from copilot_runtime.extensions.generative_ui.mcp_apps.tokens import LoadSecret
from copilot_runtime.extensions.generative_ui.open_generative_ui import (
    OpenGenerativeUiMiddleware,
)
from copilot_runtime.extensions.generative_ui.options import (
    A2ui,
    A2uiRecovery,
    GenerativeUi,
    McpApps,
    McpAppServer,
    OpenGenerativeUi,
)
from copilot_runtime.extensions.generative_ui.parse import check_apps
from copilot_runtime.extensions.generative_ui.settings import (
    A2uiSettings,
    McpAppServerSettings,
    McpAppsSettings,
    OpenGenerativeUiSettings,
)
from copilot_runtime.extensions.mcp.client.server import McpAllowlist
from copilot_runtime.extensions.mcp.client.source import McpServer
from copilot_runtime.telemetry import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    import httpx


def build_middleware(
    options: GenerativeUi,
    allowed: McpAllowlist | None = None,
    load_secret: LoadSecret | None = None,
    telemetry: Telemetry = NO_TELEMETRY,
    read_runs: ReadRuns | None = None,
) -> Sequence[Middleware]:
    """Return the middleware of a runtime, innermost first.

    A2UI is always included, for frontends with their own catalog, unless it is disabled. MCP Apps
    are included if the operator configured servers, or `allowed` servers that a request may name.
    `load_secret` returns the signing key for server tokens, and `read_runs` the runs of a thread.
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
    """Return the proxy for MCP apps in frames, or `None`."""
    return next((one.proxy for one in middleware if isinstance(one, McpAppsMiddleware)), None)


_SWITCHES = {"": None, "true": True, "false": False}


def build_a2ui(settings: A2uiSettings) -> A2ui | None:
    """Return the options of A2UI, or `None` if nothing is configured.

    Raises `ConfigurationFailed` for an invalid catalog.
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
    """Return the options of MCP Apps, or `None` if they are not configured or disabled.

    Raises `ConfigurationFailed` for invalid servers.
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
    """Return the options of Open Generative UI, or `None` if nothing is configured."""
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
