"""Documents that can be planned and logs of runs, as many as one likes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphql import (
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLUnionType,
    get_named_type,
)
from hypothesis import strategies as st

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Custom,
    Event,
    Interrupt,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.errors import NetworkError, Refused
from copilot_runtime.transports.graphql.schema import core_schema

SCHEMA = core_schema()
COMPOSITE = {
    name: {item.name for item in SCHEMA.get_possible_types(kind)}
    if isinstance(kind, GraphQLInterfaceType | GraphQLUnionType)
    else {name}
    for name, kind in SCHEMA.type_map.items()
    if isinstance(kind, GraphQLObjectType | GraphQLInterfaceType | GraphQLUnionType)
    and not name.startswith("__")
}
"""The object types that a value of each type may have."""

STREAMED = {"messages", "metaEvents", "content", "arguments"}
PAUSE = "pause"
"""A moment in which the readers of a log may catch up."""

Log = Sequence[Event | Exception | str]


@dataclass(frozen=True)
class Zone:
    """A place in a document: the keys that lead to it, and whether it can be streamed there.

    `live` is the part of a response that a plan streams; `late` is what is deferred of it.
    """

    path: str = ""
    live: bool = False
    late: bool = False

    def allows(self, field: str) -> bool:
        """Tell whether a field may stand here in a document that can be planned."""
        if not self.live:
            return True
        return field not in {*STREAMED, "extensions"} if self.late else field != "status"


class Author:
    """Writes one document, asking `draw` whenever there is a choice."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.fragments: dict[str, tuple[str, Zone, str]] = {}
        names = sorted({name for kind in COMPOSITE for name in _fields(kind)})
        keys = draw(st.one_of(st.just(names), st.permutations(names)))
        self.keys = dict(zip(names, keys, strict=True))  # no two fields under one key
        self.streams: set[str] = set()
        self.length = 0
        self.streamed_inside = draw(st.sets(st.sampled_from(sorted(STREAMED))))

    def document(self) -> str:
        root = self.draw(st.sampled_from(["", "answer: ", "errors: ", "_: "]))
        body = self.selection("CopilotResponse", Zone(live=True), 3)
        fragments = [
            f"fragment {name} on {kind} {text}" for name, (kind, _, text) in self.fragments.items()
        ]
        head = "mutation ($data: GenerateCopilotResponseInput!)"
        field = f"{root}generateCopilotResponse(data: $data)"
        return "\n".join([f"{head} {{ {field} {body} }}", *fragments])

    def selection(self, kind: str, zone: Zone, depth: int) -> str:
        fields = [name for name in _fields(kind) if zone.allows(name)]
        fields += 3 * [name for name in fields if name in {"messages", "metaEvents", "data"}]
        parts: list[str] = []
        for _ in range(self.draw(st.integers(1, 4))):
            self.length += 1
            nest = depth and self.length < 40
            choices = ["field", "field", *(["inline", "spread"] if nest else [])]
            match self.draw(st.sampled_from(choices)):
                case "inline":
                    parts.append(self.inline(kind, zone, depth - 1))
                case "spread":
                    parts.append(self.spread(kind, zone, depth - 1))
                case _:
                    parts.append(self.field(kind, self.draw(st.sampled_from(fields)), zone, depth))
        return f"{{ {' '.join(parts)} }}"

    def field(self, kind: str, name: str, zone: Zone, depth: int) -> str:
        key, must_stream = self.keys[name], zone.live and name in STREAMED
        if not must_stream and self.draw(st.integers(0, 4)) == 0:
            key = f"also_{key}"
        text, path = name if key == name else f"{key}: {name}", f"{zone.path}.{key}"
        if must_stream or (_is_list(kind, name) and name in self.streamed_inside):
            if path in self.streams:  # a stream may be asked for in one place only
                return f"also_{self.keys['__typename']}: __typename"
            self.streams.add(path)
            text += " @stream"
        inner = _inner(kind, name)
        if inner not in COMPOSITE:
            return text
        below = Zone(path, live=zone.live and name == "messages")
        return f"{text} {self.selection(inner, below, max(depth, 1))}"

    def inline(self, kind: str, zone: Zone, depth: int) -> str:
        condition = self.draw(
            st.sampled_from([None, *_overlapping(kind), *sorted(COMPOSITE[kind])])
        )
        defer, zone = self.deferred(zone)
        on = f" on {condition}" if condition else ""
        return f"...{on}{defer} {self.selection(condition or kind, zone, depth)}"

    def spread(self, kind: str, zone: Zone, depth: int) -> str:
        defer, zone = self.deferred(zone)
        condition = self.draw(st.sampled_from([*_overlapping(kind), *sorted(COMPOSITE[kind])]))
        known = [
            name
            for name, (on, where, text) in self.fragments.items()
            if on == condition
            and replace(where, path="") == replace(zone, path="")
            and "@stream" not in text
        ]
        name = self.draw(st.sampled_from([*known, ""]))
        if not name:
            text = self.selection(condition, zone, depth)
            name = f"F{len(self.fragments)}"
            self.fragments[name] = (condition, zone, text)
        return f"...{name}{defer}"

    def deferred(self, zone: Zone) -> tuple[str, Zone]:
        if not self.draw(st.booleans()):
            return "", zone
        return " @defer", replace(zone, late=zone.live)


