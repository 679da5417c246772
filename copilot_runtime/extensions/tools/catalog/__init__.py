"""Tools that an operator writes in YAML: what a model is told, and an endpoint that is called."""

from copilot_runtime.extensions.tools.catalog.catalog import (
    Reachability,
    ToolCatalog,
    ToolDescription,
    ToolResult,
)

__all__ = ["Reachability", "ToolCatalog", "ToolDescription", "ToolResult"]
