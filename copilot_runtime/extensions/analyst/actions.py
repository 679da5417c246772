"""The tools as actions: for our own loop, for MCP clients and for programs."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.extensions.analyst.results import ToolResult
from copilot_runtime.extensions.analyst.tools.call import call_tool, render_output
from copilot_runtime.extensions.analyst.tools.registry import TOOLS

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session

OnResult = Callable[[ToolResult, ActionContext], Awaitable[None]]
"""Called with each result before its text goes to the model."""


def build_actions(
    session: "Session",
    *,
    on_result: OnResult | None = None,
    names: Collection[str] | None = None,
) -> list[Action]:
    """Return the tools of a question as actions: all, or some."""
    return [
        Action(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            run=partial(_run_tool, session, tool.name, on_result),
            is_idempotent=tool.effect == "none",
        )
        for tool in TOOLS.values()
        if names is None or tool.name in names
    ]


async def _run_tool(
    session: "Session",
    name: str,
    on_result: OnResult | None,
    arguments: Mapping[str, Any],
    context: ActionContext,
) -> str:
    result = await call_tool(session, name, arguments)
    if on_result is not None:
        await on_result(result, context)
    return render_output(result)
