"""Actions: the functions and tools that a model may call."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from copilot_runtime.actions.functions import action as action

SOURCES: dict[str, str] = {
    "langserve": "copilot_runtime.extensions.frameworks.langserve:langserve_actions",
    "mcp": "copilot_runtime.extensions.mcp.client:mcp_actions",
}
"""Name → import string of every kind of action source in this package."""


def __getattr__(name: str) -> Any:
    if name == "action":  # loaded when used: it brings pydantic along
        from copilot_runtime.actions.functions import action

        return action
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
