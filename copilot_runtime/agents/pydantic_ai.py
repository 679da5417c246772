"""Let an agent of pydantic-ai answer, in this process."""

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copilot_runtime.agents.agui import run_agent_input
from copilot_runtime.agents.agui_inprocess import (
    closing,
    decision,
    given,
    name_of,
    spoken,
    state_of,
    typed,
)
from copilot_runtime.agents.context_message import told
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.errors import (
    ConfigurationFailed,
    LimitExceeded,
    MissingPackage,
    Misuse,
    NetworkError,
)
from copilot_runtime.interfaces import Events, RunInput
from copilot_runtime.messages import Message, ResultMessage, TextMessage

if TYPE_CHECKING:
    from pydantic_ai import UsageLimits
    from pydantic_ai.agent import AbstractAgent


class PydanticAIAgent:
    """Answers with an agent of pydantic-ai: its tools, and the actions of the page beside them.

    `deps` are what it depends on, or a function of the `RunInput` that returns them, for
    instance by `run.user`. With a `StateDeps`, each run has the state of its page in a copy. A
    tool with `requires_approval` asks the person first. `usage_limits` are those of one run.
    """

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
            from pydantic_ai.ui import ag_ui
        except ImportError as error:
            raise MissingPackage("A PydanticAIAgent", "ag-ui-protocol", "pydantic-ai") from error
        self.agent = agent
        self.deps = deps
        self.usage_limits = usage_limits
        self.description = description or getattr(agent, "description", None) or ""
        self._protocol = ag_ui
        self._waits = DeferredToolRequests

    async def run(self, run: RunInput) -> Events:
        """Ask the agent; yield what it says. Left early, it is stopped."""
        failures: list[Exception] = []
        deps = await self._deps(run)
        adapter = self._adapter(run, holds_state=hasattr(deps, "state"))
        native = self._begun(adapter, run, deps)
        async with aclosing(_noted(native, failures)) as noted:
            try:
                async with aclosing(spoken(adapter.transform_stream(noted), run)) as events:
                    async for event in events:
                        yield event
            except AgentFailed as error:
                failures.append(error)
        if failures:  # the agent's own exception says more than what it is told as
            raise _explained(failures[0], run)

    def _adapter(self, run: RunInput, *, holds_state: bool) -> Any:
        from ag_ui.core import RunAgentInput

        own = self._own_tools()
        actions = [action for action in run.actions if action.name not in own]
        heard = replace(run, messages=typed(_heard(run)), actions=actions)
        body = run_agent_input(heard, state_of(run))
        for answer in body.get("resume", ()):
            answer["payload"] = decision(answer.get("payload"))
        if not holds_state:
            body["state"] = {}
        return self._protocol.AGUIAdapter(
            self.agent, RunAgentInput.model_validate(body), include_usage=True
        )

    def _begun(self, adapter: Any, run: RunInput, deps: Any) -> AsyncIterator[Any]:
        """Begin the run. Raises `Misuse` for a state that is not the agent's."""
        from pydantic import ValidationError

        # Without it, a tool that waits for a person fails; the adapter adds it for tools of the
        # page only. Agents with validators take no other type, and say that nowhere else.
        validates = getattr(self.agent, "_output_validators", ())
        waits = [self.agent.output_type, self._waits]
        try:
            return adapter.run_stream_native(
                output_type=None if adapter.toolset or validates else waits,
                deps=deps,
                usage_limits=self.usage_limits,
                instructions=_instructions(run),
                infer_name=False,
            )
        except ValidationError as error:
            raise Misuse(
                f"The state of the page is none that the agent {name_of(run)!r} knows.",
                hint=str(error),
            ) from error

    def _own_tools(self) -> Collection[str]:
        """Return the names that pydantic-ai refuses from a page."""
        from pydantic_ai.toolsets import FunctionToolset

        sets = [one for one in self.agent.toolsets if isinstance(one, FunctionToolset)]
        return {name for one in sets for name in one.tools}

    async def _deps(self, run: RunInput) -> Any:
        deps = await given(self.deps, run)
        return copy.copy(deps) if hasattr(deps, "state") else deps  # each run sets its own state


async def _noted(
    native: AsyncIterator[Any], failures: list[Exception]
) -> AsyncGenerator[Any, None]:
    """Yield the agent's events, and keep what it raises: in AG-UI, it is but a sentence."""
    async with closing(native):
        try:
            async for event in native:
                yield event
        except Exception as error:
            failures.append(error)
            raise


def _explained(error: Exception, run: RunInput) -> Exception:
    """Return what to say of an agent's exception."""
    from pydantic_ai import exceptions

    name, reason = name_of(run), f"{type(error).__name__}: {error}"
    match error:
        case exceptions.UsageLimitExceeded():
            said = f"The agent {name!r} has used up what it may use in one run."
            explained: Exception = LimitExceeded(said, hint=reason)
        case exceptions.ModelAPIError():
            said = f"The agent {name!r} got no answer from its model."
            explained = NetworkError(said, hint=reason)
        case exceptions.UserError() if run.resume:
            said = f"The agent {name!r} cannot go on with this answer."
            explained = Misuse(said, hint=reason)
        case exceptions.UserError():
            said = f"The agent {name!r} is not set up to answer this. The server's log says why."
            explained = ConfigurationFailed(said, hint=reason)
        case _:
            return error
    explained.__cause__ = error
    return explained


def _instructions(run: RunInput) -> str | None:
    context = told(run.context, None, run.run_id)
    return context[0].content if context else None


def _heard(run: RunInput) -> Sequence[Message]:
    """Return what is said to the agent: each result once, and no instructions, which are its own.

    A page of AG-UI writes a person's answer down as a result of the call it was about.
    """
    answered = {resume.interrupt_id for resume in run.resume}
    last = {one.call_id: one for one in run.messages if isinstance(one, ResultMessage)}

    def counts(message: Message) -> bool:
        match message:
            case TextMessage(role=role):
                return role not in ("system", "developer")
            case ResultMessage(call_id=id):
                return last[id] is message and f"int-{id}" not in answered  # pydantic-ai's name
            case _:
                return True

    return [message for message in run.messages if counts(message)]
