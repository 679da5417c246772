"""Servers to ask, and a way to ask them without a model."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.api import Action, ActionContext, RunInput
from copilot_runtime.extensions.mcp.client import McpActions, McpServer, mcp_actions
from tests.extensions.mcp.client import bare
from tests.extensions.mcp.client.servers import Served, serve

CONTEXT = ActionContext(thread_id="t", run_id="r", call_id="c", properties={}, headers={})
RUN = RunInput(thread_id="t", run_id="r", messages=[])


class Asked:
    """The actions of a source, by name."""

    def __init__(self, source: McpActions) -> None:
        self.source = source

    async def actions(self, run: RunInput = RUN) -> Mapping[str, Action]:
        return {action.name: action for action in await self.source.actions(run)}

    async def do(self, name: str, /, **values: Any) -> Any:
        action = (await self.actions())[name]
        assert action.run is not None
        return await action.run(values, CONTEXT)


Ask = Callable[..., Asked]


@pytest.fixture
async def served(anyio_backend: str) -> AsyncGenerator[Served, None]:
    del anyio_backend
    async with serve() as served:
        yield served


@pytest.fixture
async def ask(anyio_backend: str) -> AsyncGenerator[Ask, None]:
    """Return a source of servers, which is closed in the end."""
    del anyio_backend
    async with AsyncExitStack() as stack:

        def asked(*servers: McpServer) -> Asked:
            source = mcp_actions(*servers)
            stack.push_async_callback(source.aclose)
            return Asked(source)

        yield asked


Pipes = Callable[..., McpServer]


@pytest.fixture
def pipes(tmp_path: Path) -> Pipes:
    """Return the small server behind pipes, which may behave badly."""

    def server(
        *mode: str,
        dies: bool = False,
        pages: Sequence[Sequence[Mapping[str, Any]]] | None = None,
        result: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> McpServer:
        env = {"COUNT": str(tmp_path / "calls"), **({"DIES": "1"} if dies else {})}
        for name, value in (("TOOLS", pages), ("RESULT", result)):
            if value is not None:
                env[name] = str(tmp_path / name)
                Path(env[name]).write_text(json.dumps(value))
        return McpServer(command=[*bare.COMMAND, *mode], env=env, **options)

    return server


def tool(name: str, **more: Any) -> dict[str, Any]:
    """Return a tool as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object"}, **more}
