from collections.abc import AsyncGenerator

import pytest

from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from tests.adapters.provider import Provider, serving
from tests.extensions.frameworks.remote.endpoint import OFFERED, endpoint_of


@pytest.fixture
async def server(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    del anyio_backend
    async with serving() as server:
        server.answer(OFFERED)
        yield server


@pytest.fixture
async def endpoint(server: Provider) -> AsyncGenerator[RemoteEndpoint, None]:
    endpoint = endpoint_of(server)
    yield endpoint
    await endpoint.aclose()
