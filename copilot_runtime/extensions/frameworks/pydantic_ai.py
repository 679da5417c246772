"""Runs an agent of pydantic-ai in this process."""

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copilot_runtime.agents.agui import run_agent_input
from copilot_runtime.agents.agui_inprocess import (
    closing,
    parse_decision,
    resolve,
    translate_agui_events,
    upgrade_parts,
)
from copilot_runtime.agents.instructions import build_system_message
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.agent import APPROVAL_CAPABILITIES, Agent
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.api.run_input import RunInput, wait_for_storage
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    LimitExceeded,
    MissingPackage,
    Misuse,
    NetworkError,
)

if TYPE_CHECKING:
    from pydantic_ai import UsageLimits
    from pydantic_ai.agent import AbstractAgent


class PydanticAIAgent(Agent):
    """Runs an agent of pydantic-ai with its own tools and the actions of the page.

    `deps` are its dependencies, or a function of the `RunInput` that returns them, for instance by
    `run.user`. With a `StateDeps`, each run gets the state of its page in a copy. A tool with
    `requires_approval` asks the person first. `usage_limits` apply to one run. Raises
    `MissingPackage` without the extra `pydantic-ai`.
    """

    capabilities = APPROVAL_CAPABILITIES

    def __init__(
        self,
        agent: "AbstractAgent[Any, Any]",
        deps: Any = None,
        *,
        usage_limits: "UsageLimits | None" = None,
        description: str = "",
    ) -> None:
        try:
            from pydantic_ai import DeferredToolRequests
            from pydantic_ai.capabilities import Hooks
            from pydantic_ai.ui import ag_ui
        except ImportError as error:
            raise MissingPackage("A PydanticAIAgent", "ag-ui-protocol", "pydantic-ai") from error
        self.agent = agent
        self.deps = deps
        self.usage_limits = usage_limits
        self.description = description or getattr(agent, "description", None) or ""
        self._protocol = ag_ui
        self._waits = DeferredToolRequests
        self._hooks = Hooks[Any](before_tool_execute=_wait_for_storage)

    async def run(self, run: RunInput) -> Events:
        """Run the agent and yield our events.

        On cancellation or early close, the agent is stopped. Raises `LimitExceeded` for the usage
        limits, `NetworkError` if the model fails, `ConfigurationFailed` and `Misuse`; other
        exceptions of the agent are raised unchanged.
        """
        failures: list[Exception] = []
        deps = await self._deps(run)
        adapter = self._adapter(run, holds_state=hasattr(deps, "state"))
        native = self._start(adapter, run, deps)
        async with aclosing(_record_failure(native, failures)) as stream:
            try:
                async with aclosing(
                    translate_agui_events(adapter.transform_stream(stream), run)
                ) as events:
                    async for event in events:
                        yield event
            except AgentFailed as error:
                failures.append(error)
        if failures:  # the agent's own exception has more detail than AG-UI's event for it
            raise _map_error(failures[0], run)

    def _adapter(self, run: RunInput, *, holds_state: bool) -> Any:
        from ag_ui.core import RunAgentInput

        own = self._own_tools()
        actions = [action for action in run.actions if action.name not in own]
        request = replace(run, messages=upgrade_parts(_select_messages(run)), actions=actions)
        body = run_agent_input(request, run.agent_input.state)
        for answer in body.get("resume", ()):
            answer["payload"] = parse_decision(answer.get("payload"))
        if not holds_state:
            body["state"] = {}
        return self._protocol.AGUIAdapter(
            self.agent, RunAgentInput.model_validate(body), include_usage=True
        )

    def _start(self, adapter: Any, run: RunInput, deps: Any) -> AsyncIterator[Any]:
        """Start the run. Raises `Misuse` for a state that does not fit the agent's model."""
        from pydantic import ValidationError

        # Without it, a tool that waits for a person fails; the adapter adds it for tools of the
        # page only. Agents with validators accept no other type; no public attribute shows them.
        validates = getattr(self.agent, "_output_validators", ())
        waits = [self.agent.output_type, self._waits]
        try:
            return adapter.run_stream_native(
                output_type=None if adapter.toolset or validates else waits,
                deps=deps,
                usage_limits=self.usage_limits,
                instructions=_instructions(run),
                infer_name=False,
                capabilities=[self._hooks],
            )
        except ValidationError as error:
            raise Misuse(
                f"The state of the page is none that the agent {run.agent_name!r} knows.",
                hint=str(error),
            ) from error

    def _own_tools(self) -> Collection[str]:
        """Return the names of the agent's own tools: pydantic-ai refuses them from a page."""
        from pydantic_ai.toolsets import FunctionToolset

        sets = [one for one in self.agent.toolsets if isinstance(one, FunctionToolset)]
        return {name for one in sets for name in one.tools}

    async def _deps(self, run: RunInput) -> Any:
        deps = await resolve(self.deps, run)
        return copy.copy(deps) if hasattr(deps, "state") else deps  # each run sets its own state


async def _record_failure(
    native: AsyncIterator[Any], failures: list[Exception]
) -> AsyncGenerator[Any, None]:
    """Yield the agent's events; add an exception to `failures`: AG-UI has only its message."""
    async with closing(native):
        try:
            async for event in native:
                yield event
        except Exception as error:
            failures.append(error)
            raise


async def _wait_for_storage(context: Any, *, args: dict[str, Any], **call: Any) -> dict[str, Any]:
    """Delay the agent's own tool until its call is stored (durable before visible)."""
    del context, call
    await wait_for_storage()
    return args


def _map_error(error: Exception, run: RunInput) -> Exception:
    """Return our error for an exception of an agent."""
    from pydantic_ai import exceptions

    name, reason = run.agent_name, f"{type(error).__name__}: {error}"
    match error:
        case exceptions.UsageLimitExceeded():
            message = f"The agent {name!r} has used up what it may use in one run."
            mapped: Exception = LimitExceeded(message, hint=reason)
        case exceptions.ModelAPIError():
            message = f"The agent {name!r} got no answer from its model."
            mapped = NetworkError(message, hint=reason)
        case exceptions.UserError() if run.resume:
            message = f"The agent {name!r} cannot go on with this answer."
            mapped = Misuse(message, hint=reason)
        case exceptions.UserError():
            message = f"The agent {name!r} is not set up to answer this. The server's log says why."
            mapped = ConfigurationFailed(message, hint=reason)
        case _:
            return error
    mapped.__cause__ = error
    return mapped


def _instructions(run: RunInput) -> str | None:
    context = build_system_message(run.run_id, context=run.context)
    return context[0].content if context else None


def _select_messages(run: RunInput) -> Sequence[Message]:
    """Return the messages for the agent: each result once, and no instructions; it has its own.

    A page of AG-UI adds a person's answer as a result of the call.
    """
    interrupt_ids = {resume.interrupt_id for resume in run.resume}
    last = {one.call_id: one for one in run.messages if isinstance(one, ResultMessage)}

    def counts(message: Message) -> bool:
        match message:
            case TextMessage(role=role):
                return role not in ("system", "developer")
            case ResultMessage(call_id=id):
                return (
                    last[id] is message and f"int-{id}" not in interrupt_ids
                )  # pydantic-ai's name
            case _:
                return True

    return [message for message in run.messages if counts(message)]
