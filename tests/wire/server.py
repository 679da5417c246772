"""A runtime behind real sockets."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn

from copilot_runtime import CopilotRuntime
from tests.wire.client import PATH


@asynccontextmanager
async def listening(runtime: CopilotRuntime) -> AsyncGenerator[int, None]:
    """Serve a runtime with uvicorn on a free port of loopback."""
    # uvicorn's default, websockets' legacy protocol, is deprecated and warnings are errors
    config = uvicorn.Config(
        runtime.app(path=PATH),
        host="127.0.0.1",
        port=0,
        log_level="error",
        ws="websockets-sansio",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    with config.bind_socket() as sock:
        sock.listen()  # a client may come before the server has started; it waits
        task = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            yield sock.getsockname()[1]
        finally:
            server.should_exit = True
            await task
