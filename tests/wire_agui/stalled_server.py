"""A server with long threads: `python -m tests.wire_agui.stalled_server FILE WRITE_TIMEOUT`.

It prints its port on a line of its own, once it can be connected to.
"""

import asyncio
import socket
import sys

import uvicorn

from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.app import CopilotRuntime
from copilot_runtime.config import Settings
from copilot_runtime.events import ActionExecutionResult, AgentState
from copilot_runtime.interfaces import Events, RunInput

SIZE = 12 * 1024 * 1024


class Author:
    """Says `SIZE` characters in one answer, in the form that the thread is named for."""

    async def run(self, run: RunInput) -> Events:
        match run.thread_id:
            case "texts":
                for number in range(100):
                    for event in say(f"{number:4}" * (SIZE // 400), id=f"m{number}"):
                        yield event
            case "text":
                for event in say("x" * SIZE, id="m"):
                    yield event
            case "result":
                for event in call("look", {}, id="c"):
                    yield event
                yield ActionExecutionResult(call_id="c", name="look", result="x" * SIZE)
            case "state":
                yield AgentState(agent="default", state={"text": "x" * SIZE})
            case _:
                for event in say("Yes.", id="m"):  # the question is long
                    yield event


def serve(file: str, write_timeout: str) -> None:
    """Serve on a port of the system's choice, until the end."""
    settings = Settings(
        log_level="error",
        console=False,
        threads=f"sqlite:{file}",
        write_timeout=float(write_timeout),
    )
    runtime = CopilotRuntime(agents={"default": Author()}, settings=settings)
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(runtime.app("/copilotkit"), log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    serve(*sys.argv[1:])
