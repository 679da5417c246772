from collections.abc import AsyncGenerator

import pytest

from tests.adapters.contract.clock import Clock
from tests.adapters.contract.fakes import FAKES, Fake, make_fake


@pytest.fixture(params=FAKES)
async def fake(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncGenerator[Fake, None]:
    del anyio_backend  # which only has to be there first
    async with make_fake(request.param) as fake:
        yield fake


@pytest.fixture
async def clock(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> Clock:
    del anyio_backend  # as above
    return Clock(monkeypatch)
