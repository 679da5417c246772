"""Translates the progress of an agent into states for a CopilotKit v1 client: a stage.

The v1 protocol has no steps, no snapshots of messages and no custom events. In their place, its
clients get states of the agent, as `convertToLegacyEvents` of @ag-ui/client 0.0.39 sends them.
Other than there, an agent that has ended is not `running`, unless it waits for the browser or a
person.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from enum import Enum, auto
from typing import Any, get_args

from copilot_runtime.agents.prediction import Prediction
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Custom,
    Event,
    Events,
    Interrupt,
    MessagesSnapshot,
    RunFinished,
    StepFinished,
    StepStarted,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    Role,
    TextMessage,
    new_id,
)
from copilot_runtime.api.run_input import AgentInput, RunInput
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_object,
    as_objects,
    as_optional_text,
    parse_object,
    to_text,
)


def track_v1_state(events: Events, run: RunInput, *, is_handoff: bool = False) -> Events:
    """Add states of the agent for a v1 client; for any other run, return the events as they are.

    With `is_handoff`, the model has handed off to the agent in the middle of the run, and the
    client learns only from a state which agent to send an answer to.
    """
    if run.agent is None or not run.is_v1:
        return events  # without a generator in between
    return _add_states(events, V1StateTracker(run, run.agent, is_handoff=is_handoff))


async def _add_states(events: Events, tracker: "V1StateTracker") -> Events:
    has_finished = False
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, RunFinished):
                    has_finished = True
                    for state in tracker.finish():
                        yield state
                for translated in tracker.feed(event):
                    yield translated
    except Exception:  # whatever it is, the client must not show the agent as running
        for state in tracker.fail():
            yield state
        raise
    if not has_finished:
        for state in tracker.finish():
            yield state


class Phase(Enum):
    """The source of the agent's node and activity."""

    INFERRED = auto()
    """From steps and snapshots."""
    REPORTED = auto()
    """From the agent itself, which reports states of v1, also whether it runs on."""
    EXITED = auto()
    """The agent has exited (`copilotkit_exit`): after the run, it does not run on."""


class V1StateTracker:
    """The state of one agent during one run, as the client knows it."""

    def __init__(self, run: RunInput, agent: str, *, is_handoff: bool) -> None:
        state = as_object(run.agents.get(agent, AgentInput()).state)
        self._state = AgentState(
            agent=agent,
            state=_drop_messages(state),
            thread_id=run.thread_id,
            run_id=run.run_id,
        )
        self._emitted: AgentState | None = None
        """The last state that the client got; with the messages of a snapshot."""
        self._messages: Sequence[Mapping[str, Any]] = ()
        self._phase = Phase.INFERRED
        self._prediction = Prediction()
        self._pending = _Pending(action.name for action in run.actions if action.in_browser)
        self._other: AgentState | None = None
        """The state of another agent that waits for a person's answer."""
        self._is_handoff = is_handoff

    def feed(self, event: Event) -> list[Event]:
        """Return the event in its v1 form, and the resulting state."""
        match event:
            case AgentState():
                return [self._report(event)]
            case StepStarted(name=name):
                self._prediction.stop()
                return [event, self._emit(node=name, active=True)]
            case StepFinished():
                self._prediction.stop()
                return [event, self._emit(active=False)]
            case MessagesSnapshot(messages=messages):
                self._messages = encode_messages(messages)
                return [event, self._emit(active=True)]
            case ActionExecutionStart(call_id=id, name=name):
                self._pending.add_call(id, name)
                self._prediction.feed(event)
            case ActionExecutionArgs() | ActionExecutionEnd():
                return [event, *self._predict(self._prediction.feed(event))]
            case ActionExecutionResult(call_id=id):
                self._pending.remove(id)
            case Interrupt():
                return [event] if self._pending.add_interrupt(event) else []
            case Custom():
                return [self._translate_custom(event)]
            case _:
                pass
        return [event]

    def finish(self) -> list[Event]:
        """Return the last states of a run that has ended, if the client does not have them."""
        if self._phase is Phase.REPORTED and not self._state.active:
            return []  # the agent's own state was the last one
        # the client sends an answer to the agent whose state is running
        must_show = self._is_handoff and bool(self._pending)
        is_running = self._phase is not Phase.EXITED and bool(self._pending) and not self._other
        return self._emit_last(is_running=is_running, must_show=must_show)

    def fail(self) -> list[Event]:
        """Return the last state of a run that has failed: the agent does not run on."""
        return self._emit_last(is_running=False, must_show=False)

    def _emit_last(self, *, is_running: bool, must_show: bool) -> list[Event]:
        before = self._emitted
        if before is None and not self._state.state and not must_show:
            return []
        last = self._emit(active=False, running=is_running)
        if last == before:
            return []
        return [last] if self._other is None else [last, self._other]  # the last one gets answers

    def _emit(self, **changes: Any) -> AgentState:
        self._state = self._emitted = replace(self._state, **changes)
        if self._messages:
            state = {**self._state.state, "messages": self._messages}
            self._emitted = replace(self._state, state=state)
        return self._emitted

    def _report(self, event: AgentState) -> AgentState:
        """Return a state of the agent, complete, or one of another agent as it is."""
        last = self._state
        if event.agent not in ("", last.agent):
            # an agent that works for this one, or has taken over
            self._other = event if event.running and not event.active else None
            return event
        event = replace(
            event,
            agent=last.agent,
            thread_id=event.thread_id or last.thread_id,
            run_id=event.run_id or last.run_id,
        )
        if event.node:
            if self._phase is Phase.INFERRED:
                self._phase = Phase.REPORTED
        else:
            state = _drop_messages(event.state)
            event = replace(event, state=state, node=last.node, active=last.active)
        self._state = self._emitted = event
        return event

    def _predict(self, changes: Mapping[str, Any]) -> list[Event]:
        return [self._emit(state={**self._state.state, **changes})] if changes else []

    def _translate_custom(self, event: Custom) -> Event:
        match event.name:
            case "Exit":
                self._phase = Phase.EXITED
            case "PredictState":
                self._prediction.expect(event.value)
            case "on_interrupt" | "CopilotKitLangGraphInterruptEvent":
                interrupt = _decode_interrupt(event)
                self._pending.add_custom_interrupt(interrupt)
                return interrupt
            case _:
                pass
        return event


