"""Every model behind a v2 page: what a person sees, and what the provider is told."""

import pytest
from playwright.async_api import expect

from tests.browser.adapters.calls import CLOCK, DESTINATION, WEATHER
from tests.browser.adapters.models import DONE, Model, needs
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
