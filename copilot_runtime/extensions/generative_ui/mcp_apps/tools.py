"""MCP tools whose results are displayed in frames."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mcp_types import Tool

from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_object, as_text
from copilot_runtime.extensions.generative_ui.options import McpAppServer
from copilot_runtime.extensions.mcp.client.tools import (
    MAX_DESCRIPTION,
    is_selected,
    name_tools,
)


class UiTool(NamedTuple):
    """A tool for frames, or a tool with a user interface at `uri`."""

    server: McpAppServer
    tool: str
    """The name of the tool on its server."""
    name: str
    """The name of the tool for models."""
    description: str
    parameters: Mapping[str, Any]
    uri: str
    visibility: frozenset[str]
    """The parties that may call it: `model` and `app`."""

    @property
    def is_for_models(self) -> bool:
        """`True` if models may call it, and it has a user interface."""
        return "model" in self.visibility and bool(self.uri)

    @property
    def is_for_apps(self) -> bool:
        """`True` if frames of its server may call it."""
        return "app" in self.visibility


def read_tools(server: McpAppServer, tools: Sequence[Tool]) -> Sequence[UiTool]:
    """Return the operator's selection of a server's tools for frames or with an interface.

    Specification: https://github.com/modelcontextprotocol/ext-apps, `_meta.ui` of a tool.
    """
    selected = [tool for tool in tools if is_selected(server.server, tool)]
    names = name_tools(server.server, selected)
    read = (_read_tool(server, tool, names[tool.name]) for tool in selected)
    return [one for one in read if one is not None]


def _read_tool(server: McpAppServer, tool: Tool, name: str) -> UiTool | None:
    meta = as_object(tool.meta)
    ui = as_object(meta.get("ui"))
    uri = as_text(ui.get("resourceUri")) or as_text(meta.get("ui/resourceUri"))
    visibility = _read_visibility(ui)
    if not uri and not ("visibility" in ui and "app" in visibility):
        return None
    return UiTool(
        server=server,
        tool=tool.name,
        name=name,
        description=(tool.description or "")[:MAX_DESCRIPTION],
        parameters=tool.input_schema or {"type": "object", "properties": {}},
        uri=uri,
        visibility=visibility,
    )


def _read_visibility(ui: JsonObject) -> frozenset[str]:
    """Return the parties that may call a tool; both if it does not specify them."""
    if "visibility" not in ui:
        return frozenset({"model", "app"})
    return frozenset(map(as_text, as_list(ui["visibility"])))
