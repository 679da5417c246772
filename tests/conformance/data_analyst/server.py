"""A runtime with an analyst of the data of a file, whose model follows a script."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import Script
from copilot_runtime.api import Caller, ChatRequest
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.testing import Response, ScriptedAdapter
from copilot_runtime.testing.connection import AppConnection, connect
from tests.conformance.data_analyst.world import World

PATHS = ("copilot/stream/oai", "copilot/stream", "copilot/chat")
"""Where questions are asked, below the URL of the runtime."""

_TIMEOUT = 30.0


@dataclass(frozen=True)
class Server:
    """A runtime that has started."""

    runtime: CopilotRuntime
    adapter: ScriptedAdapter
    connection: AppConnection
    analyst: Analyst

    async def post(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send JSON to a path below the URL of the runtime."""
        return await self.connection.request(
            "POST",
            f"{self.runtime.settings.path}/{path}",
            dumps(body),
            {"content-type": "application/json", **(headers or {})},
        )


async def open_server(world: World, *turns: Any) -> Server:
    """Return the runtime that cases share, whose model answers with `turns` from now on."""
    if world.server is None:
        world.server = await world.enter(serve(world))
    server: Server = world.server
    script = Script[ChatRequest]("ScriptedAdapter", turns)
    server.adapter._script = script  # pyright: ignore[reportPrivateUsage]
    return server


@asynccontextmanager
async def serve(
    world: World, *turns: Any, name: str = "analyst", **options: Any
) -> AsyncGenerator[Server]:
    """Yield a runtime whose model answers with `turns`. `options` are further settings."""
    adapter = ScriptedAdapter(*turns)
    values: dict[str, Any] = {
        "threads": "memory",
        "telemetry": {"store": "memory", "content": "local", "export": False},
        "analyst": {**world.build_settings().model_dump(), "name": name},
    }
    settings = Settings(**{**values, **options})
    runtime = CopilotRuntime(adapter=adapter, settings=settings)
    async with connect(runtime, _TIMEOUT) as connection:
        assert isinstance(connection, AppConnection)
        analyst = next(
            agent.analyst
            for agent in (await runtime.runtime.agents_for(Caller())).values()
            if isinstance(agent, AnalystAgent)
        )
        await analyst.open()
        yield Server(runtime, adapter, connection, analyst)
