"""The two React examples, each in front of a runtime that asks one model."""

from collections.abc import AsyncGenerator, Generator

import pytest
from playwright.async_api import Browser

from tests.adapters.aimock.mock import mocking
from tests.adapters.contract.fakes import make_fake
from tests.browser.adapters.models import (
    MODELS,
    ByFake,
    Model,
    WithoutSuggestions,
    by_aimock,
    opened,
)
from tests.browser.chat import Chat
from tests.browser.desk import Desk


@pytest.fixture(scope="module")
def aimock() -> Generator[str, None, None]:
    """Start one mock for all; each test tells it what to say."""
    with mocking() as address:
        yield address


@pytest.fixture(params=MODELS)
async def model(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncGenerator[Model, None]:
    """Return one model after the other; a new one is here once it is in its table."""
    del anyio_backend  # which only has to be there first
    ours, _, speaker = request.param.partition("aimock-")
    if ours:
        async with make_fake(ours) as fake:
            yield ByFake(fake)
    else:
        async with by_aimock(speaker, request.getfixturevalue("aimock")) as model:
            yield model


@pytest.fixture
async def chat(
    browser: Browser, model: Model, request: pytest.FixtureRequest
) -> AsyncGenerator[Chat, None]:
    """Return the open page of `examples/react-v1`: CopilotKit 1.10."""
    async with opened("react-v1", browser, WithoutSuggestions(model.adapter)) as (page, url):
        chat = Chat(page)
        await chat.open(url)
        yield chat
        await chat.keep(picture_of(request))
    assert chat.foreign_requests() == []


@pytest.fixture
async def desk(
    browser: Browser, model: Model, request: pytest.FixtureRequest
) -> AsyncGenerator[Desk, None]:
    """Return the open page of `examples/react-v2`: AG-UI by CopilotKit 1.74."""
    async with opened("react-v2", browser, WithoutSuggestions(model.adapter)) as (page, url):
        desk = Desk(page)
        await desk.open(url)
        yield desk
        await desk.keep(picture_of(request))
    assert desk.foreign_requests() == []


def picture_of(request: pytest.FixtureRequest) -> str:
    """Return the name of the picture that is kept of how the test left its page."""
    return f"{request.path.parent.name}_{request.node.name.removeprefix('test_')}"
