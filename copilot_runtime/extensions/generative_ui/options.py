"""Options of generative UI."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from copilot_runtime.extensions.mcp.client.server import McpServer

DebugExposure = Literal["hidden", "collapsed", "verbose"]
"""Detail level of errors that a frontend displays for a rejected surface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class A2uiRecovery:
    """How a frontend displays surfaces that a model has to write again.

    `max_attempts` includes the first attempt. `debug_exposure` is passed on to the frontend.
    """

    show_progress_tokens: bool = True
    max_attempts: int = 3
    debug_exposure: DebugExposure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class A2ui:
    """A2UI: surfaces that a frontend draws from data, with the components of its catalog.

    `agents` are the names of the agents with A2UI; `None` means all. `inject_tool` offers the tool
    `render_a2ui` (or one of the given name) to agents; `None` offers it if the frontend has a
    catalog. Calls of the tools in `tool_names` become surfaces while their arguments stream in.
    `schema` is a catalog, `{catalogId, components: {Name: JSON schema}}`: it replaces the
    frontend's, and surfaces are validated against it. With `cards`, tables, charts, plans and
    sources of our own agents become surfaces, too. `max_operations` and `max_bytes` limit one
    result.
    """

    enabled: bool = True
    agents: Sequence[str] | None = None
    inject_tool: bool | str | None = None
    tool_names: Sequence[str] = ("render_a2ui",)
    schema: Mapping[str, Any] | Sequence[Any] | None = None
    default_catalog_id: str | None = None
    recovery: A2uiRecovery = A2uiRecovery()
    cards: bool = True
    max_operations: int = 1_000
    max_bytes: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class McpAppServer:
    """An MCP server with user interfaces; frontends know it by its `id`.

    It is for one `agent`, or for all.
    """

    server: McpServer
    id: str = ""
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpApps:
    """MCP Apps: tools of MCP servers whose results a frontend displays in a frame.

    A frame may call the tools in `tools` through the frontend (`app` allows those that the server
    makes visible to apps, and `all` every tool), and read resources whose URI starts with one of
    `uris`. `timeout` is in seconds, sizes are in bytes; `max_requests` is per user and second.
    """

    servers: Sequence[McpAppServer] = ()
    tools: Literal["app", "all"] = "app"
    uris: Sequence[str] = ("ui://",)
    timeout: float = 30.0
    max_request_bytes: int = 1_000_000
    max_result_bytes: int = 4_000_000
    max_requests: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGenerativeUi:
    """Open Generative UI: pages that a model writes, drawn in a sandbox as they are written.

    `agents` are the names of the agents that may write pages; `None` means all.
    """

    enabled: bool = True
    agents: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeUi:
    """The options of all three; each is `None` if it is not configured."""

    a2ui: A2ui | None = None
    mcp_apps: McpApps | None = None
    open_generative_ui: OpenGenerativeUi | None = None
