"""Asking an adapter, and the events one expects, in few words."""

from contextlib import aclosing

import pytest

from copilot_runtime.api import Action, Adapter, ChatRequest
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import CopilotError

HELLO = TextMessage(id="u1", role="user", content="Hello")
ACTIONS = [Action(name="setColor"), Action(name="setSize"), Action(name="set")]
REQUEST = ChatRequest(messages=[HELLO], actions=ACTIONS)
RED, SEVEN = '{"color":"red"}', '{"size":7}'


async def answer_to(adapter: Adapter, request: ChatRequest = REQUEST) -> list[Event]:
    async with aclosing(adapter.stream(request)) as events:
        return [event async for event in events]


async def failure_of(adapter: Adapter) -> tuple[list[Event], CopilotError]:
    """Return the events before the error, and the error."""
    seen: list[Event] = []
    with pytest.raises(CopilotError) as caught:
        async with aclosing(adapter.stream(REQUEST)) as events:
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
