"""A remote endpoint on loopback, every byte and every silence of which a test decides."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from copilot_runtime.api import Agent, Caller, RunInput
from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from copilot_runtime.extensions.frameworks.remote.endpoint import AgentResolver
from tests.adapters.provider import Provider, Step, streamed, whole

INFO = {
    "sdkVersion": "0.1.67",
    "actions": [
        {
            "name": "add",
            "description": "Add.",
            "parameters": [
                {"name": "a", "type": "number"},
                {"name": "b", "type": "number", "required": False},
            ],
        }
    ],
    "agents": [
        {"name": "research", "description": "Looks things up.", "type": "langgraph"},
        {"name": "crew", "description": "", "type": "crewai"},
    ],
}
OFFERED: list[Step] = [whole(INFO)]
REFUSED: list[Step] = [whole({"detail": "Who are you?"}, status="401 Unauthorized")]
GONE: list[Step] = [whole({"detail": "Not Found"}, status="404 Not Found")]
BROKEN: list[Step] = [
    whole(b"<html>", status="500 Oh No", content_type="text/html", x_should_retry="false")
]


def lines(*said: dict[str, Any]) -> list[Step]:
    """Return the script of an agent that says these lines."""
    return streamed(*(json.dumps(line).encode() + b"\n" for line in said))


def text(id: str, *pieces: str) -> list[dict[str, Any]]:
    """Return a whole text in the words of CopilotKit's runtime."""
    return [
        {"type": "TextMessageStart", "messageId": id},
        *({"type": "TextMessageContent", "messageId": id, "content": piece} for piece in pieces),
        {"type": "TextMessageEnd", "messageId": id},
    ]


def asked(content: str = "Hi", **more: Any) -> RunInput:
    fields: dict[str, Any] = {
        "messages": [TextMessage(id="u-1", role="user", content=content)],
        "agent": "crew",
    }
    return RunInput(thread_id="t", run_id="r", **(fields | more))


def endpoint_of(server: Provider, **options: Any) -> RemoteEndpoint:
    return RemoteEndpoint(f"{server.url}/copilotkit", **options)


async def agent_of(endpoint: RemoteEndpoint, name: str = "crew") -> Agent:
    """Return an agent of the endpoint, as the runtime would find it."""
    return (await AgentResolver({}, [endpoint])(Caller()))[name]


async def heard(agent: Agent, run: RunInput | None = None) -> Sequence[Event]:
    """Return everything the agent said, once it has ended well."""
    async with aclosing(agent.run(run or asked())) as events:
        return [event async for event in events]


async def heard_until_error(
    agent: Agent, run: RunInput | None = None
) -> tuple[list[Event], Exception]:
    """Return what the agent said before it failed, and how it failed."""
    events: list[Event] = []
    try:
        async with aclosing(agent.run(run or asked())) as stream:
            async for event in stream:
                events.append(event)
    except Exception as error:
        return events, error
    raise AssertionError(f"the agent ended well: {events}")
