"""A self-hosted CopilotKit runtime: one ASGI application for an unchanged React front end.

Importing this package loads no provider and no server; each name is loaded when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from copilot_runtime.actions import action
    from copilot_runtime.adapters.demo import DemoAdapter
    from copilot_runtime.adapters.empty import EmptyAdapter
    from copilot_runtime.adapters.openai import OpenAIAdapter
    from copilot_runtime.adapters.scripted import ScriptedAdapter
    from copilot_runtime.agents.agui import AguiAgent
    from copilot_runtime.api import (
        Action,
        ActionContext,
        Adapter,
        Agent,
        Caller,
        ChatRequest,
        RunInput,
        Stage,
    )
    from copilot_runtime.api.events import Events
    from copilot_runtime.app.app import CopilotRuntime
    from copilot_runtime.base.errors import CopilotError
    from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
    from copilot_runtime.extensions.mcp.client import McpServer
    from copilot_runtime.extensions.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "Action",
    "ActionContext",
    "Adapter",
    "Agent",
    "AguiAgent",
    "Caller",
    "ChatRequest",
    "CopilotError",
    "CopilotRuntime",
    "DemoAdapter",
    "EmptyAdapter",
    "Events",
    "LangGraphAgent",
    "McpServer",
    "OpenAIAdapter",
    "RunInput",
    "ScriptedAdapter",
    "Settings",
    "Stage",
    "action",
]

_WHERE = {
    "action": "actions",
    "AguiAgent": "agents.agui",
    "CopilotError": "base.errors",
    "CopilotRuntime": "app.app",
    "DemoAdapter": "adapters.demo",
    "EmptyAdapter": "adapters.empty",
    "Events": "api.events",
    "LangGraphAgent": "extensions.frameworks.langgraph",
    "McpServer": "extensions.mcp.client",
    "OpenAIAdapter": "adapters.openai",
    "ScriptedAdapter": "adapters.scripted",
    "Settings": "extensions.settings",
}
"""The module of each public name; all others are in `api`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_WHERE.get(name, 'api')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
