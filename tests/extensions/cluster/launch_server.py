"""A server, with its threads in a folder, whose agent asks before it launches.

It prints its port on a line of its own, and writes each launch into a file of the folder.
"""

import sys
from pathlib import Path

from copilot_runtime import CopilotRuntime, Settings
from tests.extensions.cluster.rocket import build_launcher
from tests.programs import serve_program


def serve(folder: Path) -> None:
    """Serve on a port of the system's choice, until the end."""

    def launch(rocket: str) -> None:
        with (folder / "launches").open("a") as file:
            file.write(f"{rocket}\n")

    settings = Settings(log_level="error", console=False, threads=f"sqlite:{folder / 'threads.db'}")
    runtime = CopilotRuntime(agents={"it": build_launcher(launch)}, settings=settings)
    serve_program(runtime.app("/copilot"))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
