"""Events of agents, and what they carry."""

import json
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

Event = dict[str, Any]
Script = Callable[[int], Iterator[Event]]

ALL = 1_000_000
"""A size of pieces with which everything is one piece."""

TEXT = {"id": "root", "component": "Text", "text": "Hi"}
CARDS = [
    {"id": "root", "component": "Column", "children": {"componentId": "card", "path": "/rows"}},
    {"id": "card", "component": "Text", "text": {"path": "name"}},
]
ROWS = [{"name": "A1"}, {"name": "B2"}, {"name": "C3"}]
TREE = [
    {"id": "root", "component": "Column", "children": ["t"]},
    {"id": "t", "component": "Text", "text": "Hello"},
]
GONE = [{"id": "root", "component": "Column", "children": ["gone"]}]
HARD = '\u4e16\u754c "quoted" back\\slash\n\ttab \U0001f600 \u00e9'
ESCAPED = '"\\u4e16\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\"\\\\"'


def write(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def begin(key: str, tool: str = "render_a2ui", **more: Any) -> Event:
    return {"type": "TOOL_CALL_START", "toolCallId": key, "toolCallName": tool, **more}


def args(key: str, value: Any, size: int = ALL) -> list[Event]:
    text = write(value)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [{"type": "TOOL_CALL_ARGS", "toolCallId": key, "delta": piece} for piece in pieces]


def end(key: str) -> Event:
    return {"type": "TOOL_CALL_END", "toolCallId": key}


def call(key: str, tool: str, value: Any, size: int = ALL) -> list[Event]:
    return [begin(key, tool), *args(key, value, size), end(key)]


def draw(key: str, value: Any, size: int = ALL) -> list[Event]:
    return call(key, "render_a2ui", value, size)


def result(key: str, value: Any) -> Event:
    identity = {"messageId": f"tr-{key}", "toolCallId": key}
    return {"type": "TOOL_CALL_RESULT", **identity, "content": write(value), "role": "tool"}


def say(text: str, key: str) -> list[Event]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": key, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": key, "delta": text},
        {"type": "TEXT_MESSAGE_END", "messageId": key},
    ]


def surface(name: str = "s1", components: Any = TREE, **more: Any) -> dict[str, Any]:
    return {"surfaceId": name, "components": components, **more}


def op(kind: str, name: str = "s1", **more: Any) -> dict[str, Any]:
    return {"version": "v0.9", kind: {"surfaceId": name, **more}}


def make(name: str = "s1") -> list[Any]:
    components = op("updateComponents", name, components=[TEXT])
    return [op("createSurface", name, catalogId="acme"), components]


def ops(*operations: Any, **more: Any) -> dict[str, Any]:
    return {"a2ui_operations": [*operations], **more}


def page(value: Any, size: int = ALL, key: str = "g1") -> list[Event]:
    return call(key, "generateSandboxedUi", value, size)


def interleave(*streams: list[Event]) -> list[Event]:
    return [event for events in zip_longest(*streams) for event in events if event is not None]


def activity(key: str, content: Any, **more: Any) -> Event:
    names = {"messageId": key, "activityType": "a2ui-surface"}
    return {"type": "ACTIVITY_SNAPSHOT", **names, "content": content, **more}


def chunk(**fields: Any) -> Event:
    return {"type": "TOOL_CALL_CHUNK", **fields}


def reply(key: str, value: Any, tool: str = "dash") -> list[Event]:
    return [*call(key, tool, "{}"), result(key, value)]


FAILED: Event = {"type": "RUN_ERROR", "message": "model died"}
NOISE: list[Event] = [
    {"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}},
    {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]},
    {"type": "STEP_STARTED", "stepName": "think"},
    {"type": "CUSTOM", "name": "seen", "value": {"x": 1}},
    {"type": "STEP_FINISHED", "stepName": "think"},
]
ASK = {"id": "i1", "reason": "tool_call", "message": "Sure?"}
PAGE = {
    "initialHeight": 320,
    "placeholderMessages": ["One", "Two"],
    "css": "p{color:red}",
    "html": '<p id="x">Hi \u4e16\u754c</p>\n',
    "jsFunctions": "function f(){return 1}",
    "jsExpressions": ["f()", "g('a')"],
}
NUMBERS = {"big": 2**63, "float": 1.0, "small": 1e-7, "huge": 1e21, "half": 0.5, "minus": -3}
MANY = [{"id": f"c{at}", "component": "Text", "text": f"{at}"} for at in range(120)]
WIDE = [{"id": "root", "component": "Column", "children": [one["id"] for one in MANY]}, *MANY]
PRETTY = json.dumps(surface("s1", CARDS, data={"rows": ROWS}), indent=2)
OUTER = begin("o1", "generate_a2ui")
