"""Let an agent of OpenAI's Agents SDK answer, in this process."""

import asyncio
import copy
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.openai.request import Habits
from copilot_runtime.adapters.openai.responses.request import response_body_of
from copilot_runtime.agents.agui_inprocess import closing, conversation_of, given, name_of
from copilot_runtime.agents.context_message import told
from copilot_runtime.agents.openai_agents.approvals import Wait, Waiting
from copilot_runtime.agents.openai_agents.translate import Told
from copilot_runtime.errors import (
    CopilotError,
    LimitExceeded,
    MissingPackage,
    NetworkError,
    Refused,
)
from copilot_runtime.interfaces import Action, ChatRequest, Events, RunInput, private_thread_id

if TYPE_CHECKING:
    from agents import Agent, RunConfig, RunResultStreaming

_NOT_TRIMMED = 10_000_000
"""Tokens: what an agent reads of a long conversation is its own business."""

_STOPPING = 5.0
"""Seconds that an agent has to stop."""


class OpenAIAgentsAgent:
    """Answers with an agent of the Agents SDK, and whoever it hands over to.

    `context` is what its tools get, or a function of the `RunInput` that returns it. `max_turns`
    is how often it may ask its model in one run. Actions of the page and of this server are tools
    that end its run. A tool with `needs_approval` asks the person first; what waits for an answer
    does so in this process. Nothing is sent to OpenAI's traces unless `tracing` says so.
    """

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
        except ImportError as error:
            raise MissingPackage(
                "An OpenAIAgentsAgent", "openai-agents", "openai-agents"
            ) from error
        self.agent = agent
        self.context = context
        self.max_turns = max_turns
        self.description = description or agent.handoff_description or ""
        self._sdk = sdk
        self._no_answer = OpenAIError
        self._waiting = Waiting()
        self.config = replace(config or sdk.RunConfig(), tracing_disabled=not tracing)

    async def run(self, run: RunInput) -> Events:
        """Ask the agent; yield what it says. Left early, it is stopped."""
        team = _Team(self._sdk, run.actions)
        agent, thread = team.equipped(self.agent), private_thread_id(run.user, run.thread_id)
        asked, answered = self._asked(run, thread)
        result = self._sdk.Runner.run_streamed(
            agent,
            asked,
            context=await given(self.context, run),
            max_turns=self.max_turns,
            run_config=self.config,
        )
        events = Told(team.handoffs, answered)
        try:
            async with closing(result.stream_events()) as stream, _stopping(result):
                async for event in stream:
                    for ours in events.take(event):
                        yield ours
        except (self._sdk.exceptions.AgentsException, self._no_answer) as error:
            raise self._explained(error, run) from error
        for ours in events.end(result.final_output):
            yield ours
        if any(call.tool_name not in team.elsewhere for call in result.interruptions):
            wait = Wait(result.to_state(), result.interruptions, team.elsewhere)
            self._waiting.keep(thread, wait)
            for question in wait.questions():
                yield question

    def _asked(self, run: RunInput, thread: str) -> tuple[Any, Mapping[str, str]]:
        """Return what to ask: the conversation, or the run that waits and the calls answered."""
        if not run.resume:
            self._waiting.forget(thread)  # it goes on without the answer
            return _history(run), {}
        wait = self._waiting.find(thread)
        answered = wait.answer(run)
        self._waiting.forget(thread)  # whatever comes of it: no call is made twice
        return wait.state, answered

    def _explained(self, error: Exception, run: RunInput) -> Exception:
        """Return what to say of an exception of the SDK."""
        known, name = self._sdk.exceptions, name_of(run)
        reason = f"{type(error).__name__}: {error}"
        match error:
            case known.MaxTurnsExceeded():
                said = (
                    f"The agent {name!r} asked its model {self.max_turns} times without an answer."
                )
                return LimitExceeded(
                    said, hint="Raise max_turns, or look at what its tools return."
                )
            case (
                known.InputGuardrailTripwireTriggered()
                | known.OutputGuardrailTripwireTriggered()
                | known.ToolInputGuardrailTripwireTriggered()
                | known.ToolOutputGuardrailTripwireTriggered()
            ):
                return Refused(f"A guardrail of the agent {name!r} said no.", hint=reason)
            case known.ModelTimeoutError() | self._no_answer():
                said = f"The agent {name!r} got no answer from its model."
                return NetworkError(said, hint=reason)
            case _:
                return CopilotError(
                    f"The agent {name!r} failed. The server's log says why.", hint=reason
                )


class _Team:
    """An agent and those it hands over to, each with the tools that end a run.

    All are copies: those of the application serve other runs at the same time.
    """

    def __init__(self, sdk: Any, actions: Sequence[Action]) -> None:
        self.handoffs: set[str] = set()
        self._sdk = sdk
        usable = [one for one in actions if one.agent is None and one.available != "disabled"]
        self._tools = [self._tool(action) for action in usable]
        self.elsewhere = {action.name for action in usable}
        """The tools that others run."""
        self._copies: dict[int, Any] = {}

    def equipped(self, agent: Any) -> Any:
        """Return the copy of an agent; two may hand over to each other."""
        if id(agent) in self._copies:
            return self._copies[id(agent)]
        own = {tool.name for tool in agent.tools}
        self.elsewhere -= own
        tools = [*agent.tools, *(tool for tool in self._tools if tool.name not in own)]
        its_copy = self._copies[id(agent)] = agent.clone(tools=tools)
        its_copy.handoffs = [self._handoff(other) for other in agent.handoffs]
        return its_copy

    def _handoff(self, other: Any) -> Any:
        if isinstance(other, self._sdk.Handoff):  # made by hand: it says itself who goes on
            self.handoffs.add(other.tool_name)
            return self._equipping(other)
        self.handoffs.add(self._sdk.Handoff.default_tool_name(other))
        return self.equipped(other)

    def _equipping(self, handoff: Any) -> Any:
        async def invoke(context: Any, arguments: str) -> Any:
            return self.equipped(await handoff.on_invoke_handoff(context, arguments))

        equipping = copy.copy(handoff)
        equipping.on_invoke_handoff = invoke
        return equipping

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
async def _stopping(result: "RunResultStreaming") -> AsyncGenerator[None, None]:
    """Stop a run that is left early. Its stream must not be closed before: it would wait for it."""
    try:
        yield
    finally:
        if not result.is_complete:
            result.cancel()
        if result.run_loop_task is not None:
            await asyncio.wait((result.run_loop_task,), timeout=_STOPPING)


def _history(run: RunInput) -> Any:
    """Return the conversation as the SDK takes it, whichever API its model speaks."""
    context = told(run.context, None, run.run_id)
    request = ChatRequest(messages=[*context, *conversation_of(run)])
    habits = Habits(context_tokens=_NOT_TRIMMED, developer_role=False)
    capabilities = CapabilityFilter("openai_agents", "OpenAI's Agents SDK", "")
    body: Mapping[str, Any] = response_body_of(request, "", habits, capabilities)
    return body["input"]
