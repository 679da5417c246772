"""An adapter behind both doors: what clients of CopilotKit v1 and of AG-UI get from it."""

import json
from typing import Any

from tests.wire.documents import WHEN

Json = dict[str, Any]


def messages_in(answer: Any) -> list[Json]:
    """Return the messages of a v1 client's answer that came whole."""
    return answer["data"]["generateCopilotResponse"]["messages"]


def sent_back(message: Json) -> Json:
    """Return a call or a result as the v1 client sends it with its next request."""
    head = {"id": message["id"], "createdAt": WHEN}
    if message["__typename"] == "ActionExecutionMessageOutput":
        arguments = "".join(message["arguments"])
        return {**head, "actionExecutionMessage": {"name": message["name"], "arguments": arguments}}
    fields = ("actionExecutionId", "actionName", "result")
    return {**head, "resultMessage": {name: message[name] for name in fields}}


def called_in(events: list[Json]) -> list[tuple[str, Any]]:
    """Return name and arguments of the calls in a run of AG-UI, in the order they began."""
    names: dict[str, str] = {}
    arguments: dict[str, str] = {}
    ended: set[str] = set()
    for event in events:
        id = event.get("toolCallId", "")
        match event["type"]:
            case "TOOL_CALL_START":
                names[id], arguments[id] = event["toolCallName"], ""
            case "TOOL_CALL_ARGS":
                arguments[id] += event["delta"]
            case "TOOL_CALL_END":
                ended.add(id)
            case _:
                pass
    assert ended == {*names}
    return [(name, json.loads(arguments[id])) for id, name in names.items()]
