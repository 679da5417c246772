"""Runs an agent of OpenAI's Agents SDK in this process."""

import asyncio
import copy
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copilot_runtime import api as interfaces
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.openai.request import OPENAI, RequestOptions
from copilot_runtime.adapters.openai.responses import build_response_body
from copilot_runtime.agents.agui_inprocess import (
    closing,
    resolve,
    select_conversation,
)
from copilot_runtime.agents.instructions import build_system_message
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.agent import APPROVAL_CAPABILITIES
from copilot_runtime.api.events import Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import (
    CopilotError,
    LimitExceeded,
    MissingPackage,
    NetworkError,
    Refused,
)
from copilot_runtime.extensions.frameworks.openai_agents.approvals import (
    PausedRun,
    decode_paused_run,
    encode_paused_run,
    no_pending_approval,
)
from copilot_runtime.extensions.frameworks.openai_agents.translate import SDKTranslator
from copilot_runtime.threads.checkpoints import AgentCheckpoints

if TYPE_CHECKING:
    from agents import Agent, RunConfig, RunResultStreaming

_NO_TRIM = 10_000_000
"""A window so large that nothing is trimmed here: that is left to the agent."""

_STOP_TIMEOUT = 5.0
"""Seconds that an agent may take to stop."""


class OpenAIAgentsAgent(interfaces.Agent):
    """Runs an agent of the Agents SDK, and those it hands off to.

    `context` is passed to its tools; it may be a function of the `RunInput`. `max_turns` limits the
    requests to the model in one run. Actions of the page and of this server are tools that end the
    run. A tool with `needs_approval` asks the person first; the paused run is stored with its
    thread, without its context, and continues in any process whose agent has the same tools.
    Without `tracing`, nothing is sent to OpenAI's traces. Raises `MissingPackage` without the extra
    `openai-agents`.
    """

    capabilities = APPROVAL_CAPABILITIES

    def __init__(
        self,
        agent: "Agent[Any]",
        *,
        context: Any = None,
        max_turns: int = 10,
        config: "RunConfig | None" = None,
        tracing: bool = False,
        description: str = "",
    ) -> None:
        try:
            import agents as sdk
            from openai import OpenAIError

            from copilot_runtime.extensions.frameworks.openai_agents.tracing import (
                StorageHooks,
                trace_run,
            )
        except ImportError as error:
            raise MissingPackage(
                "An OpenAIAgentsAgent", "openai-agents", "openai-agents"
            ) from error
        self.agent = agent
        self.context = context
        self.max_turns = max_turns
        self.description = description or agent.handoff_description or ""
        self._sdk = sdk
        self._trace_run = trace_run
        self._hooks = StorageHooks()
        self._no_answer = OpenAIError
        self._checkpoints = AgentCheckpoints()
        self.config = replace(config or sdk.RunConfig(), tracing_disabled=not tracing)

    async def run(self, run: RunInput) -> Events:
        """Run the agent and yield our events, interrupts last.

        On cancellation or early close, the agent is stopped; this waits up to 5 seconds for it.
        Raises `LimitExceeded` after `max_turns`, `Refused` by a guardrail, `NetworkError` if the
        model fails, `Misuse` for an answer without a question, and `CopilotError` otherwise.
        """
        team = _Team(self._sdk, run.actions)
        agent = team.copy_agent(self.agent)
        context = await resolve(self.context, run)
        start, resumed_calls = await self._build_input(run, agent, context)
        translator = SDKTranslator(team.handoffs, resumed_calls)
        try:
            with self._trace_run(run.span, self.config.model) as hooks:
                if hooks is not None:
                    translator.note_item = hooks.note_item
                result = self._sdk.Runner.run_streamed(
                    agent,
                    start,
                    context=context,
                    max_turns=self.max_turns,
                    hooks=hooks or self._hooks,
                    run_config=self.config,
                )
                async with closing(result.stream_events()) as stream, _stop_on_exit(result):
                    async for event in stream:
                        for ours in translator.feed(event):
                            yield ours
        except (self._sdk.exceptions.AgentsException, self._no_answer) as error:
            raise self._map_error(error, run) from error
        for ours in translator.finish(result.final_output):
            yield ours
        if any(call.tool_name not in team.external for call in result.interruptions):
            paused = PausedRun(result.to_state(), result.interruptions, team.external)
            await self._checkpoints.save(run, encode_paused_run(paused))
            for interrupt in paused.build_interrupts():
                yield interrupt

    async def _build_input(
        self, run: RunInput, agent: Any, context: Any
    ) -> tuple[Any, Mapping[str, str]]:
        """Return the conversation, or a paused run with the names of the calls that it resumes.

        Of two requests with one answer, also in two processes, one goes on. The paused run is
        deleted before that, so that no call is made twice, even if it fails.
        """
        if not run.resume:
            await self._checkpoints.delete(run)  # the thread continues without the answer
            return _history(run), {}
        checkpoint = await self._checkpoints.find(run)
        if checkpoint is None:
            raise no_pending_approval()
        paused = await decode_paused_run(checkpoint.data, agent, context)
        resumed_calls = paused.resume(run)
        if not await self._checkpoints.delete(run, checkpoint.version):
            raise no_pending_approval()
        return paused.state, resumed_calls

    def _map_error(self, error: Exception, run: RunInput) -> Exception:
        """Return our error for an exception of the SDK."""
        exceptions, name = self._sdk.exceptions, run.agent_name
        reason = f"{type(error).__name__}: {error}"
        match error:
            case exceptions.MaxTurnsExceeded():
                message = (
                    f"The agent {name!r} asked its model {self.max_turns} times without an answer."
                )
                return LimitExceeded(
                    message, hint="Raise max_turns, or look at what its tools return."
                )
            case (
                exceptions.InputGuardrailTripwireTriggered()
                | exceptions.OutputGuardrailTripwireTriggered()
                | exceptions.ToolInputGuardrailTripwireTriggered()
                | exceptions.ToolOutputGuardrailTripwireTriggered()
            ):
                return Refused(f"A guardrail of the agent {name!r} said no.", hint=reason)
            case exceptions.ModelTimeoutError() | self._no_answer():
                message = f"The agent {name!r} got no answer from its model."
                return NetworkError(message, hint=reason)
            case _:
                return CopilotError(
                    f"The agent {name!r} failed. The server's log says why.", hint=reason
                )


