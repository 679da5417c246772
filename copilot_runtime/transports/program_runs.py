"""Non-interactive runs, for clients that keep no threads here."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from copilot_runtime.actions.execute import execute
from copilot_runtime.actions.sources import select_actions
from copilot_runtime.agents.forwarding import derive_thread_ids
from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    Events,
    RunFailed,
)
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, ErrorReport, NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.threads.store import ThreadQuery

_LATEST_THREADS = 100
"""Number of the caller's most recent threads that are searched for a remote agent's thread."""


class RunEnded(CopilotError):
    """A run that failed or was stopped; has the parts of the error that its client may see."""

    def __init__(self, report: ErrorReport) -> None:
        super().__init__(report.message, status_code=report.status_code, kind=report.kind)
        self.code = report.code


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRuns:
    """Starts runs and actions for clients without threads. `action_timeout` is in seconds."""

    conversations: Conversations
    action_timeout: float

    async def actions(self, caller: Caller) -> Sequence[Action]:
        """Return the server's actions that the caller may run."""
        run = self.build_run(caller, operation="actions/list", request_type="Action")
        actions = select_actions(await self.conversations.actions(run), (), for_agent=True)
        return [action for action in actions if action.run is not None]

    async def agents(self, caller: Caller) -> Mapping[str, Agent]:
        """Return the agents available to the caller, by name."""
        return await self.conversations.agents_for(caller)

    async def call(
        self,
        caller: Caller,
        name: str,
        arguments: Mapping[str, Any],
        operation: str,
        *,
        thread: str = "",
    ) -> str:
        """Run an action and return its result, which may describe a failure.

        The action runs in the caller's thread that a remote agent knows as `thread`, or without a
        thread. Raises `CopilotError` if the action could not be run.
        """
        more = {"thread_id": await self._find_thread(caller, thread)} if thread else {}
        run = self.build_run(caller, operation=operation, request_type="Action", **more)
        one = SingleCallAgent(name, arguments, timeout=self.action_timeout)
        result = ""
        async with aclosing(self.events(run, one)) as events:
            async for event in events:
                match event:
                    case ActionExecutionResult():
                        result = event.result
                    case RunFailed(error=report):
                        raise RunEnded(report)
                    case _:
                        pass
        return result

    async def events(
        self, request: RunInput, agent: Agent | None = None
    ) -> AsyncGenerator[Event, None]:
        """Start a run and yield its events. Closing the generator early stops the run."""
        run = self.conversations.create(request)
        try:
            await self.conversations.launch(run, agent)
            async with aclosing(run.follow()) as log:
                async for _, events in log:
                    for event in events:
                        yield event
        finally:
            run.stop()

    async def _find_thread(self, caller: Caller, name: str) -> str:
        """Return the identifier of the caller's thread for a remote agent's thread name.

        A name that matches none of the latest threads is taken as an identifier of a thread of the
        caller: the owner is always the caller, so it cannot refer to another user's thread.
        """
        ids = await self.conversations.thread_ids()
        query = ThreadQuery(owner=caller.user or "", archived=True, limit=_LATEST_THREADS)
        for thread in (await self.conversations.list(query)).threads:
            private_id = ids.derive(caller.user, thread.key.id)
            if name in (thread.key.id, private_id, *derive_thread_ids(private_id)):
                return thread.key.id
        return name

    def build_run(self, caller: Caller, **more: Any) -> RunInput:
        """Return a run of this caller that is not stored in a thread."""
        fields: dict[str, Any] = {"thread_id": new_id(), "messages": (), **more}
        return RunInput(
            run_id=new_id(),
            properties=caller.properties,
            headers=caller.headers,
            url=caller.url,
            user=caller.user,
            identity=caller.identity,
            parent=caller.parent,
            log_id=uuid4().hex,
            **fields,
        )


class SingleCallAgent(Agent):
    """Calls the action `name` and ends, so that hooks, stages and limits apply to the call, too.

    An instance serves one run. The action may take `timeout` seconds, unless it has its own limit.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], *, timeout: float) -> None:
        self.name = name
        self.arguments = dumps(arguments).decode()
        self.timeout = timeout

    async def run(self, run: RunInput) -> Events:
        """Yield the call and its result. Cancelled, the action is cancelled, too.

        Raises `NotFound` if the server has no such action.
        """
        action = next((one for one in run.actions if one.name == self.name), None)
        if action is None or action.run is None or action.available == "disabled":
            raise NotFound(f"There is no action {self.name[:100]!r}.")
        call_id = new_id()
        yield ActionExecutionStart(call_id=call_id, name=self.name)
        yield ActionExecutionArgs(call_id=call_id, delta=self.arguments)
        yield ActionExecutionEnd(call_id=call_id)
        context = run.action_context(call_id)
        outcome = await execute(action, self.arguments, context, timeout=self.timeout)
        yield ActionExecutionResult(call_id=call_id, name=self.name, result=outcome.result)
