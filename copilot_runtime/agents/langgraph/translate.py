"""What a LangGraph run tells, event by event, becomes our events."""

from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.agents.langgraph.client_view import Page
from copilot_runtime.agents.langgraph.interrupts import read
from copilot_runtime.agents.langgraph.message_stream import Speech
from copilot_runtime.agents.langgraph.messages import (
    calls_of,
    decode,
    is_interrupted,
    kind_of,
    plain,
    text_of,
    unpacked,
)
from copilot_runtime.agents.langgraph.request import Assistant, visible
from copilot_runtime.agents.langgraph.steps import Steps
from copilot_runtime.agents.prediction import Prediction
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.errors import CopilotError
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
)
from copilot_runtime.interfaces import RunInput
from copilot_runtime.jsonvalue import JsonObject, as_object, as_optional_text, get_object, to_text
from copilot_runtime.messages import ActionExecutionMessage, Message

_BY_HAND = "copilotkit_manually_emit_"
_RULES = ("copilotkit:emit-intermediate-state", "predict_state")


class Told:
    """Reads the events of one run of the graph behind the agent `name`.

    `before` is the state of the thread until now, `client` the conversation that the page shows.
    `ended` means that nothing of interest follows, `failure` why the run did not end well.
    """

    def __init__(
        self,
        run: RunInput,
        name: str,
        assistant: Assistant,
        before: Mapping[str, Any],
        client: Sequence[JsonObject],
    ) -> None:
        self.ended = False
        self.failure: CopilotError | None = None
        self._run = run
        self._name = name
        self._keys = assistant.output_keys
        self._run_id: Any = None
        self._speech = Speech()
        self._known = {m["id"] for m in (*plain(before.get("messages")), *client)}
        self._page = Page(client)
        self._messages: Sequence[JsonObject] | None = None
        self._by_hand: set[str] = set()
        self._state = visible(before, assistant.output_keys)
        self._shown: AgentState | None = None
        self._prediction = Prediction()
        self._predicted: dict[str, tuple[Any, Any]] = {}  # key → what it was, what it will be
        self._calls: dict[str, str] = {}
        self._arguments: dict[str, list[str]] = {}
        self._results: set[Any] = set()
        self._steps = Steps()
        self._questions: dict[str, Interrupt] = {}

    def take(self, name: str, data: Any) -> list[Event]:
        """Return what one event of the stream says."""
        told = self._taken(name, data)
        self._page.take(told)
        return told

    def _taken(self, name: str, data: Any) -> list[Event]:
        kind, _, namespace = name.partition("|")
        fields = as_object(data)
        match kind:
            case "events":
                return self._event(fields)
            case "values":
                return self._values(fields, nested=bool(namespace))
            case "updates":
                self._ask(fields)
            case "custom":
                return [Custom(name="custom", value=data)]
            case "metadata":
                self._run_id = fields.get("run_id", self._run_id)
            case "error":
                self._fail(fields)
            case "end":
                self.ended = True
            case _:
                pass
        return []

    def finish(self) -> list[Event]:
        """Return what there is to say at the end of a run that went well."""
        told = self._speech.close()
        told += self._steps.leave_all()
        self._predicted.clear()
        told += self._show()
        messages = self._messages
        if messages is not None and not self._page.shows(messages):
            told.append(MessagesSnapshot(messages=[*decode(messages), *self._waiting(messages)]))
        return [*told, *self._questions.values()]

    def _event(self, event: JsonObject) -> list[Event]:
        metadata = get_object(event, "metadata")
        match event.get("event"):
            case "on_chat_model_stream":
                for key in _RULES:
                    if key in metadata:
                        self._prediction.expect(metadata[key])
                return self._predict(self._speech.chunk(event))
            case "on_chat_model_end":
                return self._predict(self._speech.end(event))
            case "on_custom_event":
                return self._emitted(str(event.get("name")), event.get("data"))
            case "on_tool_end":
                return self._result(unpacked(as_object(event.get("data")).get("output")))
            case "on_chain_start" if _is_node(event, metadata):
                return self._steps.enter(str(event["name"]))
            case "on_chain_end":
                if _is_node(event, metadata):
                    self._steps.through(str(event["name"]))
                # the root's end is the run's; there is no other sign that a stream is whole
                self.ended = event.get("run_id") == self._run_id is not None
            case _:
                pass
        return []

    def _values(self, values: JsonObject, *, nested: bool) -> list[Event]:
        """Take a state: of the graph, or, nested, of one that works in it and shares its keys."""
        self._ask(values)
        # the page may still answer what the model was told to be interrupted
        messages = [m for m in plain(values.get("messages")) if not is_interrupted(m)]
        told: list[Event] = []
        for message in messages:
            if message["id"] not in self._known:
                if kind_of(message) == "ai":
                    told += self._predict(self._speech.whole(message))
                elif kind_of(message) == "tool":
                    told += self._result(message)
        if not nested and "messages" in values:
            self._messages = messages
        state = visible(values, self._keys)
        self._state = {**self._state, **state} if nested else state
        for key, (before, _) in [*self._predicted.items()]:
            if self._state.get(key) != before:  # the graph has written it
                del self._predicted[key]
        told += self._show()
        return told if nested else told + self._steps.leave_all()

    def _emitted(self, name: str, data: Any) -> list[Event]:
        """Take what a node emits by itself; names are those of CopilotKit's SDK."""
        fields = as_object(data)
        match name.removeprefix(_BY_HAND):
            case "message" if isinstance(id := fields.get("message_id"), str):
                text = text_of(fields.get("message"))
                self._speech.texts.add(text)
                return self._speech.text(id, text)
            case "tool_call" if isinstance(id := fields.get("id"), str) and fields.get("name"):
                arguments = to_text(fields.get("args"))
                self._by_hand.add(id)
                return self._predict(self._speech.call(id, str(fields["name"]), arguments, None))
            case "intermediate_state":
                self._state = {**self._state, **visible(fields)}
                return self._show()
            case "copilotkit_exit":
                return [Custom(name="Exit", value=True)]
            case "PredictState":
                self._prediction.expect(data)
                return []
            case _:
                return [Custom(name=name, value=data)]

    def _predict(self, told: Sequence[Event]) -> list[Event]:
        """Add what the arguments of a call tell of the state to come."""
        events: list[Event] = []
        for event in told:
            events.append(event)
            match event:
                case ActionExecutionStart(call_id=id, name=name):
                    self._calls[id], self._arguments[id] = name, []
                    self._prediction.begin(id, name)
                    continue
                case ActionExecutionArgs(call_id=id, delta=delta):
                    self._arguments[id].append(delta)
                    changes = self._prediction.grow(id, delta)
                case ActionExecutionEnd(call_id=id):
                    changes = self._prediction.end(id)
                case _:
                    continue
            for key, value in changes.items():
                before, _ = self._predicted.get(key, (self._state.get(key), None))
                self._predicted[key] = before, value
            if changes:
                events += self._show()
        return events

    def _result(self, message: JsonObject) -> list[Event]:
        call_id, id = message.get("tool_call_id"), message.get("id")
        if not isinstance(call_id, str) or call_id in self._results:
            return []
        self._results.add(call_id)
        if call_id in self._speech.said and call_id not in self._calls:
            return []  # of a call that was not to be told
        own_id = as_optional_text(id)
        name = self._calls.get(call_id) or str(message.get("name") or "")
        result = text_of(message.get("content"))
        return [ActionExecutionResult(call_id=call_id, name=name, result=result, message_id=own_id)]

    def _show(self) -> list[Event]:
        """Show the state, if it is not the one that was shown last."""
        predicted = {key: value for key, (_, value) in self._predicted.items()}
        run = self._run
        state = AgentState(
            agent=self._name,
            state={**self._state, **predicted},
            thread_id=run.thread_id,
            run_id=run.run_id,
        )
        if state == self._shown or (self._shown is None and not state.state):
            return []
        self._shown = state
        return [state]

    def _ask(self, values: Mapping[str, Any]) -> None:
        questions = values.get("__interrupt__")
        if isinstance(questions, list):
            self._questions |= {one.interrupt_id: one for one in read(questions)}

    def _fail(self, error: JsonObject) -> None:
        kind, message = error.get("error"), error.get("message")
        self.ended = True
        self.failure = AgentFailed(
            f"The agent {self._name!r} failed: {str(kind)[:200]}.",
            # what an exception says may be meant for nobody outside
            hint=f"{kind}: {str(message)[:2_000]}",
        )

    def _waiting(self, messages: Sequence[JsonObject]) -> list[Message]:
        """Return the calls to the page that the state does not have: they are to be made.

        What a model calls otherwise, such as a router's choice, is the graph's own affair.
        """
        offered = {action.name for action in self._run.actions}
        kept = {call["id"] for message in messages for call in calls_of(message)}
        return [
            ActionExecutionMessage(id=id, name=name, arguments="".join(self._arguments[id]))
            for id, name in self._calls.items()
            if id not in kept | self._results and (id in self._by_hand or name in offered)
        ]


def _is_node(event: JsonObject, metadata: JsonObject) -> bool:
    """Say whether an event is of a node itself, and not of what runs in it."""
    name = event.get("name")
    return isinstance(name, str) and name == metadata.get("langgraph_node")
