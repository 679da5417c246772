"""What an operator says of user interfaces that models make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from copilot_runtime.extensions.mcp.client.server import McpServer

DebugExposure = Literal["hidden", "collapsed", "verbose"]
"""How much of what was wrong with a surface a page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class A2uiRecovery:
    """What a page sees of surfaces that a model has to write again.

    `max_attempts` counts the first one. `debug_exposure` is copied into what the page gets.
    """

    show_progress_tokens: bool = True
    max_attempts: int = 3
    debug_exposure: DebugExposure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class A2ui:
    """A2UI: surfaces that a page draws from data, with components of its catalog.

    `agents` are the names of those it is for; None is all. `inject_tool` offers the tool
    `render_a2ui` to agents, or one of that name; None: where the page says that it has a catalog.
    Calls of the tools in `tool_names` become surfaces while their arguments come. `schema` is a
    catalog, `{catalogId, components: {Name: JSON schema}}`: agents get it in place of the page's,
    and what they write is compared with it. With `cards`, tables, charts, plans and sources of our
    own agents are surfaces, too. `max_operations` and `max_bytes` bound one result.
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
    """An MCP server with user interfaces, for pages by its `id`, and for one `agent` or for all."""

    server: McpServer
    id: str = ""
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpApps:
    """MCP Apps: tools of MCP servers whose results a page shows in a frame.

    What a frame may ask of its server by way of the page: the tools in `tools`, `app` being those
    that the server has made visible to apps and `all` every tool; and resources whose URI begins
    with one of `uris`. `timeout` is in seconds, sizes in bytes; `max_requests` is per user and
    second.
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
    """Open Generative UI: pages that a model writes, drawn in a sandbox while it writes them.

    `agents` are the names of those it is for; None is all.
    """

    enabled: bool = True
    agents: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeUi:
    """All three together; None: not set by the operator."""

    a2ui: A2ui | None = None
    mcp_apps: McpApps | None = None
    open_generative_ui: OpenGenerativeUi | None = None
