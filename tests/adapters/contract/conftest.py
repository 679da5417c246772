import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.adapters.contract.fakes import FAKES, Fake, make_fake


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._ahead = 0.0
        monkeypatch.setattr(self._loop, "time", self._now)

    def forward(self, seconds: float) -> None:
        """Let that time pass at once."""
        self._ahead += seconds

    def forward_soon(self, seconds: float) -> None:
        """Let that time pass as soon as the caller waits for something."""
        self._loop.call_soon(self.forward, seconds)

    def _now(self) -> float:
        return self._time() + self._ahead


@pytest.fixture(params=FAKES)
async def fake(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncGenerator[Fake, None]:
    del anyio_backend  # which only has to be there first
    async with make_fake(request.param) as fake:
        yield fake


@pytest.fixture
async def clock(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> Clock:
    del anyio_backend  # as above
    return Clock(monkeypatch)
