"""A server that talks until it is killed: `python -m tests.threads.kill_server FILE`.

It prints its port on a line of its own, once it can be connected to.
"""

import asyncio
import random
import sys

from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import ActionExecutionResult, AgentState, Custom, Event, Events
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.config.console import ConsoleSettings
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.threads.sqlite import SqliteThreads
from tests.programs import serve_program


class Talker:
    """Says something of every kind, in many small pieces, and ends after a while."""

    async def run(self, run: RunInput) -> Events:
        """Answer with texts, calls and states whose ids tell the run they belong to."""
        for number in range(random.randint(1, 12)):
            for event in _part(f"{run.run_id}-{number}", number):
                yield event
                if random.random() < 0.5:
                    await asyncio.sleep(0.001)


def _part(name: str, number: int) -> list[Event]:
    pieces = [f"{name}:{piece} " for piece in range(random.randint(1, 30))]
    if number % 3:
        return [*say(pieces, id=name), Custom(name="progress", value=name)]
    return [
        *call("look", {"at": "".join(pieces)}, id=name),
        AgentState(agent="default", state={"number": number, "name": name}),
        ActionExecutionResult(call_id=name, name="look", result=f"{name} seen"),
    ]


def serve(file: str) -> None:
    """Serve on a port of the system's choice, until the end."""
    settings = Settings(log_level="error", console=ConsoleSettings(enabled=False))
    runtime = CopilotRuntime(
        agents={"default": Talker()}, threads=SqliteThreads(file), settings=settings
    )
    serve_program(runtime.app("/copilot"))


if __name__ == "__main__":
    serve(sys.argv[1])
