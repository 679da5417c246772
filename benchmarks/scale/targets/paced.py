"""Ours with an agent in the process that speaks at a steady pace: a program for `serve`.

Nothing is asked of a model, so all CPU is that of the server. The agent says when it wrote each
chunk, and writes down when it was stopped into the file BENCH_STOPS.
"""

import asyncio
import os
from time import monotonic_ns

from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, RunInput
from copilot_runtime.api.events import Events, TextMessageContent, TextMessageStart
from copilot_runtime.api.messages import TextMessage

_STOPS = os.environ.get("BENCH_STOPS", "")
_PADDING = "x" * 32
"""With a time of 20 digits it makes a chunk of 52 bytes."""


async def speak(run: RunInput) -> Events:
    """Yield as many chunks as the question says, with so many milliseconds between them."""
    question = next(it.content for it in reversed(run.messages) if isinstance(it, TextMessage))
    chunks, pause_ms = map(int, question.split())
    message, loop = f"m-{run.run_id}", asyncio.get_running_loop()
    began = loop.time()
    try:
        yield TextMessageStart(message_id=message)
        for number in range(1, chunks + 1):
            # a model speaks at its own times: whoever slept from one chunk to the next would fall
            # into step with all others that waited for the same pause of the server
            await asyncio.sleep(began + number * pause_ms / 1000 - loop.time())
            yield TextMessageContent(message_id=message, content=f"{monotonic_ns():020d}{_PADDING}")
    except asyncio.CancelledError:
        if _STOPS:
            _note_stop(run.thread_id)
        raise


def _note_stop(thread: str) -> None:
    now = monotonic_ns()
    file = os.open(_STOPS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{thread} {now}\n".encode())
    os.close(file)


def find_user(connection: HTTPConnection) -> str | None:
    """Believe what a client says about its user."""
    return connection.headers.get("x-user")


runtime = CopilotRuntime(agents={"default": speak}, authenticate=find_user)