@st.composite
def documents(draw: st.DrawFn) -> str:
    return Author(draw).document()


TEXT = st.text(min_size=1, max_size=6)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(TextMessage, id=TEXT, role=st.sampled_from(["user", "assistant"]), content=TEXT),
    st.builds(ActionExecutionMessage, id=TEXT, name=TEXT, arguments=TEXT),
    st.builds(ResultMessage, id=TEXT, call_id=TEXT, name=TEXT, result=TEXT),
    st.just(ImageMessage(id="image", role="user", format="png", bytes="AA==")),
)
INTERRUPTS = st.builds(
    Interrupt,
    interrupt_id=TEXT,
    value=st.one_of(TEXT, st.dictionaries(TEXT, st.booleans(), max_size=2)),
    messages=st.lists(MESSAGES, max_size=3),
)
ALONE: st.SearchStrategy[Event | str] = st.one_of(
    st.just(PAUSE),
    INTERRUPTS,
    INTERRUPTS,
    st.builds(AgentState, agent=TEXT, state=st.dictionaries(TEXT, st.integers(-9, 9), max_size=2)),
    st.just(Usage(model="m", input_tokens=1)),
    st.builds(Custom, name=TEXT, value=st.none()),
    st.just(TextMessageContent(message_id="nobody", content="lost")),
    st.just(ActionExecutionEnd(call_id="nobody")),
)
EVERYTHING: Sequence[Event] = [
    TextMessageStart(message_id="open"),
    TextMessageContent(message_id="open", content="left open"),
    AgentState(agent="a", state={"a": 1}),
    Interrupt(interrupt_id="i", value="why?"),
    Interrupt(
        interrupt_id="i",
        value={"why": None},
        messages=[
            TextMessage(id="m1", role="user", content="x"),
            ActionExecutionMessage(id="m2", name="act", arguments="{}"),
            ResultMessage(id="m3", call_id="m2", name="act", result="done"),
        ],
    ),
]
ENDS = st.sampled_from(
    [None, None, RuntimeError("secret"), NetworkError("The model is gone."), Refused("Not that.")]
)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """What an agent yields: messages that interleave, may stay open, and may use an id again."""
    log: list[Event | Exception | str] = [*EVERYTHING] if draw(st.booleans()) else []
    texts: set[str] = set()
    calls: set[str] = set()
    for _ in range(draw(st.integers(0, 14))):
        text, call = f"t{draw(st.integers(0, 2))}", f"c{draw(st.integers(0, 2))}"
        match draw(st.sampled_from(["text", "text", "text", "call", "call", "result", "alone"])):
            case "text" if text not in texts:
                texts.add(text)
                log.append(TextMessageStart(message_id=text, parent_id=draw(st.none() | TEXT)))
            case "text" if draw(st.integers(0, 2)):
                log.append(TextMessageContent(message_id=text, content=draw(TEXT)))
            case "text":
                texts.remove(text)
                log.append(TextMessageEnd(message_id=text))
            case "call" if call not in calls:
                calls.add(call)
                log.append(ActionExecutionStart(call_id=call, name=draw(TEXT)))
            case "call" if draw(st.integers(0, 2)):
                log.append(ActionExecutionArgs(call_id=call, delta=draw(TEXT)))
            case "call":
                calls.remove(call)
                log.append(ActionExecutionEnd(call_id=call))
            case "result":
                log.append(ActionExecutionResult(call_id=call, name="act", result=draw(TEXT)))
            case _:
                log.append(draw(ALONE))
    end = draw(ENDS)
    return [*log, *([end] if end else [])]


def _fields(kind: str) -> list[str]:
    found = SCHEMA.type_map[kind]
    own = [*found.fields] if isinstance(found, GraphQLObjectType | GraphQLInterfaceType) else []
    return [*own, "__typename"]


def _type_of(kind: str, name: str) -> Any:
    found = SCHEMA.type_map[kind]
    if name == "__typename" or not isinstance(found, GraphQLObjectType | GraphQLInterfaceType):
        return SCHEMA.type_map["String"]
    return found.fields[name].type


def _is_list(kind: str, name: str) -> bool:
    found = _type_of(kind, name)
    return isinstance(found.of_type if isinstance(found, GraphQLNonNull) else found, GraphQLList)


def _inner(kind: str, name: str) -> str:
    return get_named_type(_type_of(kind, name)).name


def _overlapping(kind: str) -> list[str]:
    return [name for name in sorted(COMPOSITE) if COMPOSITE[name] & COMPOSITE[kind]]
