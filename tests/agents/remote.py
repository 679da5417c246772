"""A remote agent on loopback: what it says in AG-UI, and what comes of it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from copilot_runtime.extensions.frameworks.langgraph.request import Assistant
from copilot_runtime.extensions.frameworks.remote.discovery import CatalogAgent
from copilot_runtime.extensions.frameworks.remote.endpoint import RemoteAgent
from copilot_runtime.extensions.frameworks.remote.link import Link
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


@dataclass(slots=True)
class Reply:
    """A response, in blocks that are here already. It stands in for those of `http.client`."""

    blocks: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(
        default_factory=lambda: {
            "content-type": "text/event-stream",
            "content-location": "/threads/t/runs/g",
        }
    )
    finished: bool = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for block in self.blocks:
            yield block

    def check_silence(self, since: float | None) -> float:
        return 0.0

    async def text(self, limit: int = 0) -> bytes:
        return b"".join(self.blocks)

    def release(self) -> None:
        pass


def graph_agent() -> LangGraphAgent:
    agent = LangGraphAgent("http://127.0.0.1:9", graph="g")
    agent._server = _Graphs()  # pyright: ignore  # no server
    return agent


def remote_agent() -> RemoteAgent:
    link = Link(
        "http://127.0.0.1:9", headers=None, before_request=None, connect_timeout=1, idle_timeout=1
    )
    return RemoteAgent(CatalogAgent("research", "", "langgraph"), link)


class _Graphs:
    """What a LangGraph server says besides its streams."""

    async def assistant(self, *_: Any) -> Assistant:
        return Assistant("a")

    async def thread(self, id: str, *_: Any) -> tuple[str, None]:
        return id, None

    async def status(self, *_: Any) -> str:
        return "success"

    async def is_busy(self, *_: Any) -> bool:
        return False

    async def cancel(self, *_: Any) -> None:
        pass

    async def aclose(self) -> None:
        pass
