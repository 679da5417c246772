"""pytest fixtures, to be enabled in a `conftest.py`:

    pytest_plugins = ["copilot_runtime.testing.fixtures"]

The package does not register them as a plugin, so that other test runs are not affected.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from copilot_runtime.testing.client import Client
from copilot_runtime.testing.sync_client import SyncClient


@pytest.fixture
def open_client() -> Iterator[Callable[..., SyncClient]]:
    """Return a function that opens a `SyncClient`; it is closed after the test."""
    with ExitStack() as stack:

        def connect(target: Any, **options: Any) -> SyncClient:
            return stack.enter_context(SyncClient(target, **options))

        yield connect


@pytest.fixture
async def open_async_client() -> AsyncGenerator[Callable[..., Awaitable[Client]], None]:
    """Return a coroutine function that opens a `Client`; it is closed after the test.

    For async tests with anyio's plugin, or with pytest-asyncio in its mode `auto`.
    """
    async with AsyncExitStack() as stack:

        async def connect(target: Any, **options: Any) -> Client:
            return await stack.enter_async_context(Client(target, **options))

        yield connect
