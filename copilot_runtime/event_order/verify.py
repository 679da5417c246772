"""Verify the order of a run's events: items must be started before they grow or end.

Rules and error messages are those of `verifyEvents` in @ag-ui/client 0.0.59, so that users see the
same errors as from CopilotKit's own runtime.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    Events,
    ReasoningEnd,
    ReasoningStart,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    Subagent,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import Cancelled, CopilotError, ErrorReport, IncompleteStream
from copilot_runtime.base.jsontext import dumps, find_surrogate
from copilot_runtime.event_order.call_ids import CALL_EVENTS, CallIds
from copilot_runtime.event_order.characters import TEXTS, CharacterJoiner
from copilot_runtime.event_order.message_ids import STARTS, MessageIds
from copilot_runtime.event_order.tracing import EventTracer
from copilot_runtime.event_order.validate import validate_event

_CHANGEABLE = CALL_EVENTS | TEXTS
_MAY_BE_DONE = (
    "This call was interrupted, and may have been done: find out before you make it again."
)
"""The prefix of the result of a complete call whose run was interrupted."""


async def verify_events(events: Events, run: RunInput) -> Events:
    """A stage that raises `IncompleteStream` for events in a wrong order.

    Values of events become plain JSON, so that live and stored events are equal. An object that is
    not an event, or a value that is not JSON, raises `Misuse` before it is published or stored.
    Halves of characters in two chunks are joined. A message or a call whose id the conversation
    already has gets another one. Items that stay open are closed by each transport in its own way.
    """
    ordering = EventOrder(begun=True)
    texts = ordering.texts
    joiner = CharacterJoiner()
    calls: CallIds | None = None
    messages: MessageIds | None = None
    is_renamed = False
    with EventTracer(run) as tracer:
        watched = tracer.watched
        async with aclosing(events):
            try:
                async for event in events:
                    try:
                        if (
                            type(event) is TextMessageContent
                            and event.message_id in texts
                            and type(text := event.content) is str
                            and (text.isascii() or find_surrogate(text) is None)
                        ):
                            yield event  # nearly all events are this one
                            continue
                    except TypeError:  # an id that can be in no set
                        pass
                    event = validate_event(event, run.agent_name)
                    if type(event) in STARTS and not is_renamed:
                        messages = messages or MessageIds(run.messages, keeps_repeats=run.is_v1)
                        is_renamed = messages.has(event)
                    if not (type(event) in _CHANGEABLE or joiner.halves or is_renamed):
                        ordering.check(event)
                        if type(event) in watched:
                            tracer.feed(event)
                        yield event
                        continue
                    renamed: Sequence[Event] = (event,)
                    if type(event) in CALL_EVENTS:
                        calls = calls or CallIds(run.messages)
                        renamed = calls.rename(event)
                    if is_renamed and messages is not None:
                        renamed = [named for one in renamed for named in messages.rename(one)]
                    for one in renamed:
                        ordering.check(one)
                        if type(one) in watched:
                            tracer.feed(one)
                        for whole in joiner.feed(one):
                            yield whole
                    # while a half is held back, or ids differ, no event is plain
                    texts = {} if joiner.halves or is_renamed else ordering.texts
            except CopilotError:
                for event in joiner.flush():
                    yield event
                raise
            for event in joiner.flush():
                yield event


@dataclass(frozen=True, slots=True, eq=False)  # a key of dictionaries: its identity is its hash
class _Kind:
    """Something that begins and ends, in the words of the protocol, and the event that ends it."""

    noun: str
    word: str
    end: Callable[[str], Event]


_TEXT = _Kind("text message", "TEXT_MESSAGE", lambda key: TextMessageEnd(message_id=key))
_CALL = _Kind("tool call", "TOOL_CALL", lambda key: ActionExecutionEnd(call_id=key))
_STEP = _Kind("step", "STEP", lambda key: StepFinished(name=key))
_THOUGHT = _Kind("thought", "REASONING", lambda key: ReasoningEnd(message_id=key))
_SUBAGENT = _Kind("subagent", "SUBAGENT", lambda key: Subagent(subagent_id=key, status="finished"))


class EventOrder:
    """The state machine of one run: checks each event, and tracks the open items.

    Reasoning may come in any order, as clients tolerate it. With `begun`, the run has started.
    """

    def __init__(self, *, begun: bool = False) -> None:
        self._open: OpenItems[_Kind, str] = OpenItems()
        """The value of a call is its name."""
        self.texts = self._open.by_kind[_TEXT]
        """The open texts by id; content for one of them is always in order."""
        self._answered: set[str] = set()
        self._departed: set[str] = set()
        """Subagents that have ended: their ids are never used again."""
        self._begun = begun
        self._last: type[RunFinished | RunFailed] | None = None

    def check(self, event: Event) -> None:
        """Add an event. Raises `IncompleteStream` if clients would reject it."""
        if violation := self.violation(event):
            raise IncompleteStream(
                violation, hint=f"The agent sent {event.type!r} in the wrong order."
            )

    def violation(self, event: Event) -> str | None:
        """Add an event, or return the error that a client would raise for it."""
        if type(event) is TextMessageContent and event.message_id in self.texts:
            return None
        if self._last or not self._begun or isinstance(event, RunStarted):
            violation = self._out_of_run(event)
            if violation or isinstance(event, RunStarted):
                return violation
        return self._follow(event)

    def closing_events(self, failed: ErrorReport | None = None) -> list[Event]:
        """Return the events that close all open items, the innermost first.

        In a run that `failed`, but not in a stopped one, an interrupted call also gets a result, as
        from CopilotKit's runtime, because models reject a call without a result.
        """
        closing_events: list[Event] = []
        for kind, key, name in self._open.list_innermost_first():
            end = kind.end(key)
            if isinstance(end, Subagent) and failed is not None:
                end = replace(end, status="failed", message=failed.message)
            closing_events.append(end)
            if kind is _CALL and key not in self._answered and failed is not None:
                closing_events.append(interrupted_call(key, name, failed))
        return closing_events

    def _out_of_run(self, event: Event) -> str | None:
        """Return the error of an event before the start or after the end of the run, or None."""
        first, last = isinstance(event, RunStarted), self._last
        if last is RunFailed:
            return (
                f"Cannot send event type {_wire(event)!r}: The run has already errored with "
                "'RUN_ERROR'. No further events can be sent."
            )
        if last is RunFinished:
            return (
                f"Cannot send event type {_wire(event)!r}: The run has already finished with "
                "'RUN_FINISHED'. Start a new run with 'RUN_STARTED'."
            )
        if first and self._begun:
            return (
                "Cannot send 'RUN_STARTED' while a run is still active. The previous run must be "
                "finished with 'RUN_FINISHED' before starting a new run."
            )
        if not first and not isinstance(event, RunFailed):
            return "First event must be 'RUN_STARTED'"
        self._begun = True
        return None

    def _follow(self, event: Event) -> str | None:
        match event:
            case TextMessageStart(message_id=key):
                return self._begin(_TEXT, key)
            case TextMessageEnd(message_id=key):
                return self._end(_TEXT, key)
            case TextMessageContent(message_id=key):
                return self._grow(_TEXT, key, "CONTENT")
            case ActionExecutionArgs(call_id=key):
                return self._grow(_CALL, key, "ARGS")
            case ActionExecutionStart(call_id=key, name=name):
                violation = self._begin(_CALL, key, name)
                self._answered -= set() if violation else {key}
                return violation
            case ActionExecutionEnd(call_id=key):
                return self._end(_CALL, key)
            case ActionExecutionResult(call_id=key):
                self._answered.add(key)
            case StepStarted(name=key):
                if not self._open.begin(_STEP, key, ""):
                    return f"Step \"{key}\" is already active for 'STEP_STARTED'"
            case StepFinished(name=key):
                if not self._open.end(_STEP, key):
                    return f"Cannot send 'STEP_FINISHED' for step \"{key}\" that was not started"
            case ReasoningStart(message_id=key):
                self._open.begin(_THOUGHT, key, "")
            case ReasoningEnd(message_id=key):
                self._open.end(_THOUGHT, key)
            case Subagent():
                return self._subagent(event)
            case RunFinished():
                return self._finish()
            case RunFailed():
                self._close(RunFailed)
            case _:
                pass
        return None

    def _begin(self, kind: _Kind, key: str, name: str = "") -> str | None:
        if self._open.begin(kind, key, name):
            return None
        return (
            f"Cannot send '{kind.word}_START' event: A {kind.noun} with ID '{key}' is already "
            f"in progress. Complete it with '{kind.word}_END' first."
        )

    def _grow(self, kind: _Kind, key: str, piece: str) -> str | None:
        if key in self._open.by_kind[kind]:
            return None
        return (
            f"Cannot send '{kind.word}_{piece}' event: No active {kind.noun} found with ID "
            f"'{key}'. Start a {kind.noun} with '{kind.word}_START' first."
        )

    def _end(self, kind: _Kind, key: str) -> str | None:
        if self._open.end(kind, key):
            return None
        return (
            f"Cannot send '{kind.word}_END' event: No active {kind.noun} found with ID '{key}'. "
            f"A '{kind.word}_START' event must be sent first."
        )

    def _subagent(self, event: Subagent) -> str | None:
        key, word = event.subagent_id, _wire(event)
        is_open = key in self._open.by_kind[_SUBAGENT]
        if event.status != "started":
            if not is_open:
                return (
                    f"Cannot send '{word}': no active subagent found with ID '{key}'. A "
                    "'SUBAGENT_STARTED' event must be sent first."
                )
            self._open.end(_SUBAGENT, key)
            self._departed.add(key)
        elif is_open:
            return (
                f"Cannot send '{word}': subagent '{key}' is already active. Finish it with "
                "'SUBAGENT_FINISHED' first."
            )
        elif key in self._departed:
            return (
                f"Cannot send '{word}': subagent '{key}' has already finished in this run. "
                "Subagent IDs are per-invocation and cannot be reused."
            )
        else:
            self._open.begin(_SUBAGENT, key, "")
        return None

    def _finish(self) -> str | None:
        for kind in (_STEP, _TEXT, _CALL, _SUBAGENT):
            if keys := ", ".join(self._open.by_kind[kind]):
                return f"Cannot send 'RUN_FINISHED' while {kind.noun}s are still active: {keys}"
        self._close(RunFinished)
        return None

    def _close(self, last: type[RunFinished | RunFailed]) -> None:
        self._last = last
        self._open.clear()


def interrupted_result(failed: ErrorReport, *, is_complete: bool = False) -> str:
    """Return the result of an interrupted call, so that no client executes it.

    If the call `is_complete`, it may already have been executed.
    """
    status, reason = "error", "missing_terminal_event"
    if failed.code == Cancelled.code:
        status, reason = "stopped", "stop_requested"
    message = f"{_MAY_BE_DONE} {failed.message}" if is_complete else failed.message
    return dumps({"status": status, "reason": reason, "message": message}).decode()


def interrupted_call(
    call_id: str, name: str, failed: ErrorReport, *, is_complete: bool = False
) -> ActionExecutionResult:
    """Return the result of `interrupted_result` as an event."""
    return ActionExecutionResult(
        call_id=call_id,
        name=name,
        result=interrupted_result(failed, is_complete=is_complete),
        message_id=f"{call_id}-result",
    )


_WIRE = {
    "action_execution_start": "TOOL_CALL_START",
    "action_execution_args": "TOOL_CALL_ARGS",
    "action_execution_end": "TOOL_CALL_END",
    "action_execution_result": "TOOL_CALL_RESULT",
    "reasoning_content": "REASONING_MESSAGE_CONTENT",
    "reasoning_signature": "REASONING_ENCRYPTED_VALUE",
    "agent_state": "STATE_SNAPSHOT",
    "activity": "ACTIVITY_SNAPSHOT",
    "interrupt": "CUSTOM",
    "usage": "CUSTOM",
    "run_failed": "RUN_ERROR",
}


def _wire(event: Event) -> str:
    """Return the AG-UI name of an event."""
    if isinstance(event, Subagent):
        ending = {"started": "STARTED", "finished": "FINISHED", "failed": "ERROR"}
        return f"SUBAGENT_{ending[event.status]}"
    return _WIRE.get(event.type, event.type.upper())


Kind = TypeVar("Kind")
Value = TypeVar("Value")


class OpenItems(Generic[Kind, Value]):
    """The open items of a run, each with a kind, an id and a value.

    `by_kind` has the ids of each kind with their values, for reading.
    """

    def __init__(self) -> None:
        self.by_kind: Mapping[Kind, dict[str, Value]] = defaultdict(dict)
        self._order: dict[tuple[Kind, str], None] = {}

    def begin(self, kind: Kind, key: str, value: Value) -> bool:
        """Add an item. Returns False, and changes nothing, if it is open already."""
        if key in self.by_kind[kind]:
            return False
        self.by_kind[kind][key] = value
        self._order[kind, key] = None
        return True

    def end(self, kind: Kind, key: str) -> bool:
        """Remove an item. Returns whether it was open."""
        if key not in self.by_kind[kind]:
            return False
        del self.by_kind[kind][key]
        del self._order[kind, key]
        return True

    def list_innermost_first(self) -> list[tuple[Kind, str, Value]]:
        """Return the open items, the most recent first."""
        return [(kind, key, self.by_kind[kind][key]) for kind, key in reversed(self._order)]

    def clear(self) -> None:
        for items in self.by_kind.values():
            items.clear()
        self._order.clear()
