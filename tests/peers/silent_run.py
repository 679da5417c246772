"""A process that begins a run and says nothing more: `python -m tests.peers.silent_run FILE`."""

import asyncio
import sys

from copilot_runtime.interfaces import RunInput
from copilot_runtime.threads.sqlite import SqliteThreads


async def begin(file: str) -> None:
    """Begin a run in the thread `t` of nobody, and stay."""
    await SqliteThreads(file).begin(RunInput(thread_id="t", run_id="r1", log_id="r1", messages=()))
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1]))
