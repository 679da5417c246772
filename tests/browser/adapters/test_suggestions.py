"""Both pages ask the model what a person might ask, by a function that it must call."""

from collections.abc import AsyncGenerator, Sequence

import pytest
from playwright.async_api import Browser, expect

from tests.adapters.contract.fakes import (
    FAKES,
    CallArgs,
    CallEnd,
    CallStart,
    Fake,
    Say,
    Step,
    Stop,
    make_fake,
)
from tests.browser.adapters.models import DONE
from tests.browser.adapters.opened import opened
from tests.browser.chat import Chat
from tests.browser.desk import Desk

pytestmark = pytest.mark.anyio

FERRY = '{"suggestions":[{"title":"By sea","message":"When does the ferry go?"}]}'


@pytest.fixture(params=FAKES)
async def fake(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncGenerator[Fake, None]:
    del anyio_backend  # which only has to be there first
    async with make_fake(request.param) as fake:
        yield fake


def suggesting(function: str) -> Sequence[Step]:
    called = [CallStart("call_1", function), CallArgs("call_1", FERRY), CallEnd("call_1")]
    return [*called, Stop("tool_calls")]


async def test_a_v1_page_shows_what_the_model_suggests(browser: Browser, fake: Fake):
    fake.plays(*suggesting("extract"))
    async with opened("react-v1", browser, fake.adapter()) as (page, url):
        await Chat(page).open(url)

        await expect(page.get_by_role("button", name="By sea")).to_be_visible()


async def test_a_v2_page_shows_what_the_model_suggests(browser: Browser, fake: Fake):
    fake.plays(Say(DONE), Stop())
    fake.plays(*suggesting("copilotkitSuggest"))
    async with opened("react-v2", browser, fake.adapter()) as (page, url):
        desk = Desk(page)
        await desk.open(url)
        await desk.ask("Hello?")

        await expect(desk.suggestion("By sea")).to_be_visible()
        await desk.sees_answer(DONE)
