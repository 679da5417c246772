"""A server with long threads: `python -m tests.wire_agui.stalled_server FILE WRITE_TIMEOUT`.

It prints its port on a line of its own, once it can be connected to.
"""

import sys

from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import ActionExecutionResult, AgentState, Events
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.config.console import ConsoleSettings
from copilot_runtime.extensions.settings import Settings
from tests.programs import serve_program

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
        console=ConsoleSettings(enabled=False),
        threads=f"sqlite:{file}",
        write_timeout=float(write_timeout),
    )
    runtime = CopilotRuntime(agents={"default": Author()}, settings=settings)
    serve_program(runtime.app("/copilotkit"))


if __name__ == "__main__":
    serve(*sys.argv[1:])
