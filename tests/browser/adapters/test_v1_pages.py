"""Every model behind a v1 page: what a person sees, and what the provider is told."""

import pytest
from playwright.async_api import expect

from tests.browser.adapters.calls import ADD, MOVE
from tests.browser.adapters.models import DONE, Model, needs
from tests.browser.chat import Chat

pytestmark = pytest.mark.anyio


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
