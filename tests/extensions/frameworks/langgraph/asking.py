"""Pages of both protocols that talk with graphs on a real server."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.empty import EmptyAdapter
from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from tests.wire.client import Client, chat, client_of, merge
from tests.wire_agui.http import Browser, Event
from tests.wire_agui.server import browsing

Json = dict[str, Any]

COLOR = {
    "name": "setColor",
    "description": "Paint the page",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}},
}
"""An action of the browser, as AG-UI lists it."""


def new_thread() -> str:
    return f"thread {uuid4()}"  # no UUID, as clients may have it


def agents(url: str, *graphs: str, **options: Any) -> dict[str, LangGraphAgent]:
    return {graph: LangGraphAgent(url, graph=graph, **options) for graph in graphs}


@asynccontextmanager
async def page(url: str, *graphs: str, **options: Any) -> AsyncGenerator[Browser, None]:
    """Serve these graphs, and yield a browser that speaks AG-UI."""
    async with browsing(EmptyAdapter(), agents=agents(url, *graphs), **options) as browser:
        yield browser


@asynccontextmanager
async def page_v1(url: str, *graphs: str, **options: Any) -> AsyncGenerator[Client, None]:
    """Serve these graphs, and yield a client that speaks GraphQL."""
    settings = Settings(threads="memory")
    runtime = CopilotRuntime(agents=agents(url, *graphs), settings=settings, **options)
    async with client_of(runtime) as client:
        yield client


async def asked_v1(client: Client, graph: str, *messages: Json, **more: Any) -> Json:
    """Return the whole response to a turn with an agent."""
    body = chat(*messages, agentSession={"agentName": graph}, **more)
    return merge((await client.ask(body)).payloads())["generateCopilotResponse"]


def operator(url: str) -> LangGraphClient:
    """Return the server as its operator sees it; enter it."""
    return get_client(url=url, api_key=None)


def shown(before: Sequence[Json], events: Sequence[Event]) -> list[Json]:
    """Return the messages of a page after a run."""
    messages = [{**message} for message in before]
    by_id = {message["id"]: message for message in messages}

    def message(id: str, **new: Any) -> Json:
        if id not in by_id:
            by_id[id] = {"id": id, "role": "assistant", **new}
            messages.append(by_id[id])
        return by_id[id]

    calls: dict[str, Json] = {}
    for event in events:
        match event:
            case {"type": "TEXT_MESSAGE_START"}:
                message(event["messageId"], content="")
            case {"type": "TEXT_MESSAGE_CONTENT"}:
                said = message(event["messageId"])
                said["content"] = said.get("content", "") + event["delta"]
            case {"type": "TOOL_CALL_START"}:
                id = event["toolCallId"]
                function = {"name": event["toolCallName"], "arguments": ""}
                calls[id] = {"id": id, "type": "function", "function": function}
                owner = message(event.get("parentMessageId") or id)
                owner.setdefault("toolCalls", []).append(calls[id])
            case {"type": "TOOL_CALL_ARGS"}:
                calls[event["toolCallId"]]["function"]["arguments"] += event["delta"]
            case {"type": "TOOL_CALL_RESULT"}:
                message(
                    event["messageId"],
                    role="tool",
                    toolCallId=event["toolCallId"],
                    content=event["content"],
                )
            case {"type": "MESSAGES_SNAPSHOT"}:
                messages = [*event["messages"]]
                by_id = {one["id"]: one for one in messages}
            case _:
                pass
    return messages


def state_of(events: Sequence[Event]) -> Any:
    """Return the last whole state; changes of it are put into it."""
    from jsonpatch import JsonPatch

    state: Any = {}
    for event in events:
        if event["type"] == "STATE_SNAPSHOT":
            state = event["snapshot"]
        elif event["type"] == "STATE_DELTA":
            state = JsonPatch(event["delta"]).apply(state)
    return state


def texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(message.get("content", "")) for message in messages]
