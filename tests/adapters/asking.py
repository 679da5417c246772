"""Asking an adapter, and what its events amount to, in few words."""

import json
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from copilot_runtime.adapters.added_fields import encode_fields, name_origin
from copilot_runtime.api import Action, Adapter, ChatRequest, Parameters
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Custom,
    Event,
    ReasoningContent,
    ReasoningSignature,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import Message, TextMessage
from copilot_runtime.base.errors import CopilotError
from tests.adapters.contract.fakes import Fake
from tests.wire.client import WHEN

HELLO = TextMessage(id="u1", role="user", content="Hello")
ACTIONS = [Action(name="setColor"), Action(name="setSize"), Action(name="set")]
REQUEST = ChatRequest(messages=[HELLO], actions=ACTIONS)
RED, SEVEN = '{"color":"red"}', '{"size":7}'


async def answer_to(adapter: Adapter, request: ChatRequest = REQUEST) -> list[Event]:
    async with aclosing(adapter.stream(request)) as events:
        return [event async for event in events]


async def failure_of(
    adapter: Adapter, request: ChatRequest = REQUEST
) -> tuple[list[Event], CopilotError]:
    """Return the events before the error, and the error."""
    seen: list[Event] = []
    with pytest.raises(CopilotError) as caught:
        async with aclosing(adapter.stream(request)) as events:
            async for event in events:
                seen.append(event)
    return seen, caught.value


def said(*pieces: str, id: str = "chatcmpl-1", ended: bool = True) -> list[Event]:
    return [
        TextMessageStart(message_id=id),
        *(TextMessageContent(message_id=id, content=piece) for piece in pieces),
        *([TextMessageEnd(message_id=id)] if ended else []),
    ]


def called(name: str, *pieces: str, id: str = "call_1", parent: str = "chatcmpl-1") -> list[Event]:
    return [
        ActionExecutionStart(call_id=id, name=name, parent_id=parent),
        *(ActionExecutionArgs(call_id=id, delta=piece) for piece in pieces),
        ActionExecutionEnd(call_id=id),
    ]


COLOR = {
    "type": "object",
    "properties": {"color": {"type": "string"}},
    "required": ["color"],
    "additionalProperties": False,
}
SET_COLOR = Action(name="setColor", description="Sets the color.", parameters=COLOR)
SET_SIZE = Action(name="setSize", description="Sets the size.", parameters={"type": "object"})


def asking(*messages: Message, **wishes: Any) -> ChatRequest:
    """Return a request with two actions; `wishes` are parameters."""
    actions = [SET_COLOR, SET_SIZE]
    return ChatRequest(
        messages=messages or [HELLO], actions=actions, parameters=Parameters(**wishes)
    )


async def answer_of(adapter: Adapter, request: ChatRequest | None = None) -> list[Event]:
    return await answer_to(adapter, request or asking())


async def answer(fake: Fake, request: ChatRequest | None = None, **options: Any) -> list[Event]:
    return await answer_of(fake.adapter(**options), request)


async def failure(
    fake: Fake, request: ChatRequest | None = None, **options: Any
) -> tuple[list[Event], CopilotError]:
    """Return the events before the error, and the error."""
    return await failure_of(fake.adapter(**options), request or asking())


def text_in(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, TextMessageContent))


def thought_in(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, ReasoningContent))


def fields_in(events: list[Event]) -> list[dict[str, Any]]:
    """Return what the service has added to thoughts, texts and calls, in the order it came."""
    signed = [event.value for event in events if isinstance(event, ReasoningSignature)]
    return [json.loads(value.partition(":")[2]) for value in signed]


def here(events: list[Event]) -> list[Event]:
    """Return the events with `here` in place of the origin in signatures."""
    return [
        replace(event, value=f"here:{event.value.partition(':')[2]}")
        if isinstance(event, ReasoningSignature)
        else event
        for event in events
    ]


def signed(api: str, url: str, model: str, **fields: Any) -> str:
    """Return the signature with which a service added fields."""
    return encode_fields(name_origin(api, url, model), fields)


def calls_in(events: list[Event]) -> dict[str, tuple[str, str]]:
    """Return id → name and arguments of all calls, which must have begun and ended once."""
    names: dict[str, str] = {}
    arguments: dict[str, str] = {}
    ended: set[str] = set()
    for event in events:
        match event:
            case ActionExecutionStart(call_id=id, name=name):
                assert id not in names
                names[id], arguments[id] = name, ""
            case ActionExecutionArgs(call_id=id, delta=delta):
                assert id in names
                assert id not in ended
                arguments[id] += delta
            case ActionExecutionEnd(call_id=id):
                assert id in names
                assert id not in ended
                ended.add(id)
            case _:
                pass
    assert ended == set(names)
    return {id: (name, arguments[id]) for id, name in names.items()}


def usage_in(events: list[Event]) -> Usage:
    (found,) = [event for event in events if isinstance(event, Usage)]
    return found


def warnings_in(events: list[Event]) -> list[str]:
    """Return the codes of the warnings."""
    return [e.value["code"] for e in events if isinstance(e, Custom) and e.name == "warning"]


def types_of(events: list[Event]) -> list[str]:
    """Return the kinds of the events but what stands aside, each run of equal ones as one."""
    types: list[str] = []
    for event in events:
        if isinstance(event, Custom):
            continue
        if not types or types[-1] != event.type:
            types.append(event.type)
    return types


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
