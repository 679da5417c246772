"""Holds the pretend model of an example before steps that a test has named."""

import asyncio


class Steps:
    """Lets the model of the example take each step that a test does not hold back."""

    def __init__(self) -> None:
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, *names: str) -> None:
        self._held |= {name: asyncio.Event() for name in names}

    def release(self, *names: str) -> None:
        for name in names:
            self._held[name].set()

    async def __call__(self, name: str) -> None:
        if name in self._held:
            await self._held[name].wait()
