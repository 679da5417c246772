"""A process, started with a file of threads, that begins a run and says nothing more."""

import asyncio
import sys

from copilot_runtime.api import RunInput
from copilot_runtime.threads.sqlite import SqliteThreads


async def begin(file: str) -> None:
    """Begin a run in the thread `t` of nobody, and stay."""
    await SqliteThreads(file).begin(RunInput(thread_id="t", run_id="r1", log_id="r1", messages=()))
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1]))
