"""The state of a graph as the page shows it, with what a call being written will change in it."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.agents.prediction import Prediction
from copilot_runtime.api.events import AgentState, Event
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.frameworks.langgraph.request import filter_state
from copilot_runtime.extensions.frameworks.langgraph.thread_sync import GraphThread


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
        """Take the rules by which arguments of calls become keys of the state."""
        self._prediction.expect(rules)

    def update(self, values: Mapping[str, Any], *, nested: bool) -> list[Event]:
        """Take a state of the graph, or, nested, of a subgraph, which shares some of its keys."""
        state = filter_state(values, self._keys)
        self._state = {**self._state, **state} if nested else state
        for key, (before, _) in [*self._changes.items()]:
            if self._state.get(key) != before:  # the graph has written it
                del self._changes[key]
        return self._emit()

    def merge(self, values: Mapping[str, Any]) -> list[Event]:
        """Take values that a node emits for the page, whatever the graph puts out."""
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
