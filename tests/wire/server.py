"""A runtime behind real sockets."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from copilot_runtime import CopilotRuntime
from tests.wire.client import PATH
from tests.wire_agui.server import serving


@asynccontextmanager
async def listening(runtime: CopilotRuntime) -> AsyncGenerator[int, None]:
    """Serve a runtime with uvicorn on a free port of loopback."""
    async with serving(runtime.app(path=PATH)) as port:
        yield port
