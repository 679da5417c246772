"""The sections of the settings for user interfaces that models make."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from copilot_runtime.config.section import Count, Seconds, Section, Words


def _spell_switch(value: Any) -> Any:
    """Convert YAML's booleans to strings: the other values of the setting are names."""
    return str(value).lower() if isinstance(value, bool) else value


def _read_json(value: Any) -> Any:
    """Parse a string as a JSON object or list: environment variables are strings."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("it begins as JSON does, and is none") from None
    return value


class A2uiSettings(Section):
    """Surfaces that pages draw from data. Where nothing is set, pages with a catalog have them."""

    enabled: bool | None = Field(
        default=None,
        description="Whether agents may draw. Empty: if anything else is set here, or the page "
        "says that it has a catalog.",
    )
    agents: Words = Field(default=(), description="Agents it is for. Empty: all.")
    inject_tool: Annotated[str, BeforeValidator(_spell_switch)] = Field(
        default="",
        description="Whether agents are offered a tool to draw: true, false, or the name it has "
        "instead of render_a2ui. Empty: where the page says that it has a catalog.",
    )
    tool_names: Words = Field(
        default=("render_a2ui",), description="Tools of agents whose calls draw a surface."
    )
    catalog: Annotated[str | Mapping[str, Any], BeforeValidator(_read_json)] = Field(
        default="",
        description="The components that agents may use, in place of the page's: a file of JSON, "
        "or {catalogId: ..., components: {Name: {JSON schema}}}. As JSON in the environment.",
    )
    default_catalog_id: str = Field(
        default="", description="Id of the catalog of surfaces for which no other is known."
    )
    progress_tokens: bool = Field(
        default=True, description="Whether pages see how much of a surface is written."
    )
    max_attempts: Count = Field(
        default=3, description="Most attempts at one surface, as pages show it."
    )
    debug_exposure: Literal["hidden", "collapsed", "verbose"] | None = Field(
        default=None,
        description="How pages show what was wrong with a surface. Empty: they choose.",
    )
    cards: bool = Field(
        default=True,
        description="Whether plans, sources, tables and charts of our agents are surfaces.",
    )
    max_operations: Count = Field(default=1000, description="Most operations in one result.")
    max_bytes: Count = Field(
        default=1_000_000, description="Largest result with operations, in bytes."
    )


class OpenGenerativeUiSettings(Section):
    """Pages that models write, drawn in a sandbox of the page while they are written."""

    enabled: bool = Field(
        default=False, description="Whether what models write with the page's tool is drawn."
    )
    agents: Words = Field(default=(), description="Agents it is for. Empty: all.")


class McpAppServerSettings(Section):
    """An MCP server whose tools have pages."""

    url: str = Field(min_length=1)
    id: str = ""
    agent: str = ""
    transport: Literal["http", "sse"] | None = None
    headers: Mapping[str, str] = Field(default={}, repr=False)

    def __str__(self) -> str:
        """Return the address without possible credentials."""
        return self.url.partition("?")[0].rpartition("@")[2]


_SERVER_KEYS = tuple(McpAppServerSettings.model_fields)


def _list_servers(value: Any) -> Any:
    """Return server mappings; a plain address becomes one, too."""
    value = _read_json(value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError("it is no list, such as [{url: https://mcp.example/mcp, id: weather}]")
    return [_read_server(item) for item in cast("list[Any]", value)]


def _read_server(item: Any) -> Any:
    if isinstance(item, McpAppServerSettings):
        return item
    if isinstance(item, str):
        return {"url": item}
    if not isinstance(item, Mapping):
        raise ValueError("a server is an address, or a mapping with a url")
    fields = cast("Mapping[str, Any]", item)
    if wrong := [key for key in fields if key not in _SERVER_KEYS]:
        raise ValueError(f"a server has no key {wrong[0]!r}: there are {', '.join(_SERVER_KEYS)}")
    if not fields.get("url"):
        raise ValueError("a server has a url, such as https://mcp.example/mcp")
    return {key: field for key, field in fields.items() if field is not None}


class McpAppsSettings(Section):
    """MCP servers whose tools have pages, which clients show in frames."""

    enabled: bool | None = Field(
        default=None,
        description="Whether the pages of tools are shown. True without servers here: those of MCP "
        "servers that a page names. Empty: if there are servers here.",
    )
    servers: Annotated[tuple[McpAppServerSettings, ...], BeforeValidator(_list_servers)] = Field(
        default=(),
        description="Addresses of these servers; or for each a mapping of url, id, agent (for one "
        "alone), transport (http, sse) and headers. As JSON in the environment.",
        repr=False,  # headers may contain a key
    )
    tools: Literal["app", "all"] = Field(
        default="app",
        description="Which tools frames may call: those that their server lets apps call, or all.",
    )
    uris: Words = Field(
        default=("ui://",), description="Beginnings of the URIs of resources that frames may read."
    )
    timeout: Seconds = Field(default=30, description="Seconds that one request to a server takes.")
    max_request_bytes: Count = Field(
        default=1_000_000, description="Largest request of a frame, in bytes."
    )
    max_result_bytes: Count = Field(
        default=4_000_000, description="Largest answer of a server, in bytes."
    )
    max_requests: float = Field(
        default=20,
        gt=0,
        allow_inf_nan=False,
        description="Most requests of the frames of one user in a second. Whoever has not signed "
        "in is known by the address of the connection.",
    )
