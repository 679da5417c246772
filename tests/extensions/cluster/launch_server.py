"""A server, with its threads in a folder, whose agent asks before it launches.

It prints its port on a line of its own, and writes each launch into a file of the folder.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agents import Agent, function_tool

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.config.console import ConsoleSettings
from tests.extensions.frameworks.sdk_model import Output, PlayingModel, call, text
from tests.programs import serve_program


def serve(folder: Path) -> None:
    """Serve on a port of the system's choice, until the end."""

    def launch(rocket: str) -> None:
        with (folder / "launches").open("a") as file:
            file.write(f"{rocket}\n")

    settings = Settings(
        log_level="error",
        console=ConsoleSettings(enabled=False),
        threads=f"sqlite:{folder / 'threads.db'}",
    )
    runtime = CopilotRuntime(agents={"it": build_launcher(launch)}, settings=settings)
    serve_program(runtime.app("/copilot"))


def build_launcher(
    effect: Callable[[str], None], *also: Output, tool: str = "launch"
) -> Agent[Any]:
    """Return an agent that calls its tool, and what else is given, and then repeats the results."""

    @function_tool(needs_approval=True, name_override=tool)
    def launch(rocket: str) -> str:
        effect(rocket)
        return f"{rocket} is gone"

    def play(heard: list[Any]) -> Sequence[Output]:
        if told := [one["output"] for one in heard if one.get("type") == "function_call_output"]:
            return [text(f"Then: {', '.join(told)}")]
        return [call(tool, '{"rocket": "A"}'), *also]

    return Agent(name="Desk", model=PlayingModel(play), tools=[launch])


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
