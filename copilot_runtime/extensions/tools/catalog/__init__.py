"""Tools defined in YAML: a description for models, and an endpoint."""

from copilot_runtime.extensions.tools.catalog.catalog import (
    Reachability,
    ToolCatalog,
    ToolDescription,
    ToolResult,
)

__all__ = ["Reachability", "ToolCatalog", "ToolDescription", "ToolResult"]