class _Team:
    """Copies of an agent and those it hands off to, each with the tools that end a run.

    The agents of the application serve other runs at the same time, so they are not changed.
    """

    def __init__(self, sdk: Any, actions: Sequence[Action]) -> None:
        self.handoffs: set[str] = set()
        self._sdk = sdk
        usable = [one for one in actions if one.agent is None and one.available != "disabled"]
        self._tools = [self._tool(action) for action in usable]
        self.external = {action.name for action in usable}
        """Names of the tools that this process does not run."""
        self._copies: dict[int, Any] = {}

    def copy_agent(self, agent: Any) -> Any:
        """Return the copy of an agent, always the same: two may hand off to each other."""
        if id(agent) in self._copies:
            return self._copies[id(agent)]
        own = {tool.name for tool in agent.tools}
        self.external -= own
        tools = [*agent.tools, *(tool for tool in self._tools if tool.name not in own)]
        clone = self._copies[id(agent)] = agent.clone(tools=tools)
        clone.handoffs = [self._handoff(other) for other in agent.handoffs]
        return clone

    def _handoff(self, other: Any) -> Any:
        if isinstance(other, self._sdk.Handoff):  # a custom one: its function returns the agent
            self.handoffs.add(other.tool_name)
            return self._wrap_handoff(other)
        self.handoffs.add(self._sdk.Handoff.default_tool_name(other))
        return self.copy_agent(other)

    def _wrap_handoff(self, handoff: Any) -> Any:
        async def invoke(context: Any, arguments: str) -> Any:
            return self.copy_agent(await handoff.on_invoke_handoff(context, arguments))

        wrapper = copy.copy(handoff)
        wrapper.on_invoke_handoff = invoke
        # the SDK finds the agent of a paused run by this reference
        target = getattr(handoff, "_agent_ref", None)
        if target is not None and (other := target()) is not None:
            wrapper._agent_ref = weakref.ref(self.copy_agent(other))
        return wrapper

    def _tool(self, action: Action) -> Any:
        async def never(*_: Any) -> str:
            raise AssertionError(f"{action.name} is run elsewhere")

        return self._sdk.FunctionTool(
            name=action.name,
            description=action.description,
            params_json_schema=dict(action.parameters),
            on_invoke_tool=never,
            strict_json_schema=False,
            needs_approval=True,  # the run ends with the call, and the tools beside it have run
        )


@asynccontextmanager
async def _stop_on_exit(result: "RunResultStreaming") -> AsyncGenerator[None, None]:
    """Stop a run that is left early, before its stream is closed: that would wait for its end."""
    try:
        yield
    finally:
        if not result.is_complete:
            result.cancel()
        if result.run_loop_task is not None:
            await asyncio.wait((result.run_loop_task,), timeout=_STOP_TIMEOUT)


def _history(run: RunInput) -> Any:
    """Return the conversation as input items of the SDK, which suit every API of models."""
    context = build_system_message(run.run_id, context=run.context)
    request = ChatRequest(messages=[*context, *select_conversation(run)])
    options = RequestOptions(preset=replace(OPENAI, developer_role=False))
    capabilities = CapabilityFilter("openai_agents", "OpenAI's Agents SDK", "")
    body: Mapping[str, Any] = build_response_body(request, "", options, capabilities, _NO_TRIM)
    return body["input"]
