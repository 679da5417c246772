"""An agent that counts until it is stopped: a program for `copilot-runtime serve`."""

import asyncio
import os
from itertools import count

from copilot_runtime import CopilotRuntime, RunInput
from copilot_runtime.api.events import Events, TextMessageContent, TextMessageStart


async def tick(run: RunInput) -> Events:
    """Say the id of this process, and numbers, a hundred in a second."""
    yield TextMessageStart(message_id=f"m-{run.run_id}")
    yield TextMessageContent(message_id=f"m-{run.run_id}", content=f"{os.getpid()}: ")
    for number in count():
        yield TextMessageContent(message_id=f"m-{run.run_id}", content=f"{number} ")
        await asyncio.sleep(0.01)


runtime = CopilotRuntime(agents={"default": tick})
