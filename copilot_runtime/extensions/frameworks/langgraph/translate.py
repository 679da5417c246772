"""Translates the stream of a LangGraph run into our events.

The stream is that of LangGraph's API with the modes `request.STREAM_MODES`, from a server or from a
graph in this process: pairs of a name, such as `values` or `events|subgraph`, and data in JSON.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from copilot_runtime.agents.prediction import Prediction
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.events import (
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    StepFinished,
    StepStarted,
    TextMessageContent,
)
from copilot_runtime.api.messages import ActionExecutionMessage, Message
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject, as_object, get_object, to_text
from copilot_runtime.extensions.frameworks.langgraph.conversation import Conversation
from copilot_runtime.extensions.frameworks.langgraph.copies import Copies
from copilot_runtime.extensions.frameworks.langgraph.errors import explain_failure
from copilot_runtime.extensions.frameworks.langgraph.message_stream import (
    MessageStream,
    SubagentTracker,
)
from copilot_runtime.extensions.frameworks.langgraph.messages import (
    encode_langchain,
    extract_text,
    is_placeholder,
    normalize_messages,
    parse_tool_calls,
    parse_tool_results,
    read_kind,
)
from copilot_runtime.extensions.frameworks.langgraph.request import filter_state, parse_interrupts
from copilot_runtime.extensions.frameworks.langgraph.thread_sync import (
    GraphThread,
    find_missing_inputs,
)

_MANUAL = "copilotkit_manually_emit_"
_RULES = ("copilotkit:emit-intermediate-state", "predict_state")


class Translator:
    """Translates one run of a graph; `page` is the conversation on the page.

    `question` is the id of a question on the page that is answered again. `ended` is set when no
    more events matter, `failure` when the run failed. `unknown_types` are those of the events that
    were left out.
    """

    def __init__(
        self,
        run: RunInput,
        thread: GraphThread,
        page: Sequence[Message],
        question: str | None,
    ) -> None:
        self.ended = False
        self.failure: CopilotError | None = None
        self._agent = run.agent_name
        self._missing = find_missing_inputs(run, thread)
        self._run_id: Any = None
        self._names = thread.names
        self._stream = MessageStream(thread.names)
        self._actions = {action.name for action in run.actions}
        self._call_names: dict[str, str] = {}
        self._manual_calls: set[str] = set()
        """Calls that a node has emitted without a model."""
        self._results: set[str] = set()
        """Ids of the calls with a result."""
        self._state = StateTracker(run, thread)
        self._steps = StepTracker()
        self._subagents = SubagentTracker()
        self._events: list[Event] = []
        before = normalize_messages(thread.values.get("messages"))
        self._copies = Copies(before, thread.names.restore(encode_langchain(page)))
        self._conversation = Conversation(page, thread.names.rename(before), question)
        self._messages: Sequence[JsonObject] = ()
        self._interrupts: dict[str, Interrupt] = {}
        self.unknown_types: set[str] = set()

    def can_lose(self, name: str) -> bool:
        """Return whether an event that cannot be read is not of a call, and not the failure."""
        return name != "error" and self._run_id is not None and not self._stream.has_open_call

    def feed(self, name: str, data: Any) -> list[Event]:
        """Return the events for one item of the stream."""
        events = self._translate(name, data)
        self._events += (event for event in events if not isinstance(event, AgentState))
        return events

    def finish(self) -> list[Event]:
        """Return the events that end a run without failure, interrupts last.

        A snapshot of the conversation is included if the graph has changed what the page shows.
        """
        events = self._stream.close()
        events += self._subagents.finish_all()
        events += self._steps.leave_all()
        events += self._state.finish()
        new = fold_messages(self._events)
        pending, emitted = self._find_pending_calls(new), self._stream.manual_texts
        messages = self._conversation.build_snapshot(new, pending, emitted, self._copies.ids)
        if messages is not None:
            events.append(MessagesSnapshot(messages=messages))
        return [*events, *self._interrupts.values()]

    def _translate(self, name: str, data: Any) -> list[Event]:
        kind, _, namespace = name.partition("|")
        fields = as_object(data)
        match kind:
            case "events":
                return self._translate_event(fields)
            case "values":
                return self._translate_values(fields, namespace)
            case "updates":
                self._collect_interrupts(fields)
            case "custom":
                return [Custom(name="custom", value=data)]
            case "metadata":
                self._run_id = fields.get("run_id", self._run_id)
            case "error":
                self._fail(fields)
            case "end":
                self.ended = True
            case _:
                self.unknown_types.add(kind)
        return []

    def _translate_event(self, event: JsonObject) -> list[Event]:
        metadata = as_object(event.get("metadata"))
        match event.get("event"):
            case "on_chat_model_stream":
                for key in _RULES:
                    if key in metadata:
                        self._state.expect(metadata[key])
                return self._record(self._stream.feed_chunk(event))
            case "on_chat_model_end":
                return self._record(self._stream.finish_model(event))
            case "on_custom_event":
                return self._translate_custom(str(event.get("name")), event.get("data"))
            case "on_tool_start":
                self._subagents.start_tool(event)
            case "on_tool_end":
                results = parse_tool_results(get_object(event, "data").get("output"))
                results = self._names.rename(results)
                if ends := self._subagents.finish_tool(event, results):
                    ends = [*self._steps.leave(), *ends]
                return ends + [one for m in results for one in self._translate_result(m)]
            case "on_tool_error":
                return self._subagents.fail_tool(event)
            case "on_chain_start":
                events = self._subagents.start_chain(event, metadata)
                if _is_node(event, metadata):
                    events += self._steps.enter(str(event["name"]))
                return events
            case "on_chain_end":
                if _is_node(event, metadata):
                    self._steps.finish(str(event["name"]))
                # the root's end is the run's; there is no other sign that a stream is whole
                self.ended = event.get("run_id") == self._run_id is not None
            case _:
                pass
        return []

    def _translate_values(self, values: JsonObject, namespace: str) -> list[Event]:
        """Translate a state of the graph, or, with a namespace, of a subgraph."""
        self._collect_interrupts(values)
        # the page may still send the results for which a placeholder stands
        messages = normalize_messages(values.get("messages"))
        messages = self._names.rename(self._copies.resolve(messages, nested=bool(namespace)))
        messages = [message for message in messages if not is_placeholder(message)]
        events: list[Event] = []
        for message in self._conversation.find_new(messages):
            if read_kind(message) == "ai":
                events += self._record(self._stream.emit_message(message))
            elif read_kind(message) == "tool":
                events += self._translate_result(message)
        if namespace:
            if not self._subagents.contains(namespace):  # a subagent has a state of its own
                events += self._state.update(values, nested=True)
            return events
        if "messages" in values:
            self._messages = messages
            self._conversation.update(messages, values)
        events += self._state.update(values, nested=False)
        return events + self._steps.leave_all()

    def _translate_custom(self, name: str, data: Any) -> list[Event]:
        """Translate an event of a node; some names are those of CopilotKit's SDK."""
        fields = as_object(data)
        match name.removeprefix(_MANUAL):
            case "message" if isinstance(id := fields.get("message_id"), str):
                text = extract_text(fields.get("message"))
                self._stream.manual_texts.add(text)
                return self._stream.emit_text(id, text)
            case "tool_call" if isinstance(id := fields.get("id"), str) and fields.get("name"):
                arguments = to_text(fields.get("args"))
                self._manual_calls.add(id)
                return self._record(self._stream.emit_call(id, str(fields["name"]), arguments))
            case "intermediate_state":
                return self._state.merge(fields)
            case "copilotkit_exit":
                return [Custom(name="Exit", value=True)]
            case "PredictState":
                self._state.expect(data)
                return []
            case _:
                return [Custom(name=name, value=data)]

    def _translate_result(self, message: JsonObject) -> list[Event]:
        call_id, id = message.get("tool_call_id"), message.get("id")
        if not isinstance(call_id, str) or call_id in self._results:
            return []
        self._results.add(call_id)
        name = self._call_names.get(call_id)
        if name is None and call_id in self._stream.ids:
            return []  # the call is hidden
        return [
            ActionExecutionResult(
                call_id=call_id,
                name=name or str(message.get("name") or ""),
                result=extract_text(message.get("content")),
                message_id=id if isinstance(id, str) else None,
            )
        ]

    def _record(self, events: Sequence[Event]) -> list[Event]:
        """Record the calls among events; return the events and the states predicted from them."""
        recorded: list[Event] = []
        for event in events:
            recorded.append(event)
            if not isinstance(event, TextMessageContent):  # nearly all events are this one
                if isinstance(event, ActionExecutionStart):
                    self._call_names[event.call_id] = event.name
                recorded += self._state.predict(event)
        return recorded

    def _find_pending_calls(self, new: Iterable[Message]) -> set[str]:
        """Return the ids of the calls for the page that the state does not contain.

        Other calls of a model, such as a router's choice, concern only the graph.
        """
        calls = (call for message in self._messages for call in parse_tool_calls(message))
        stored = self._results | {call["id"] for call in calls}
        return {
            call.id
            for call in new
            if isinstance(call, ActionExecutionMessage)
            and call.id not in stored
            and (call.id in self._manual_calls or call.name in self._actions)
        }

    def _collect_interrupts(self, values: Mapping[str, Any]) -> None:
        if items := values.get("__interrupt__"):
            self._interrupts |= {one.interrupt_id: one for one in parse_interrupts(items)}

    def _fail(self, error: JsonObject) -> None:
        kind, reason = str(error.get("error")), str(error.get("message"))
        self.ended = True
        self.failure = explain_failure(self._agent, kind, reason, self._missing) or AgentFailed(
            f"The agent {self._agent!r} failed: {kind[:200]}.",
            # the text of an exception may be secret
            hint=f"{kind}: {reason[:2_000]}",
        )


