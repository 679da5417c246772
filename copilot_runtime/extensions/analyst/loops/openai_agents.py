"""Model loop with OpenAI's Agents SDK and the analyst's tools."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copilot_runtime.actions.execute import execute
from copilot_runtime.api.action import Action
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import new_id
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.extensions.analyst.loops import LoopRequest
from copilot_runtime.extensions.frameworks.openai_agents.agent import OpenAIAgentsAgent
from copilot_runtime.telemetry.span import NO_SPAN

if TYPE_CHECKING:
    from agents import FunctionTool


def run_loop(request: LoopRequest) -> Events:
    """Yield the events of the SDK.

    Raises `MissingPackage`, and the errors of `OpenAIAgentsAgent`.
    """
    try:
        from agents import Agent
    except ImportError as error:
        raise MissingPackage(
            "The framework openai-agents", "openai-agents", "openai-agents"
        ) from error
    own = [action for action in request.run.actions if action.run is not None]
    agent: Any = Agent(
        name=request.run.agent_name,
        instructions=request.instructions,
        model=request.model or None,
        tools=[*_build_tools(own, request)],
    )
    others = [action for action in request.run.actions if action.run is None]
    run = replace(request.run, actions=others, follow_up="server")
    return OpenAIAgentsAgent(agent, max_turns=request.max_turns).run(run)


def _build_tools(actions: Sequence[Action], request: LoopRequest) -> "Sequence[FunctionTool]":
    from agents import FunctionTool

    def build(action: Action) -> FunctionTool:
        async def invoke(context: Any, arguments: str) -> str:
            call_id = getattr(context, "tool_call_id", None) or new_id()
            call = copy_with(request.run.action_context(call_id), span=NO_SPAN)  # the SDK has one
            outcome = await execute(action, arguments, call, timeout=request.timeout)
            return outcome.result

        return FunctionTool(
            name=action.name,
            description=action.description,
            params_json_schema=dict(action.parameters),
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    return [*map(build, actions)]
