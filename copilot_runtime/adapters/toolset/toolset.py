"""The tools of a request as one provider takes them, prepared once for each list of actions.

All adapters use it. A tool that a provider would refuse is adapted, or left out alone, because its
request would be refused with all others in it. Names that a provider does not accept have aliases:
those of tools in `tools.py`, those of parameters here, in both directions.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from operator import attrgetter

from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.tools import select_available
from copilot_runtime.adapters.toolset.repair import UnusableSchema
from copilot_runtime.adapters.toolset.rules import COMMON, TOOL_RULES, ToolRules
from copilot_runtime.adapters.toolset.schema import SCHEMA_BYTES, ToolSchema, adapt_schema
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
    Events,
)
from copilot_runtime.api.messages import ActionExecutionMessage, Message
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps, join_pieces
from copilot_runtime.base.jsonvalue import parse_object
from copilot_runtime.base.outages import OnceLogger

_LISTS = 128
"""The lists of actions that stay prepared, and the origins whose tools are reported."""

_get_content = attrgetter(
    *("name", "description", "parameters", "available", "in_browser", "mcp_server", "origin")
)

logger = logging.getLogger(__name__)

Keys = Mapping[str, Mapping[str, str]]
"""Action → sent name → own name of its parameters."""


@dataclass(frozen=True, slots=True)
class PreparedTools:
    """The actions of a request with the schemas for one provider."""

    actions: Sequence[Action]
    keys: Keys = field(default_factory=dict[str, Mapping[str, str]])
    """The parameters that are renamed."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Action → the reason why it is left out."""

    def apply(self, request: ChatRequest) -> ChatRequest:
        """Return the request with these actions, and with the sent names in earlier calls.

        Raises `Misuse` if the model must call an action that is left out.
        """
        parameters = request.parameters
        if parameters.tool_choice == "function" and self.left_out:
            name = parameters.tool_choice_name or ""
            if name in self.left_out:
                raise Misuse(f"The tool {name!r} must be called, but {self.left_out[name]}.")
        if not self.keys:
            return copy_with(request, actions=self.actions)
        messages = [self._encode(message) for message in request.messages]
        return copy_with(request, actions=self.actions, messages=messages)

    def _encode(self, message: Message) -> Message:
        if not isinstance(message, ActionExecutionMessage) or message.name not in self.keys:
            return message
        names = {own: sent for sent, own in self.keys[message.name].items()}
        return replace(message, arguments=_rename(message.arguments, names))

    async def decode(self, events: Events) -> Events:
        """Yield the events, with the own names of parameters.

        The arguments of a call with other names are one event, at its end.
        """
        open_calls: dict[str, tuple[Mapping[str, str], list[str]]] = {}
        async with aclosing(events) as source:
            async for event in source:
                match event:
                    case ActionExecutionStart(call_id=call_id, name=name) if name in self.keys:
                        open_calls[call_id] = (self.keys[name], [])
                    case ActionExecutionArgs(call_id=call_id, delta=delta) if call_id in open_calls:
                        open_calls[call_id][1].append(delta)
                        continue
                    case ActionExecutionEnd(call_id=call_id) if call_id in open_calls:
                        names, pieces = open_calls.pop(call_id)
                        yield _build_arguments(call_id, names, pieces)
                    case _:
                        pass
                yield event
        for call_id, (names, pieces) in open_calls.items():
            yield _build_arguments(call_id, names, pieces)


