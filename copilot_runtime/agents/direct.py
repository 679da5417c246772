"""Answer with one adapter and the actions at hand: CopilotKit without an agent."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from copilot_runtime.actions.execute import Outcome, execute
from copilot_runtime.actions.frontend import offered
from copilot_runtime.agents.context import told
from copilot_runtime.agents.state_tools import SharedState, shared_in
from copilot_runtime.errors import LimitExceeded, Misuse
from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.interfaces import (
    Action,
    ActionContext,
    Adapter,
    ChatRequest,
    Events,
    RunInput,
)
from copilot_runtime.messages import Message
from copilot_runtime.transcript import messages_of

logger = logging.getLogger(__name__)


class DirectAgent:
    """Ask the model, run the server actions it calls, and ask again until it calls none.

    A call of a browser action ends the run: the browser acts and sends the result with its
    next request. With `follow_up == "client"` every run is one turn of the model, because
    CopilotKit v1 clients ask again themselves. They also write the context of the application
    into a message of theirs, which we do for all others. With `shared_state`, the model may read
    and change the state that such a client shares.
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        max_turns: int = 8,
        action_timeout: float = 60.0,
        shared_state: bool = True,
    ) -> None:
        self.adapter = adapter
        self.max_turns = max_turns
        self.action_timeout = action_timeout
        self.shared_state = shared_state

    def check(self, run: RunInput) -> None:
        """Raise what can be known to be wrong before the run starts."""
        if check := getattr(self.adapter, "check", None):
            check(run)

    def run(self, run: RunInput) -> Events:
        server = [action for action in run.actions if action.run is not None]
        browser = [action for action in run.actions if action.run is None]
        if run.follow_up == "client":
            request = _request(run, run.messages, server, browser)
            return self._turn(request, _Turn(run, server, self.action_timeout))
        shared = shared_in(run) if self.shared_state else None
        if shared is not None:
            server += shared.actions()
        context = told(run.context, shared.value if shared else None, run.run_id)
        request = _request(run, [*context, *run.messages], server, browser)
        return self._turns(request, run, server, shared)

    async def _turns(
        self,
        request: ChatRequest,
        run: RunInput,
        server: Sequence[Action],
        shared: SharedState | None,
    ) -> Events:
        for _ in range(self.max_turns):
            turn = _Turn(run, server, self.action_timeout, shared)
            async with aclosing(self._turn(request, turn)) as events:
                async for event in events:
                    yield event
            if turn.done:
                return
            request = _next(request, turn)
        raise LimitExceeded(
            f"The model called actions {self.max_turns} times in a row without an answer.",
            hint="Raise max_turns in the settings, or look at what the actions return.",
        )

    async def _turn(self, request: ChatRequest, turn: "_Turn") -> Events:
        """One answer of the model. Results come in call order, each as soon as it may."""
        try:
            async with aclosing(self.adapter.stream(request)) as events:
                async for event in events:
                    if turn.calls:
                        while (ready := turn.next_if_done()) is not None:
                            for result in turn.results_of(ready):
                                yield result
                    turn.watch(event)
                    yield event
            while turn.waiting:
                for result in turn.results_of(await turn.next()):
                    yield result
        finally:
            turn.cancel()


@dataclass(slots=True)
class _Call:
    name: str
    arguments: list[str] = field(default_factory=list[str])