class _Pending:
    """Calls of the browser, and interrupts, that have no answer yet."""

    def __init__(self, browser: Iterable[str]) -> None:
        self._browser = frozenset(browser)
        self._ids: set[str] = set()
        self._has_custom = False

    def __bool__(self) -> bool:
        return bool(self._ids)

    def add_call(self, id: str, name: str) -> None:
        if name in self._browser:
            self._ids.add(id)

    def add_interrupt(self, interrupt: Interrupt) -> bool:
        """Add an interrupt. Return False for one that repeats a custom event."""
        if self._has_custom and not interrupt.messages:
            return False
        self._ids.add(interrupt.interrupt_id)
        return True

    def add_custom_interrupt(self, interrupt: Interrupt) -> None:
        self._has_custom = True
        self._ids.add(interrupt.interrupt_id)

    def remove(self, id: str) -> None:
        self._ids.discard(id)


def _decode_interrupt(event: Custom) -> Interrupt:
    """Return the interrupt in a custom event, of agents older than interrupts in AG-UI."""
    if event.name == "on_interrupt" or not isinstance(event.value, dict):
        return Interrupt(interrupt_id=new_id(), value=event.value)
    return decode_interrupt(event.value)


def _drop_messages(state: Any) -> JsonObject:
    """Return a state in its v1 form: an object without `messages`, which are those of the chat."""
    return {key: value for key, value in as_object(state).items() if key != "messages"}


_ROLES: Mapping[Any, Role] = {role: role for role in get_args(Role)}


def encode_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the JSON of texts that are not empty, calls and results; v1 has no other messages."""
    return [item for message in messages if (item := _encode_message(message)) is not None]


def decode_messages(items: Any) -> list[Message]:
    """Return the messages in such a list; other items are left out."""
    return [m for item in as_objects(items) if (m := _decode_message(item)) is not None]


def decode_interrupt(data: Mapping[str, Any]) -> Interrupt:
    """Return the interrupt in an event `CopilotKitLangGraphInterruptEvent`."""
    messages = decode_messages(data.get("messages"))
    return Interrupt(interrupt_id=new_id(), value=data.get("value"), messages=messages)


def _encode_message(message: Message) -> dict[str, Any] | None:
    match message:
        case TextMessage() if message.content:
            return {"id": message.id, "role": message.role, "content": message.content}
        case ActionExecutionMessage():
            return {
                "id": message.id,
                "name": message.name,
                "arguments": parse_object(message.arguments),
                "parentMessageId": message.parent_id,
            }
        case ResultMessage():
            return {
                "id": message.id,
                "result": message.result,
                "actionExecutionId": message.call_id,
                "actionName": message.name,
            }
        case _:
            return None


def _decode_message(item: Mapping[str, Any]) -> Message | None:
    id = item.get("id")
    id = id if isinstance(id, str) and id else new_id()
    parent = as_optional_text(item.get("parentMessageId"))
    match item:
        case {"content": str(content)}:
            role = _ROLES.get(str(item.get("role")), "assistant")
            return TextMessage(id=id, role=role, content=content, parent_id=parent)
        case {"name": str(name), "arguments": arguments}:
            text = to_text(arguments)
            return ActionExecutionMessage(id=id, name=name, arguments=text, parent_id=parent)
        case {"actionExecutionId": str(call_id), "result": result}:
            text = to_text(result)
            name = str(item.get("actionName") or "")
            return ResultMessage(id=id, call_id=call_id, name=name, result=text)
        case _:
            return None