def _is_node(event: JsonObject, metadata: JsonObject) -> bool:
    """Return whether an event is of a node itself, and not of a runnable inside it."""
    name = event.get("name")
    return isinstance(name, str) and name == metadata.get("langgraph_node")


class StepTracker:
    """Tracks the nodes of a run as steps: one per node, whatever its number of branches."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._leaving: list[str] = []

    def enter(self, name: str) -> list[Event]:
        """Start a node; finish those that have ended before it."""
        events = self.leave()
        self._open[name] += 1
        return events if self._open[name] > 1 else [*events, StepStarted(name=name)]

    def finish(self, name: str) -> None:
        """Mark a node as ended. Its step ends later, when its state has come."""
        self._leaving.append(name)

    def leave(self) -> list[Event]:
        """End the steps of the nodes that have ended."""
        events: list[Event] = []
        for name in self._leaving:
            if not self._open[name]:
                continue
            self._open[name] -= 1
            if self._open[name] == 0:
                events.append(StepFinished(name=name))
        self._leaving.clear()
        return events

    def leave_all(self) -> list[Event]:
        """End all steps: interrupts and hand-offs to another graph leave some open."""
        rest = Counter(self._open)
        rest.subtract(self._leaving)
        self._leaving += [*rest.elements()][::-1]
        return self.leave()


class StateTracker:
    """Follows the state of a graph during one run, from that of its thread before the run."""

    def __init__(self, run: RunInput, thread: GraphThread) -> None:
        self._run = run
        self._keys = thread.assistant.output_keys
        self._state = filter_state(thread.values, self._keys)
        self._snapshot: AgentState | None = None
        self._prediction = Prediction()
        self._changes: dict[str, tuple[Any, Any]] = {}  # key → value before, value to come

    def expect(self, rules: Any) -> None:
        """Set the rules by which call arguments predict keys of the state."""
        self._prediction.expect(rules)

    def update(self, values: Mapping[str, Any], *, nested: bool) -> list[Event]:
        """Apply a state of the graph, or of a subgraph (`nested`), which shares some keys."""
        state = filter_state(values, self._keys)
        self._state = {**self._state, **state} if nested else state
        for key, (before, _) in [*self._changes.items()]:
            if self._state.get(key) != before:  # the graph has written it
                del self._changes[key]
        return self._emit()

    def merge(self, values: Mapping[str, Any]) -> list[Event]:
        """Merge values that a node emits for the client, independent of the graph's output."""
        self._state = {**self._state, **filter_state(values)}
        return self._emit()

    def predict(self, event: Event) -> list[Event]:
        """Return the state that follows from an event of a call."""
        changes = self._prediction.feed(event)
        if not changes:
            return []
        for key, value in changes.items():
            before, _ = self._changes.get(key, (self._state.get(key), None))
            self._changes[key] = before, value
        return self._emit()

    def finish(self) -> list[Event]:
        """Return the last state, without predictions that did not come true."""
        self._changes.clear()
        return self._emit()

    def _emit(self) -> list[Event]:
        """Return the state, unless it equals the last one that was emitted."""
        changes: JsonObject = {key: value for key, (_, value) in self._changes.items()}
        snapshot = AgentState(
            agent=self._run.agent_name,
            state={**self._state, **changes},
            thread_id=self._run.thread_id,
            run_id=self._run.run_id,
        )
        if snapshot == self._snapshot or (self._snapshot is None and not snapshot.state):
            return []
        self._snapshot = snapshot
        return [snapshot]
