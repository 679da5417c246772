"""Every model behind a v2 page: what a person sees, and what the provider is told."""

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
from tests.browser.adapters.models import (
    ADD,
    CLOCK,
    DESTINATION,
    DONE,
    MOVE,
    WEATHER,
    Model,
    needs,
    opened,
)
from tests.browser.chat import Chat
from tests.browser.desk import Desk

pytestmark = pytest.mark.anyio


async def test_a_v2_page_acts_for_the_model_and_shows_what_it_says_then(desk: Desk, model: Model):
    await model.plays(DESTINATION)
    await desk.ask("Take me to Lisbon")

    await expect(desk.destination()).to_have_text("Lisbon")
    await desk.sees_answer(DONE)
    await desk.is_ready()
    assert await model.told() == [DESTINATION.exchange]


async def test_a_v2_page_does_two_things_at_once(desk: Desk, model: Model):
    needs(model, "parallel_calls")
    await model.plays(DESTINATION, WEATHER)
    await desk.ask("Compare Lisbon with Oslo")

    await expect(desk.destination()).to_have_text("Lisbon")
    await expect(desk.weather("Oslo")).to_contain_text("13°")
    await desk.sees_answer(DONE)
    await desk.is_ready()
    assert await model.told() == [DESTINATION.exchange, WEATHER.exchange]


async def test_a_v2_page_shows_what_the_model_says_of_our_own_action(desk: Desk, model: Model):
    await model.plays(CLOCK)
    await desk.ask("How late is it in Oslo?")

    await desk.sees_answer(DONE)
    await desk.is_ready()
    assert await model.told() == [CLOCK.exchange]


async def test_a_v1_page_acts_for_the_model_and_shows_what_it_says_then(chat: Chat, model: Model):
    await model.plays(ADD)
    await chat.ask("Ada should water the plants")

    await expect(chat.column("To do")).to_contain_text("Water the plants")
    await expect(chat.card("New task")).to_contain_text(ADD.result)
    await chat.sees_answer(DONE)
    await chat.is_ready()
    assert await model.told() == [ADD.exchange]


async def test_a_v1_page_does_two_things_at_once(chat: Chat, model: Model):
    needs(model, "parallel_calls")
    await model.plays(ADD, MOVE)
    await chat.ask("Tidy up")

    await expect(chat.column("To do")).to_contain_text("Water the plants")
    await expect(chat.column("Doing")).to_contain_text("Order a cake for Friday")
    await chat.sees_answer(DONE)
    await chat.is_ready()
    assert await model.told() == [ADD.exchange, MOVE.exchange]


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
