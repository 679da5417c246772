"""Cancel on another server what nobody waits for any more."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Cancellations:
    """Requests to cancel something elsewhere, each in a task that survives its caller's own."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, request: Coroutine[Any, Any, None], id: str) -> None:
        """Send such a request, which ends in time and does not raise, and wait for it."""
        task = asyncio.create_task(request, name=f"cancel:{id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def wait(self) -> None:
        """Wait for those under way in this event loop."""
        loop = asyncio.get_running_loop()
        if tasks := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(tasks)
