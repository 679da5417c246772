"""Predicts the state of an agent from the streamed arguments of a call.

An agent announces which argument of which tool will become which key of its state (`PredictState`
of AG-UI, `emit_intermediate_state` of CopilotKit); clients get the part that has arrived so far.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
)
from copilot_runtime.base.jsonvalue import JsonObject, as_objects, as_optional_text

_NO_CHANGE: Mapping[str, Any] = {}
_EVERY_PIECE = 2_000
"""Length up to which every chunk is parsed; longer arguments are parsed each time they grow 2 %."""


class Prediction:
    """The rules that an agent has announced, and the calls in progress."""

    def __init__(self) -> None:
        self._rules: list[JsonObject] = []
        self._calls: dict[str, _PartialArguments] = {}

    def expect(self, rules: Any) -> None:
        """Set the rules `[{state_key, tool, tool_argument}, ...]`.

        Without `tool_argument`, the value is all arguments.
        """
        self._rules = as_objects(rules)

    def stop(self) -> None:
        """Drop the rules and calls: a step has started, or ended."""
        self._rules = []
        self._calls.clear()

    def feed(self, event: Event) -> Mapping[str, Any]:
        """Return the state changes predicted from an event of a call; may be empty."""
        match event:
            case ActionExecutionStart(call_id=id, name=name):
                self._begin(id, name)
            case ActionExecutionArgs(call_id=id, delta=delta) if id in self._calls:
                return self._calls[id].grow(delta)
            case ActionExecutionEnd(call_id=id) if id in self._calls:
                return self._calls.pop(id).changes()
            case _:
                pass
        return _NO_CHANGE

    def _begin(self, call_id: str, name: str) -> None:
        for rule in self._rules:
            if rule.get("tool") == name and isinstance(rule.get("state_key"), str):
                argument = as_optional_text(rule.get("tool_argument"))
                self._calls[call_id] = _PartialArguments(rule["state_key"], argument)


class _PartialArguments:
    """The arguments of one call, as far as they have arrived."""

    def __init__(self, key: str, argument: str | None) -> None:
        self._key = key
        self._argument = argument
        self._pieces: list[str] = []
        self._size = self._parsed_size = 0
        self._value: Any = None

    def grow(self, delta: str) -> Mapping[str, Any]:
        self._pieces.append(delta)
        self._size += len(delta)
        # each time, everything is parsed from the start
        if self._size > _EVERY_PIECE and self._size < self._parsed_size * 1.02:
            return _NO_CHANGE
        return self.changes()

    def changes(self) -> Mapping[str, Any]:
        self._parsed_size = self._size
        try:
            arguments = from_json("".join(self._pieces), allow_partial="trailing-strings")
        except ValueError:
            return _NO_CHANGE
        if not isinstance(arguments, dict):
            return _NO_CHANGE
        value = arguments.get(self._argument) if self._argument else arguments
        if value is None or value == self._value:
            return _NO_CHANGE
        self._value = value
        return {self._key: value}
