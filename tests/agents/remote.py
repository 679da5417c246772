"""A remote agent on loopback: what it says in AG-UI, and what comes of it."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import TextMessage
from tests.adapters.provider import Provider, Step, streamed

Said = dict[str, Any]

STARTED: Said = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED: Said = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


def frame(event: Said) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


def text(id: str, *pieces: str) -> list[Said]:
    """Return a whole text."""
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": piece} for piece in pieces),
        {"type": "TEXT_MESSAGE_END", "messageId": id},
    ]


def whole_run(*events: Said) -> list[Step]:
    """Return the script of a run that ends well."""
    return cut_short(STARTED, *events, FINISHED)


def cut_short(*events: Said) -> list[Step]:
    """Return the script of an answer that ends in order after these events."""
    return streamed(*map(frame, events))


def asked(content: str = "Hi", **more: Any) -> RunInput:
    fields: dict[str, Any] = {"messages": [TextMessage(id="u-1", role="user", content=content)]}
    return RunInput(thread_id="t", run_id="r", **(fields | more))


async def heard(agent: AguiAgent, run: RunInput | None = None) -> Sequence[Event]:
    """Return everything the agent said, once its run has ended well."""
    async with aclosing(agent.run(run or asked())) as events:
        return [event async for event in events]


async def heard_until_error(
    agent: AguiAgent, run: RunInput | None = None
) -> tuple[list[Event], Exception]:
    """Return what the agent said before its run failed, and how it failed."""
    events: list[Event] = []
    try:
        async with aclosing(agent.run(run or asked())) as stream:
            async for event in stream:
                events.append(event)
    except Exception as error:
        return events, error
    raise AssertionError(f"the run ended well: {events}")


def agent_of(provider: Provider, **options: Any) -> AguiAgent:
    return AguiAgent(f"{provider.url}/agent", **options)
