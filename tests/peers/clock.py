"""An agent that counts until it is stopped: a program for `copilot-runtime serve`."""

import asyncio
from itertools import count

from copilot_runtime import CopilotRuntime, RunInput
from copilot_runtime.events import TextMessageContent, TextMessageStart
from copilot_runtime.interfaces import Events


async def tick(run: RunInput) -> Events:
    """Say numbers, a hundred in a second."""
    yield TextMessageStart(message_id=f"m-{run.run_id}")
    for number in count():
        yield TextMessageContent(message_id=f"m-{run.run_id}", content=f"{number} ")
        await asyncio.sleep(0.01)


runtime = CopilotRuntime(agents={"default": tick})
