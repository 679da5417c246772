from collections.abc import AsyncGenerator

import pytest

from tests.adapters.provider import Provider, serving


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    async with serving() as provider:
        yield provider
