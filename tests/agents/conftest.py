from collections.abc import AsyncGenerator

import pytest

from copilot_runtime.agents.agui import AguiAgent
from tests.adapters.provider import Provider, serving
from tests.agents.remote import agent_of


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    async with serving() as provider:
        yield provider


@pytest.fixture
async def agent(provider: Provider) -> AsyncGenerator[AguiAgent, None]:
    agent = agent_of(provider)
    yield agent
    await agent.aclose()
