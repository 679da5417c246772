"""Propagates cancellation to remote servers."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Cancellations:
    """Cancellation requests, each in a task that survives the cancellation of its caller."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, request: Coroutine[Any, Any, None], id: str) -> None:
        """Send a cancellation request, which must not hang or raise, and wait for it."""
        task = asyncio.create_task(request, name=f"cancel:{id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def wait(self) -> None:
        """Wait for the pending requests of this event loop."""
        loop = asyncio.get_running_loop()
        if tasks := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(tasks)
