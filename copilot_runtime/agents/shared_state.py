"""The state that an application shares with the model, and the two actions to change it.

Names, descriptions and results of the actions are those of the Node runtime 1.74.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.events import AgentState
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.jsonpatch import apply_patch
from copilot_runtime.base.jsonvalue import parse_text

SNAPSHOT = "AGUISendStateSnapshot"
DELTA = "AGUISendStateDelta"
"""The action that applies a JSON patch to the state."""

STATE_ACTIONS = frozenset({SNAPSHOT, DELTA})

_OPERATIONS = ("add", "replace", "remove")
"""The operations of RFC 6902 that cannot multiply the state (`copy` can)."""

_SNAPSHOT_SCHEMA = {
    "type": "object",
    "properties": {
        "snapshot": {"type": "object", "description": "The complete new state object"},
    },
    "required": ["snapshot"],
}
_OPERATION_SCHEMA = {
    "type": "object",
    "properties": {
        "op": {
            "type": "string",
            "enum": list(_OPERATIONS),
            "description": "The operation to perform",
        },
        "path": {"type": "string", "description": "JSON Pointer path (e.g., '/foo/bar')"},
        "value": {
            "description": "The value to set. Required for 'add' and 'replace' operations, "
            "ignored for 'remove'."
        },
    },
    "required": ["op", "path"],
}
_DELTA_SCHEMA = {
    "type": "object",
    "properties": {
        "delta": {
            "type": "array",
            "items": _OPERATION_SCHEMA,
            "description": "Array of JSON Patch operations",
        },
    },
    "required": ["delta"],
}
_SNAPSHOT_ACTION = Action(
    name=SNAPSHOT,
    description="Replace the entire application state with a new snapshot",
    parameters=_SNAPSHOT_SCHEMA,
)
_DELTA_ACTION = Action(
    name=DELTA,
    description="Apply incremental updates to application state using JSON Patch operations",
    parameters=_DELTA_SCHEMA,
)


class SharedState:
    """The shared state during one run: its current `value`, and the state after each call."""

    def __init__(self, run: RunInput, value: Any) -> None:
        self.value = value
        self.is_offered = True
        """Whether the model is offered the actions; `False` if it takes no tools."""
        self._run = run
        self._changes: dict[str, AgentState] = {}

    def actions(self) -> Sequence[Action]:
        """Return the actions by which the model changes the state."""
        return [
            copy_with(_SNAPSHOT_ACTION, run=self._replace),
            copy_with(_DELTA_ACTION, run=self._patch),
        ]

    def pop_change(self, call_id: str) -> AgentState | None:
        """Remove and return the state after a call, None if the call did not change it."""
        return self._changes.pop(call_id, None)

    async def _replace(self, arguments: Mapping[str, Any], context: ActionContext) -> Any:
        if "snapshot" not in arguments:
            raise InvalidArguments("snapshot: missing")
        snapshot = parse_text(arguments["snapshot"])  # models put JSON text inside of their JSON
        self._change(snapshot, context)
        return {"success": True, "snapshot": snapshot}

    async def _patch(self, arguments: Mapping[str, Any], context: ActionContext) -> Any:
        delta = _operations(parse_text(arguments.get("delta")))
        try:
            state = apply_patch(self.value, delta)
        except ValueError as error:
            raise InvalidArguments(f"The state stays as it is: {error}") from None
        self._change(state, context)
        return {"success": True, "delta": delta}

    def _change(self, state: Any, context: ActionContext) -> None:
        self.value = state
        self._changes[context.call_id] = AgentState(
            agent=self._run.agent_name,
            state=state,
            thread_id=self._run.thread_id,
            run_id=self._run.run_id,
        )


def find_shared_state(run: RunInput) -> SharedState | None:
    """Return the state that a client shares in `run.agents`, or `None`.

    It is `None` if the model must call another tool, or if the application has actions with the
    same names.
    """
    agent = run.agents.get(run.agent_name)
    if agent is None or agent.state is None or run.is_v1:
        return None
    if run.parameters.tool_choice in ("function", "none"):
        return None
    if any(action.name in STATE_ACTIONS for action in run.actions):
        return None
    return SharedState(run, agent.state)


def _operations(delta: Any) -> list[Any]:
    if not isinstance(delta, list):
        raise InvalidArguments("delta: not a list of operations")
    operations = cast("list[Any]", delta)
    for at, operation in enumerate(operations):
        if not isinstance(operation, dict) or operation.get("op") not in _OPERATIONS:
            raise InvalidArguments(f"delta.{at}.op: none of {', '.join(_OPERATIONS)}")
    return operations
