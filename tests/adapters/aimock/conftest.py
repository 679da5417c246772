"""One mock for all tests here: `@copilotkit/aimock` of npm, with our conversations."""

from collections.abc import AsyncGenerator, Generator

import pytest

from copilot_runtime.api import Adapter
from tests.adapters.aimock.mock import mocking
from tests.adapters.aimock.speakers import SPEAKERS


@pytest.fixture(scope="session")
def aimock() -> Generator[str, None, None]:
    with mocking() as address:
        yield address


@pytest.fixture(params=SPEAKERS)
async def adapter(
    request: pytest.FixtureRequest, aimock: str, anyio_backend: str
) -> AsyncGenerator[Adapter, None]:
    """An adapter that asks the mock, one after the other."""
    adapter = SPEAKERS[request.param](aimock)
    yield adapter
    await adapter.aclose()
