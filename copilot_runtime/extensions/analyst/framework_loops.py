"""Model loops with OpenAI's Agents SDK and with pydantic-ai, over the analyst's tools."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copilot_runtime.actions.execute import execute
from copilot_runtime.adapters.openai.adapter import OpenAIAdapter
from copilot_runtime.api.action import Action
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import new_id
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.analyst.loops import LoopRequest, TurnAdapter
from copilot_runtime.extensions.frameworks.openai_agents.agent import OpenAIAgentsAgent
from copilot_runtime.extensions.frameworks.pydantic_ai import PydanticAIAgent
from copilot_runtime.telemetry.span import NO_SPAN

if TYPE_CHECKING:
    from agents import FunctionTool
    from pydantic_ai import Tool


async def run_openai_agents(request: LoopRequest) -> Events:
    """Yield the events of the SDK, whose requests go to the server of the adapter.

    Raises `MissingPackage`, `ConfigurationFailed` for the adapter of another API, and the errors of
    `OpenAIAgentsAgent`.
    """
    try:
        import agents as sdk
    except ImportError as error:
        raise MissingPackage(
            "The framework openai-agents", "openai-agents", "openai-agents"
        ) from error
    own = [action for action in request.run.actions if action.run is not None]
    others = [action for action in request.run.actions if action.run is None]
    run = replace(request.run, actions=others, follow_up="server")
    async with _open_sdk_model(sdk, request) as model:
        agent: Any = sdk.Agent(
            name=request.run.agent_name,
            instructions=request.instructions,
            model=model,
            tools=[*_build_sdk_tools(own, request)],
        )
        async with aclosing(
            OpenAIAgentsAgent(agent, max_turns=request.max_turns).run(run)
        ) as events:
            async for event in events:
                yield event


@asynccontextmanager
async def _open_sdk_model(sdk: Any, request: LoopRequest) -> AsyncGenerator[Any]:
    """Yield the model of a request as an object of the SDK.

    A name alone would make the SDK send everything to OpenAI, whatever the adapter is.
    """
    if request.model is not None and not isinstance(request.model, str):
        yield request.model
        return
    adapter = request.adapter.inner if isinstance(request.adapter, TurnAdapter) else request.adapter
    if not isinstance(adapter, OpenAIAdapter):
        raise ConfigurationFailed(
            f"The framework openai-agents cannot use a {type(adapter).__name__}: it needs an "
            "adapter with OpenAI's API.",
            hint="Set analyst.framework to own, or adapter to openai, also with a base_url.",
        )
    name = request.model or adapter.model
    is_chat = adapter.api == "chat"
    build = sdk.OpenAIChatCompletionsModel if is_chat else sdk.OpenAIResponsesModel
    async with adapter.open_client(name) as client:
        yield build(name, client)


def _build_sdk_tools(actions: Sequence[Action], request: LoopRequest) -> "Sequence[FunctionTool]":
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


def run_pydantic_ai(request: LoopRequest) -> Events:
    """Yield the events of pydantic-ai.

    Raises `MissingPackage`, and the errors of `PydanticAIAgent`.
    """
    try:
        from pydantic_ai import Agent, UsageLimits
    except ImportError as error:
        raise MissingPackage("The framework pydantic-ai", "pydantic-ai", "pydantic-ai") from error
    if not request.model:
        raise ConfigurationFailed(
            "The analyst has no model for pydantic-ai.",
            hint="Set analyst.model in copilot.yml, such as openai:gpt-4o-mini.",
        )
    own = [action for action in request.run.actions if action.run is not None]
    agent: Any = Agent(
        request.model, instructions=request.instructions, tools=_build_pydantic_tools(own, request)
    )
    others = [action for action in request.run.actions if action.run is None]
    run = replace(request.run, actions=others, follow_up="server")
    limits = UsageLimits(request_limit=request.max_turns)
    return PydanticAIAgent(agent, usage_limits=limits).run(run)


def _build_pydantic_tools(actions: Sequence[Action], request: LoopRequest) -> "Sequence[Tool[Any]]":
    from pydantic_ai import RunContext, Tool

    def build(action: Action) -> Tool[Any]:
        async def invoke(context: RunContext[Any], **arguments: Any) -> str:
            values: Mapping[str, Any] = arguments
            call = request.run.action_context(context.tool_call_id or new_id())
            outcome = await execute(action, dumps(values).decode(), call, timeout=request.timeout)
            return outcome.result

        return Tool.from_schema(
            invoke,
            name=action.name,
            description=action.description,
            json_schema=dict(action.parameters),
            takes_ctx=True,
        )

    return [*map(build, actions)]
