from collections.abc import AsyncGenerator

import pytest

from copilot_runtime.adapters.openai import OpenAIAdapter
from tests.adapters.provider import Provider, serving


@pytest.fixture(autouse=True)
def immediate_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once: how long a pause is, is for the tests of the HTTP client."""

    def no_pause(_attempt: int) -> float:
        return 0.0

    for module in ("adapters.streaming", "http.client"):
        monkeypatch.setattr(f"copilot_runtime.{module}.backoff", no_pause)


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    async with serving() as provider:
        yield provider


@pytest.fixture
async def adapter(provider: Provider) -> AsyncGenerator[OpenAIAdapter, None]:
    adapter = OpenAIAdapter(base_url=f"{provider.url}/v1", api_key="sk-mock")
    yield adapter
    await adapter.aclose()
