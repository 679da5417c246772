"""One turn of a model or an agent: what it said, and which of its calls are at work."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from copilot_runtime.actions.execute import Outcome, execute
from copilot_runtime.agents.shared_state import SharedState
from copilot_runtime.errors import Misuse
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
from copilot_runtime.interfaces import Action, ActionContext, RunInput

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Call:
    """A call, as far as it is written; its arguments are pieces of JSON text."""

    name: str
    arguments: list[str] = field(default_factory=list[str])


class Turn:
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
        self.browser = {action.name for action in run.actions if action.in_browser}
        self.timeout = timeout
        self.events: list[Event] = []
        self.calls: dict[str, Call] = {}
        self.waiting: list[tuple[str, asyncio.Task[Outcome]]] = []
        self.taking_over: list[Action] = []
        """The agents that were called."""
        self.unanswered = 0
        self.direct = False

    @property
    def done(self) -> bool:
        """True when the model needs no other turn in this run."""
        return bool(not self.calls or self.unanswered or self.direct or self.taking_over)

    def watch(self, event: Event) -> None:
        """Remember the event; begin the action when its call is complete."""
        match event:
            case TextMessageContent():
                pass
            case ActionExecutionArgs(call_id=call_id, delta=delta):
                self._call(call_id).arguments.append(delta)
            case ActionExecutionStart(call_id=call_id, name=name):
                self.calls[call_id] = Call(name)
            case ActionExecutionEnd(call_id=call_id):
                self.begin(call_id, self._call(call_id))
            case _:
                pass
        if not self.run.is_v1:
            self.events.append(event)

    def next_if_done(self) -> "tuple[str, asyncio.Task[Outcome]] | None":
        """Return the call that is next in order, if it is done."""
        return self.waiting.pop(0) if self.waiting and self.waiting[0][1].done() else None

    async def next(self) -> "tuple[str, asyncio.Task[Outcome]]":
        """Wait for the call that is next in order."""
        await asyncio.wait([self.waiting[0][1]])
        return self.waiting.pop(0)

    def results_of(self, finished: "tuple[str, asyncio.Task[Outcome]]") -> Sequence[Event]:
        """Return what a call that is done adds to the answer."""
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
        if not self.run.is_v1:
            self.events += events
        return events

    def cancel(self) -> None:
        """End the actions that are still at work."""
        for _, task in self.waiting:
            task.cancel()

    def _call(self, call_id: str) -> Call:
        try:
            return self.calls[call_id]
        except KeyError:
            raise Misuse(f"The adapter spoke of a call {call_id!r} that it never began.") from None

    def begin(self, call_id: str, call: Call) -> None:
        """Begin the action of a call, unless it is the browser's."""
        self.calls[call_id] = call
        action = self.server.get(call.name)
        if action is None and (call.name in self.browser or self.run.is_v1):
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
        if action is None:
            work = _unknown(call.name, self.server, self.browser)
        elif action.agent is not None:
            self.taking_over.append(action)
            work = _started(call.name)
        else:
            work = execute(action, arguments, context, timeout=self.timeout)
        self.waiting.append((call_id, asyncio.create_task(work, name=f"action:{call.name}")))


async def _unknown(name: str, server: dict[str, Action], browser: set[str]) -> Outcome:
    known = ", ".join(sorted({*server, *browser})) or "none"
    logger.warning("The model called the unknown action %r; known: %s", name, known)
    return Outcome.failure("UNKNOWN_ACTION", f"There is no action {name!r}. Known: {known}.")


async def _started(name: str) -> Outcome:
    return Outcome(f"{name} agent started")  # in the words of the Node runtime
