from collections.abc import AsyncGenerator

import pytest

from copilot_runtime import CopilotRuntime
from tests.wire.client import Client, client_of
from tests.wire.upstream import Upstream, upstream


@pytest.fixture
async def provider() -> AsyncGenerator[Upstream, None]:
    """The model's end of the wire."""
    async with upstream() as provider:
        yield provider


@pytest.fixture
async def client(provider: Upstream) -> AsyncGenerator[Client, None]:
    """The browser's end of the wire."""
    async with client_of(CopilotRuntime(adapter=provider.adapter())) as client:
        yield client
