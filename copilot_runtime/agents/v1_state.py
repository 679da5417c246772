"""What CopilotKit v1 shows of an agent at work: its node, its state, and when it wants a person.

A v1 client knows no steps, no snapshots of messages and no custom events. It is told all that by
states of the agent, as `convertToLegacyEvents` of @ag-ui/client 0.0.39 does; other than there, an
agent that has ended is no longer `running`, unless it waits for the browser or for a person.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from copilot_runtime.agents.copilotkit_form import decode_messages, encode_messages
from copilot_runtime.agents.prediction import Prediction
from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    RunFinished,
    StepFinished,
    StepStarted,
)
from copilot_runtime.interfaces import Events, RunInput
from copilot_runtime.messages import new_id


def track_v1_state(events: Events, run: RunInput, *, is_handoff: bool = False) -> Events:
    """Tell a v1 client by states how an agent gets on: a stage; all other runs stay as they are.

    A client that the model has handed off to the agent does not know yet whom to answer.
    """
    if run.agent is None or not run.is_v1:
        return events  # nobody pays for what is not for them
    return _shown(events, _Progress(run, run.agent, is_handoff))


async def _shown(events: Events, progress: "_Progress") -> Events:
    try:
        async with aclosing(events):
            async for event in events:
                for told in progress.told(event):
                    yield told
    except Exception:  # whatever it is, the client must not believe that the agent still works
        for told in progress.end(waits=False):
            yield told
        raise
    if not progress.ended:
        for told in progress.end():
            yield told


class _Progress:
    """What the client knows of the agent during one run."""

    def __init__(self, run: RunInput, agent: str, is_handoff: bool) -> None:
        known = run.agents.get(agent)
        state = known.state if known is not None and isinstance(known.state, dict) else {}
        self.ended = False
        self._last = AgentState(
            agent=agent,
            state=_without_messages(state),
            thread_id=run.thread_id,
            run_id=run.run_id,
        )
        self._told: AgentState | None = None
        self._messages: Sequence[Mapping[str, Any]] = ()
        self._prediction = Prediction()
        self._browser = {action.name for action in run.actions if action.in_browser}
        self._unanswered: set[str] = set()
        self._asked = False
        self._is_handoff = is_handoff
        self._other_waits: AgentState | None = None
        self._exited = False
        self._speaks = False
        """Whether it knows the words of v1, and says itself where it is and whether it goes on."""

    def told(self, event: Event) -> list[Event]:
        """Return the event, as a v1 client understands it, and what it means for the state."""
        match event:
            case AgentState():
                return [self._state(event)]
            case StepStarted(name=name):
                self._prediction.stop()
                return [event, self._shown(node=name, active=True)]
            case StepFinished():
                self._prediction.stop()
                return [event, self._shown(active=False)]
            case MessagesSnapshot(messages=messages):
                self._messages = encode_messages(messages)
                return [event, self._shown(active=True)]
            case ActionExecutionStart(call_id=id, name=name):
                if name in self._browser:
                    self._unanswered.add(id)
                self._prediction.begin(id, name)
            case ActionExecutionArgs(call_id=id, delta=delta):
                return self._predicted(event, self._prediction.grow(id, delta))
            case ActionExecutionEnd(call_id=id):
                return self._predicted(event, self._prediction.end(id))
            case ActionExecutionResult(call_id=id):
                self._unanswered.discard(id)
            case Interrupt():
                if self._asked and not event.messages:  # the same question, in the words of AG-UI
                    return []
                self._unanswered.add(event.interrupt_id)
            case Custom():
                return self._custom(event)
            case RunFinished():
                self.ended = True
                return [*self.end(), event]
            case _:
                pass
        return [event]

    def end(self, *, waits: bool = True) -> list[Event]:
        """Return the agent's last state, if there is one that the client has not seen."""
        # whoever has to act sends the answer to the agent that is known to be running
        unknown = self._is_handoff and waits and self._unanswered
        if self._told is None and not self._last.state and not unknown:
            return []
        if self._speaks and waits and not self._last.active:
            return []  # that was its last word
        other = self._other_waits
        running = waits and not self._exited and bool(self._unanswered) and other is None
        told, last = self._told, self._shown(active=False, running=running)
        if last == told:
            return []
        return [last] if other is None else [last, other]  # the last one gets the answer

    def _state(self, event: AgentState) -> AgentState:
        if event.agent not in ("", self._last.agent):
            # of another that works for this one, or has taken over
            self._other_waits = event if event.running and not event.active else None
            return event
        last = self._last
        event = replace(
            event,
            agent=last.agent,
            thread_id=event.thread_id or last.thread_id,
            run_id=event.run_id or last.run_id,
        )
        if not event.node:  # it leaves it to us to say where it is
            event = replace(
                event,
                state=_without_messages(event.state),
                node=last.node,
                active=last.active,
            )
        else:
            self._speaks = True
        self._last = self._told = event
        return event

    def _shown(self, **changes: Any) -> AgentState:
        self._last = self._told = replace(self._last, **changes)
        if self._messages:
            state = {**self._last.state, "messages": self._messages}
            self._told = replace(self._last, state=state)
        return self._told

    def _predicted(self, event: Event, predicted: Mapping[str, Any]) -> list[Event]:
        if not predicted:
            return [event]
        return [event, self._shown(state={**self._last.state, **predicted})]

    def _custom(self, event: Custom) -> list[Event]:
        match event.name:
            case "Exit":
                self._exited = True
            case "PredictState":
                self._prediction.expect(event.value)
            case "on_interrupt" | "CopilotKitLangGraphInterruptEvent":
                self._asked = True
                interrupt = _interrupt(event)
                self._unanswered.add(interrupt.interrupt_id)
                return [interrupt]
            case _:
                pass
        return [event]


def _interrupt(event: Custom) -> Interrupt:
    """Return what an agent asks that does not know of interrupts in AG-UI itself."""
    id, value = new_id(), event.value
    if event.name == "on_interrupt" or not isinstance(value, dict):
        return Interrupt(interrupt_id=id, value=value)
    asked, messages = value.get("value"), decode_messages(value.get("messages"))
    return Interrupt(interrupt_id=id, value=asked, messages=messages)


def _without_messages(state: Any) -> Any:
    """Return a state as v1 knows it: an object, in which messages are those of the chat."""
    if not isinstance(state, dict):
        return {}
    return {key: value for key, value in state.items() if key != "messages"}