class _Turn:
    """What one turn of the model said and which of its calls are still at work."""

    def __init__(
        self,
        run: RunInput,
        server: Sequence[Action],
        timeout: float,
        shared: SharedState | None = None,
    ) -> None:
        self.run = run
        self.shared = shared
        self.server = {action.name: action for action in reversed(server)}
        self.browser = {action.name for action in run.actions if action.run is None}
        self.timeout = timeout
        self.events: list[Event] = []
        self.calls: dict[str, _Call] = {}
        self.waiting: list[tuple[str, asyncio.Task[Outcome]]] = []
        self.unanswered = 0
        self.direct = False

    @property
    def done(self) -> bool:
        """True when the model needs no other turn in this run."""
        return not self.calls or self.unanswered > 0 or self.direct

    def watch(self, event: Event) -> None:
        """Remember the event; begin the action when its call is complete."""
        match event:
            case TextMessageContent():
                pass
            case ActionExecutionArgs(call_id=call_id, delta=delta):
                self._call(call_id).arguments.append(delta)
            case ActionExecutionStart(call_id=call_id, name=name):
                self.calls[call_id] = _Call(name)
            case ActionExecutionEnd(call_id=call_id):
                self._begin(call_id, self._call(call_id))
            case _:
                pass
        if self.run.follow_up == "server":
            self.events.append(event)

    def next_if_done(self) -> "tuple[str, asyncio.Task[Outcome]] | None":
        return self.waiting.pop(0) if self.waiting and self.waiting[0][1].done() else None

    async def next(self) -> "tuple[str, asyncio.Task[Outcome]]":
        await asyncio.wait([self.waiting[0][1]])
        return self.waiting.pop(0)

    def results_of(self, finished: "tuple[str, asyncio.Task[Outcome]]") -> Sequence[Event]:
        call_id, task = finished
        name, result = self.calls[call_id].name, task.result().result
        events: list[Event] = [ActionExecutionResult(call_id=call_id, name=name, result=result)]
        if self.shared is not None and (state := self.shared.change_by(call_id)) is not None:
            events.insert(0, state)
        action = self.server.get(name)
        if action is not None and action.return_direct and task.result().error is None and result:
            self.direct = True
            message_id = f"direct-{call_id}"
            events += [
                TextMessageStart(message_id=message_id),
                TextMessageContent(message_id=message_id, content=result),
                TextMessageEnd(message_id=message_id),
            ]
        if self.run.follow_up == "server":
            self.events += events
        return events

    def cancel(self) -> None:
        for _, task in self.waiting:
            task.cancel()

    def _call(self, call_id: str) -> "_Call":
        try:
            return self.calls[call_id]
        except KeyError:
            raise Misuse(f"The adapter spoke of a call {call_id!r} that it never began.") from None

    def _begin(self, call_id: str, call: _Call) -> None:
        action = self.server.get(call.name)
        if action is None and (call.name in self.browser or self.run.follow_up == "client"):
            self.unanswered += 1  # the browser's to run, or to refuse
            return
        context = ActionContext(
            thread_id=self.run.thread_id,
            run_id=self.run.run_id,
            call_id=call_id,
            properties=self.run.properties,
            headers=self.run.headers,
            user=self.run.user,
        )
        arguments = "".join(call.arguments)
        work = (
            execute(action, arguments, context, timeout=self.timeout)
            if action is not None
            else _unknown(call.name, self.server, self.browser)
        )
        self.waiting.append((call_id, asyncio.create_task(work, name=f"action:{call.name}")))


async def _unknown(name: str, server: dict[str, Action], browser: set[str]) -> Outcome:
    known = ", ".join(sorted({*server, *browser})) or "none"
    logger.warning("The model called the unknown action %r; known: %s", name, known)
    return Outcome.failed("UNKNOWN_ACTION", f"There is no action {name!r}. Known: {known}.")


def _request(
    run: RunInput,
    messages: Sequence[Message],
    server: Sequence[Action],
    browser: Sequence[Action],
) -> ChatRequest:
    return ChatRequest(
        messages=messages,
        actions=offered(server, browser, for_agent=False),
        parameters=run.parameters,
        thread_id=run.thread_id,
        run_id=run.run_id,
        agent=run.agent,
        user=run.user,
        extensions=run.extensions,
    )


def _next(request: ChatRequest, turn: _Turn) -> ChatRequest:
    """Return the request of the next turn: the same, and what this turn added to it."""
    messages: list[Message] = [*request.messages, *messages_of(turn.events)]
    # a model forced to call an action may answer freely once it has done so
    parameters = replace(request.parameters, tool_choice=None, tool_choice_name=None)
    return replace(request, messages=messages, parameters=parameters)
