"""One turn of a model or an agent: its events, and the calls of server actions that they start."""

import asyncio
import logging
from collections.abc import Sequence
from time import time_ns
from typing import NamedTuple

from copilot_runtime.actions.execute import Outcome, execute
from copilot_runtime.adapters.assembly import MAX_CALLS, build_limit_error
from copilot_runtime.adapters.tool_calls import is_readable
from copilot_runtime.agents.shared_state import SharedState
from copilot_runtime.api.action import Action
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.base.errors import LimitExceeded, Misuse
from copilot_runtime.base.jsontext import join_pieces

logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""Answers to one question that may end within a call: after the last of them, the run fails."""

_CUT_OFF = "INCOMPLETE_ARGUMENTS"
_CUT_OFF_START = f'{{"error":{{"code":"{_CUT_OFF}"'


class Handoff(NamedTuple):
    """An agent that takes over the run, by a call of its action or by answers to its interrupts."""

    action: Action
    call_id: str = ""
    resume: Sequence[Resume] = ()


class Turn:
    """Starts the actions that a turn calls, in tasks, and yields their results in call order.

    An action starts once the stages have let the end of its call through, so that one which
    refuses a call prevents it.

    A call that was cut off is refused: it has no end, or its arguments for a v1 client are not
    JSON. Nobody runs it. Its result says so and precedes its end, which tells v1 clients the same.
    """

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
        self.calls: dict[str, str] = {}
        """Names of the calls by their ids."""
        self.tasks: list[tuple[str, asyncio.Task[Outcome]]] = []
        self.handoffs: list[Handoff] = []
        """The agents to hand off to, as actions."""
        self.browser_calls = 0
        self.refused: dict[str, bool] = {}
        """The calls that were cut off, and whether their end follows their result."""
        self.is_direct = False
        self.first_event_time = 0
        """The time of the model's first event, in nanoseconds since 1970; 0 before that."""
        self.usage: Usage | None = None
        self._arguments: dict[str, list[str]] = {}

    @property
    def is_done(self) -> bool:
        """Whether no other turn of the model follows in this run."""
        return bool(not self.calls or self.browser_calls or self.is_direct or self.handoffs)

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return "".join(it.content for it in self.events if isinstance(it, TextMessageContent))

    def feed(self, event: Event) -> bool:
        """Record an event.

        Return whether the client gets the event now, which it does not for a refused call.
        """
        match event:
            case TextMessageContent():
                pass
            case ActionExecutionArgs(call_id=call_id, delta=delta):
                self._get_arguments(call_id).append(delta)
            case TextMessageStart() | ReasoningStart():
                self._note_beginning()
            case ActionExecutionStart(call_id=call_id, name=name):
                self._note_beginning()
                self._name_call(call_id, name)
                self._arguments[call_id] = []
            case ActionExecutionEnd(call_id=call_id):
                pieces, name = self._get_arguments(call_id), self.calls[call_id]
                if (
                    self.run.is_v1
                    and name not in self.server
                    and not is_readable(join_pieces(pieces))
                ):
                    del self._arguments[call_id]
                    self.refuse(call_id, name)  # these clients complete what they got, and run it
                    return False
            case Usage():
                self.usage = event
            case _:
                pass
        self.events.append(event)
        return True

    def start_call(self, call_id: str) -> None:
        """Start the action of a call whose end was fed and has reached the client."""
        self.start(call_id, self.calls[call_id], join_pieces(self._arguments.pop(call_id)))

    def pop_ready(self) -> "tuple[str, asyncio.Task[Outcome]] | None":
        """Remove and return the next call in order, if its task is done."""
        return self.tasks.pop(0) if self.tasks and self.tasks[0][1].done() else None

    async def wait_next(self) -> "tuple[str, asyncio.Task[Outcome]]":
        """Wait for the next call in order; remove and return it."""
        await asyncio.wait([self.tasks[0][1]])
        return self.tasks.pop(0)

    def build_results(self, call: "tuple[str, asyncio.Task[Outcome]]") -> Sequence[Event]:
        """Return the events of a call whose task is done."""
        call_id, task = call
        name, result = self.calls[call_id], task.result().result
        events: list[Event] = [ActionExecutionResult(call_id=call_id, name=name, result=result)]
        if self.refused.get(call_id):
            events.append(ActionExecutionEnd(call_id=call_id))
        if self.shared is not None and (state := self.shared.pop_change(call_id)) is not None:
            events.insert(0, state)
        action = self.server.get(name)
        if action is not None and action.ends_run and task.result().error is None:
            self.is_direct = True
        if action is not None and action.return_direct and task.result().error is None and result:
            self.is_direct = True
            message_id = f"direct-{call_id}"
            events += [
                TextMessageStart(message_id=message_id),
                TextMessageContent(message_id=message_id, content=result),
                TextMessageEnd(message_id=message_id),
            ]
        self.events += events
        return events

    def cancel(self) -> None:
        """Cancel the running actions."""
        for _, task in self.tasks:
            task.cancel()

    def _note_beginning(self) -> None:
        if not self.first_event_time:
            self.first_event_time = time_ns()

    def _get_arguments(self, call_id: str) -> list[str]:
        try:
            return self._arguments[call_id]
        except KeyError:
            raise Misuse(f"The adapter sent a chunk of the unstarted call {call_id!r}.") from None

    def _name_call(self, call_id: str, name: str) -> None:
        self.calls[call_id] = name
        if len(self.calls) > MAX_CALLS:
            self.cancel()
            raise build_limit_error()

    def refuse_open_calls(self) -> None:
        """Refuse the calls that have no end, once the model has finished."""
        for call_id in self._arguments:
            self.refuse(call_id, self.calls[call_id])

    def refuse(self, call_id: str, name: str, *, is_open: bool = True) -> None:
        """Give a call that was cut off a result that says so; `is_open` if it has no end yet."""
        self._name_call(call_id, name)
        self.refused[call_id] = is_open
        work = asyncio.create_task(_report_cut_off(name), name=f"action:{name}")
        self.tasks.append((call_id, work))

    def check_refusals(self, messages: Sequence[Message]) -> None:
        """Raise `LimitExceeded` if `ATTEMPTS` answers since the last question were cut off.

        `messages` are those before this turn. A v1 client asks again after each result, for ever.
        """
        if self.refused and 1 + _count_cut_off(messages) >= ATTEMPTS:
            raise LimitExceeded(
                f"The answer was cut off {ATTEMPTS} times within a call of an action.",
                hint="Raise max_tokens, or have the model write less in one call.",
            )

    def start(self, call_id: str, name: str, arguments: str) -> None:
        """Start the action of a call, unless it is the browser's; `arguments` is JSON.

        Raises `LimitExceeded` for more than `MAX_CALLS`; the running actions are then cancelled.
        """
        self._name_call(call_id, name)
        action = self.server.get(name)
        if action is None and (name in self.browser or self.run.is_v1):
            self.browser_calls += 1  # the browser's to run, or to refuse
            return
        if action is None:
            work = _report_unknown(name, self.server, self.browser)
        elif action.agent is not None:
            self.handoffs.append(Handoff(action, call_id))
            work = _confirm_handoff(name)
        else:
            work = execute(
                action, arguments, self.run.action_context(call_id), timeout=self.timeout
            )
        self.tasks.append((call_id, asyncio.create_task(work, name=f"action:{name}")))


async def _report_unknown(name: str, server: dict[str, Action], browser: set[str]) -> Outcome:
    names = ", ".join(sorted({*server, *browser})) or "none"
    logger.warning("The model called the unknown action %r; known: %s", name[:100], names)
    return Outcome.failure("UNKNOWN_ACTION", f"There is no action {name[:100]!r}. Known: {names}.")


async def _confirm_handoff(name: str) -> Outcome:
    return Outcome(f"{name} agent started")  # in the words of the Node runtime


async def _report_cut_off(name: str) -> Outcome:
    logger.warning("A call of %r was not run: its arguments are incomplete.", name[:100])
    return Outcome.failure(
        _CUT_OFF,
        "The call was not run, because its arguments are incomplete: the answer probably reached "
        "its limit. Call again with shorter arguments, or make several calls.",
    )


def _count_cut_off(messages: Sequence[Message]) -> int:
    """Return the number of calls that were cut off since the last message of the user."""
    total = 0
    for message in reversed(messages):
        match message:
            case TextMessage(role="user"):
                break
            case ResultMessage(result=result) if result.startswith(_CUT_OFF_START):
                total += 1
            case _:
                pass
    return total