class Toolset:
    """Prepares the actions of requests for a provider, and warns once of each tool it changes.

    `provider` is the name in messages, `rules` the name of the adapter in `TOOL_RULES`.
    """

    def __init__(self, provider: str, rules: str) -> None:
        self._provider = provider
        self._rules = TOOL_RULES.get(rules, COMMON)
        self._prepared: OrderedDict[bytes, PreparedTools] = OrderedDict()
        self._log = OnceLogger(logger)
        self._missing: dict[str, dict[str, str]] = {}
        """Origin → tool of the server → the reason why it is left out."""

    def stream(self, request: ChatRequest, stream: Callable[[ChatRequest], Events]) -> Events:
        """Return the events of a request that has actions; `stream` sends the prepared one."""
        tools = self.prepare(request.actions)
        events = stream(tools.apply(request))
        return tools.decode(events) if tools.keys else events

    def prepare(self, actions: Sequence[Action]) -> PreparedTools:
        """Return the prepared tools of a list of actions; those of an equal list are kept."""
        key = _find_key(actions)
        if key is not None and (ready := self._prepared.get(key)) is not None:
            return ready
        prepared = self._prepare(actions)
        if key is not None:
            self._prepared[key] = prepared
            if len(self._prepared) > _LISTS:
                self._prepared.popitem(last=False)
        return prepared

    def list_missing(self) -> Sequence[str]:
        """Return a sentence for each tool of the server that is left out at the moment."""
        return [
            f"tools: {_name(tool, origin)} is not offered to {self._provider}: {reason}"
            for origin, found in self._missing.items()
            for tool, reason in found.items()
        ]

    def _prepare(self, actions: Sequence[Action]) -> PreparedTools:
        offered = select_available(actions)
        prepared: dict[str, Action] = {}
        keys: dict[str, Mapping[str, str]] = {}
        left_out: dict[str, str] = {}
        room = SCHEMA_BYTES
        for name, action in offered.items():
            try:
                schema = adapt_schema(action.parameters, self._rules, room)
            except UnusableSchema as reason:
                left_out[name] = str(reason)
                self._log.warn(
                    f"{_name(name, _origin(action))} is not offered to {self._provider}: {reason}."
                )
                continue
            room -= schema.size
            prepared[name] = _build(action, schema, self._rules)
            if schema.keys:
                keys[name] = schema.keys
            if schema.changes:
                self._log.warn(
                    f"{_name(name, _origin(action))} is adapted for {self._provider}: "
                    f"{', '.join(schema.changes)}."
                )
        for name in self._cut([offered[name] for name in prepared]):
            del prepared[name]
            left_out[name] = f"{self._provider} takes {self._rules.max_tools} tools in a request"
        self._remember(offered, left_out)
        return PreparedTools([*prepared.values()], keys, left_out)

    def _cut(self, actions: Sequence[Action]) -> Sequence[str]:
        """Return the names of the tools above the limit: of MCP servers first, of pages last."""
        limit = self._rules.max_tools
        if limit is None or len(actions) <= limit:
            return ()
        ranked = sorted(actions, key=lambda one: (not one.in_browser, bool(one.mcp_server)))
        names = [(one.name, _origin(one)) for one in ranked[limit:]]
        self._log.warn(
            f"{self._provider} takes {limit} tools in a request, and there are {len(actions)}. "
            f"These are not offered: {'; '.join(_name(*one) for one in names)}."
        )
        return [name for name, _ in names]

    def _remember(self, offered: Mapping[str, Action], left_out: Mapping[str, str]) -> None:
        own = {name: _origin(one) for name, one in offered.items() if not one.in_browser}
        for origin in set(own.values()):
            missing = {name: left_out[name] for name in left_out if own.get(name) == origin}
            self._missing.pop(origin, None)
            if missing and len(self._missing) < _LISTS:
                self._missing[origin] = missing


def _find_key(actions: Sequence[Action]) -> bytes | None:
    """Return the content of a list of actions; `None` if it cannot be written as JSON."""
    try:
        return encode_body([*map(_get_content, actions)])
    except (TypeError, ValueError, RecursionError):
        return None


def _build(action: Action, schema: ToolSchema, rules: ToolRules) -> Action:
    """Return the action that the provider is told of."""
    description = " ".join([action.description, *schema.notes]).strip()
    parameters = schema.schema
    limit = rules.max_description
    if limit is not None and len(description) > limit:
        head = description[: limit - 1].rpartition(" ")[0] or description[: limit - 1]
        parameters = {**parameters, "description": f"…{description[len(head) :]}"}
        description = f"{head}…"
    return Action(name=action.name, description=description, parameters=parameters)


def _origin(action: Action) -> str:
    if action.in_browser:
        return "the page"
    return repr(action.origin) if action.origin else "this server"


def _name(tool: str, origin: str) -> str:
    return f"The tool {tool[:100]!r} of {origin}"


def _rename(arguments: str, names: Mapping[str, str]) -> str:
    """Return the arguments of a call with other names; those that are no object unchanged."""
    values = parse_object(arguments)
    if not any(name in names for name in values):
        return arguments
    return dumps({names.get(name, name): value for name, value in values.items()}).decode()


def _build_arguments(call_id: str, names: Mapping[str, str], pieces: Sequence[str]) -> Event:
    return ActionExecutionArgs(call_id=call_id, delta=_rename(join_pieces(pieces), names))
