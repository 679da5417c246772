"""Agents of other processes, without a process: what they send is here already."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.extensions.frameworks.langgraph import LangGraphAgent
from copilot_runtime.extensions.frameworks.langgraph.request import Assistant
from copilot_runtime.extensions.frameworks.remote.catalog import CatalogAgent
from copilot_runtime.extensions.frameworks.remote.endpoint import RemoteAgent
from copilot_runtime.extensions.frameworks.remote.link import Link


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
