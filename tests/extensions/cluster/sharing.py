"""Several servers of one store of threads, in this process."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from copilot_runtime import Settings
from tests.wire_agui.http import Browser
from tests.wire_agui.server import browsing


@asynccontextmanager
async def sharing(
    shared: Mapping[str, Any],
    *models: Any,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[list[Browser], None]:
    """Serve the same threads by several servers, and yield a browser at each."""
    async with AsyncExitStack() as stack:
        chosen = Settings(**shared, **settings)
        yield [
            await stack.enter_async_context(browsing(model, settings=chosen, **(options or {})))
            for model in models
        ]
