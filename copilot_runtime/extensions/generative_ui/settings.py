"""The settings sections of generative user interfaces."""

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
            raise ValueError("it starts like JSON, but is not valid JSON") from None
    return value


class A2uiSettings(Section):
    """A2UI surfaces, drawn by frontends. By default, frontends with a catalog have them."""

    enabled: bool | None = Field(
        default=None,
        description="Whether agents may draw surfaces. Empty: if another setting here is set, or "
        "the frontend sends a catalog.",
    )
    agents: Words = Field(default=(), description="Agents it is for. Empty: all.")
    inject_tool: Annotated[str, BeforeValidator(_spell_switch)] = Field(
        default="",
        description="Whether agents get a rendering tool: true, false, or its name instead of "
        "render_a2ui. Empty: if the frontend sends a catalog.",
    )
    tool_names: Words = Field(
        default=("render_a2ui",), description="Tools whose calls draw a surface."
    )
    catalog: Annotated[str | Mapping[str, Any], BeforeValidator(_read_json)] = Field(
        default="",
        description="Catalog in place of the frontend's: a JSON file, or {catalogId: ..., "
        "components: {Name: {JSON schema}}}.",
    )
    default_catalog_id: str = Field(default="", description="Catalog of surfaces that name none.")
    progress_tokens: bool = Field(
        default=True, description="Whether frontends get the progress of unfinished surfaces."
    )
    max_attempts: Count = Field(
        default=3, description="Most attempts at a surface, as pages show it."
    )
    debug_exposure: Literal["hidden", "collapsed", "verbose"] | None = Field(
        default=None,
        description="How frontends show errors of surfaces. Empty: their default.",
    )
    cards: bool = Field(
        default=True,
        description="Whether plans, sources, tables and charts of our agents are surfaces.",
    )
    max_operations: Count = Field(default=1000, description="Most operations in a result.")
    max_bytes: Count = Field(default=1_000_000, description="Largest result with operations.")


class OpenGenerativeUiSettings(Section):
    """HTML pages written by models, which frontends render in a sandbox while they are streamed."""

    enabled: bool = Field(
        default=False,
        description="Whether pages that models write are rendered.",
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
    """Return a list of server mappings; a plain URL is converted to a mapping."""
    value = _read_json(value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError("it is not a list, such as [{url: https://mcp.example/mcp, id: weather}]")
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
    """MCP Apps: servers whose tools have pages, which clients show in frames."""

    enabled: bool | None = Field(
        default=None,
        description="Whether to show pages of tools. With true and no servers here, those of "
        "MCP servers that a frontend names. Empty: if there are servers here.",
    )
    servers: Annotated[tuple[McpAppServerSettings, ...], BeforeValidator(_list_servers)] = Field(
        default=(),
        description="URLs of these servers, or mappings of url, id, agent (the only one that "
        "uses it), transport (http, sse) and headers.",
        repr=False,  # headers may contain a key
    )
    tools: Literal["app", "all"] = Field(
        default="app",
        description="Tools that frames may call: those offered to apps, or all.",
    )
    uris: Words = Field(
        default=("ui://",), description="Prefixes of resources that frames may read."
    )
    timeout: Seconds = Field(default=30, description="Seconds for a request to a server.")
    max_request_bytes: Count = Field(default=1_000_000, description="Largest request of a frame.")
    max_result_bytes: Count = Field(default=4_000_000, description="Largest response of a server.")
    max_requests: float = Field(
        default=20,
        gt=0,
        allow_inf_nan=False,
        description="Most requests per second from a user's frames. Anonymous users are told "
        "apart by address.",
    )
