"""Pages of both protocols that ask one agent of a runtime in this process."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from copilot_runtime import CopilotRuntime, Settings
from tests.wire.client import Client, browser_action, chat, client_of, merge
from tests.wire_agui.http import Event

Json = dict[str, Any]

PAINT: Json = {
    "name": "setColor",
    "description": "Paints the page.",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}},
}
"""A tool of an AG-UI page."""

GIVEN = (
    "The agent does not wait for this answer: it has been given before, or the conversation has "
    "gone on without it."
)
"""What a person is told whose answer comes twice."""


@asynccontextmanager
async def page_v1(agent: Any, **options: Any) -> AsyncGenerator[Client, None]:
    """Yield a v1 client of a runtime with the agent `it`."""
    options = {"settings": Settings(threads="memory"), **options}
    async with client_of(CopilotRuntime(agents={"it": agent}, **options)) as client:
        yield client


async def asked_v1(client: Client, *messages: Json, **more: Any) -> Json:
    """Return the whole response to a turn of a page that offers the action setColor."""
    frontend = {"actions": [browser_action()], "url": "http://localhost:3000/"}
    body = chat(*messages, agentSession={"agentName": "it"}, frontend=frontend, **more)
    return merge((await client.ask(body)).payloads())["generateCopilotResponse"]


def texts_v1(answer: Json) -> list[str]:
    return ["".join(message["content"]) for message in answer["messages"] if "content" in message]


def questions(events: Sequence[Event]) -> list[Json]:
    """Return the interrupts with which a run ended."""
    return events[-1].get("outcome", {}).get("interrupts", [])


def answered(question: Json, payload: Any, status: str = "resolved") -> Json:
    return {"interruptId": question["id"], "status": status, "payload": payload}


def failure(events: Sequence[Event]) -> str:
    assert events[-1]["type"] == "RUN_ERROR", events
    return events[-1]["message"]


def results(events: Sequence[Event]) -> list[str]:
    return [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]


def followed_up(events: Sequence[Event], result: str) -> list[Json]:
    """Return the messages of a page that has run the call it was told of."""
    call = next(event for event in events if event["type"] == "TOOL_CALL_START")
    id = call["toolCallId"]
    arguments = "".join(e["delta"] for e in events if e["type"] == "TOOL_CALL_ARGS")
    function = {"name": call["toolCallName"], "arguments": arguments}
    parent = call.get("parentMessageId") or "calling"
    return [
        {"id": "user-1", "role": "user", "content": "Hi"},
        {
            "id": parent,
            "role": "assistant",
            "toolCalls": [{"id": id, "type": "function", "function": function}],
        },
        {"id": "result-1", "role": "tool", "toolCallId": id, "content": result},
    ]
