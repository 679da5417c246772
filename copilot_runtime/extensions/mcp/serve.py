"""Serves the actions and agents of a runtime to the MCP client that started this process."""

import asyncio
import signal
import sys
from contextlib import redirect_stdout

from copilot_runtime.api.identity import Caller
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.target import find_target
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.mcp.server.server import serve_pipes
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.telemetry.logs import configure_logs


def serve(target: str, settings: Settings) -> None:
    """Serve until the client closes stdin. Only the protocol may write to stdout."""
    configure_logs(settings.log_level, settings.log_format, settings.log_debug)
    with redirect_stdout(sys.stderr):  # a module may print on import
        found = find_target(target)
    if not isinstance(found, CopilotRuntime):
        raise ConfigurationFailed(
            f"{target!r} is an application: its actions and agents cannot be seen from outside.",
            hint="Name the CopilotRuntime that it is made of.",
        )
    # a thread blocks on stdin until the process exits
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_serve(found))


async def _serve(runtime: CopilotRuntime) -> None:
    """Serve without a thread store: nothing is stored."""
    runtime.conversations.open()
    if (knowledge := runtime.find(Knowledge)) is not None:
        knowledge.start()
    try:
        await serve_pipes(runtime.program_runs, Caller(properties=runtime.properties))
    finally:
        await runtime.aclose()
