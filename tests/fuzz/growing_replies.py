"""Each kind of answer that a remote agent can send, as large as one asks for."""

from collections.abc import Mapping

from tests.agents.remote import FINISHED, STARTED, frame
from tests.fuzz.growing import Build, fill


def answer(build: Build) -> Build:
    """Put what is built between the first and the last event of an agent."""
    head, tail = frame(STARTED), frame(FINISHED)
    return lambda size: head + build(size) + tail


def event(type: str, before: str, item: str, after: str, between: str = ",") -> Build:
    """Return an answer with one large event."""
    head = f'data: {{"type": "{type}", {before}'
    return answer(fill(head, item, f"{after}}}\n\n", between))


def draw(before: str, item: str, after: str) -> Build:
    """Return an answer with a surface, whose arguments come in pieces."""
    arguments = fill(f'{{"surfaceId": "s", {before}', item, f"{after}}}")

    def build(size: int) -> bytes:
        text = arguments(size).decode()
        call = {"toolCallId": "c", "toolCallName": "render_a2ui"}
        pieces = [text[at : at + 1000] for at in range(0, len(text), 1000)]
        return b"".join(
            [
                frame({"type": "TOOL_CALL_START", **call}),
                *(frame({"type": "TOOL_CALL_ARGS", **call, "delta": one}) for one in pieces),
                frame({"type": "TOOL_CALL_END", **call}),
            ]
        )

    return answer(build)


def show(before: str, item: str, after: str) -> Build:
    """Return an answer with a surface that is the result of a call."""
    operations = fill(f'{{"a2ui_operations": [{before}', item, f"{after}]}}")

    def build(size: int) -> bytes:
        result = {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "messageId": "m"}
        call = {"toolCallId": "c", "toolCallName": "show"}
        return b"".join(
            [
                frame({"type": "TOOL_CALL_START", **call}),
                frame({"type": "TOOL_CALL_END", **call}),
                frame({**result, "content": operations(size).decode()}),
            ]
        )

    return answer(build)


TEXT = '{"id": "c#", "component": "Text", "text": "a"}'
LIST = (
    '{"id": "root", "component": "Column", "children": {"componentId": "c", "path": "/items"}}, '
    '{"id": "c", "component": "Text", "text": {"path": "name"}}'
)
CREATED = '{"version": "v0.9", "createSurface": {"surfaceId": "s", "catalogId": "c"}}'
REPLIES: Mapping[str, Build] = {
    "events of an agent": answer(
        fill("", 'data: {"type": "CUSTOM", "name": "a", "value": #}\n\n', "", "")
    ),
    "comments of an agent": answer(fill("", ":\n\n", "", "")),
    "a line of an agent without an end": answer(fill("data: ", "x", "\n\n", "")),
    "a text of an agent": event(
        "TEXT_MESSAGE_CHUNK", '"messageId": "m", "delta": "', "a ", '"', ""
    ),
    "a state of an agent": event("STATE_SNAPSHOT", '"snapshot": {', '"k#": 1', "}"),
    "changes of a state": event(
        "STATE_DELTA", '"delta": [', '{"op": "add", "path": "/k#", "value": 1}', "]"
    ),
    "copies in a state": event(
        *("STATE_DELTA", '"delta": [{"op": "add", "path": "/a", "value": [1]},'),
        *('{"op": "copy", "from": "/a", "path": "/a/-"}', "]"),
    ),
    "a value of a change": event(
        "STATE_DELTA", '"delta": [{"op": "add", "path": "/a", "value": [', "1", "]}]"
    ),
    "a conversation of an agent": event(
        "MESSAGES_SNAPSHOT", '"messages": [', '{"id": "m#", "role": "user", "content": "a"}', "]"
    ),
    "an activity of an agent": event(
        *("ACTIVITY_SNAPSHOT", '"messageId": "m", "activityType": "a", "content": {'),
        *('"k#": 1', "}"),
    ),
    "components of a surface": draw('"components": [', TEXT, "]"),
    "children of a surface": draw(
        '"components": [{"id": "root", "component": "Column", "children": [', '"c#"', "]}]"
    ),
    "items of a list in a surface": draw(
        f'"components": [{LIST}], "data": {{"items": [', '{"name": "#"}', "]}"
    ),
    "a text in a surface": draw(
        '"components": [{"id": "root", "component": "Text", "text": "', "a,", '"}]'
    ),
    "operations of a result": show(
        CREATED + ",", '{"version": "v0.9", "updateDataModel": {"surfaceId": "s", "value": #}}', ""
    ),
    "surfaces of a result": show("", CREATED.replace('"s"', '"s#"'), ""),
    "components of a result": show(
        CREATED + ', {"version": "v0.9", "updateComponents": {"surfaceId": "s", "components": [',
        TEXT,
        "]}}",
    ),
}
