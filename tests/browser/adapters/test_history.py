"""What a page gives back to the model of what was said before."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime.adapters.capabilities import UNSUPPORTED
from tests.adapters.contract.fakes import FAKES, Fake, Think, make_fake
from tests.browser.adapters.models import ADD, DESTINATION, DONE, MOVE, WEATHER, ByFake
from tests.browser.chat import Chat
from tests.browser.desk import Desk

pytestmark = pytest.mark.anyio

SIGNED = Think("", "c2lnLTE=")
TOLD = [name for name in FAKES if "history" not in UNSUPPORTED[name]]
SIGNING = [name for name in TOLD if not {"reasoning", "signatures"} & {*UNSUPPORTED[name]}]


@pytest.fixture
async def fake(name: str, anyio_backend: str) -> AsyncGenerator[Fake, None]:
    del anyio_backend  # which only has to be there first
    async with make_fake(name) as fake:
        yield fake


@pytest.fixture
def model(fake: Fake) -> ByFake:
    return ByFake(fake)


def conversation(fake: Fake) -> list[Any]:
    """Return what the last request tells: thoughts, names of calls, texts; no instructions.

    Every call has its result, at once or after the other calls: providers differ.
    """
    said = [one for one in fake.asked[-1].messages if one.role != "instructions"]
    called = [one.call[0] for one in said if one.call]
    assert [one.result_of for one in said if one.result_of] == called
    heard = [one for one in said if not one.result_of]
    return [one.thought or (one.call and one.call[1]) or one.text for one in heard]


@pytest.mark.parametrize("name", TOLD)
async def test_a_v1_page_gives_everything_back_in_its_order(chat: Chat, model: ByFake, fake: Fake):
    await model.plays(ADD, MOVE)
    await chat.ask("Tidy up")
    await chat.sees_answer(DONE)
    await chat.is_ready()
    await chat.ask("Thanks!")
    await fake.until_asked(3)

    assert conversation(fake) == ["Tidy up", ADD.name, MOVE.name, DONE, "Thanks!"]


@pytest.mark.parametrize("name", TOLD)
async def test_a_v2_page_gives_everything_back_in_its_order(desk: Desk, model: ByFake, fake: Fake):
    await model.plays(DESTINATION, WEATHER)
    await desk.ask("Compare Lisbon with Oslo")
    await desk.sees_answer(DONE)
    await desk.is_ready()
    await desk.ask("Thanks!")
    await fake.until_asked(3)

    called = [DESTINATION.name, WEATHER.name]
    assert conversation(fake) == ["Compare Lisbon with Oslo", *called, DONE, "Thanks!"]


@pytest.mark.parametrize("name", SIGNING)
async def test_a_v2_page_gives_a_signed_thought_back_before_its_call(
    desk: Desk, model: ByFake, fake: Fake
):
    await model.plays(DESTINATION, before=[Think("Hm."), SIGNED])
    await desk.ask("Take me to Lisbon")
    await desk.sees_answer(DONE)
    await desk.is_ready()

    assert conversation(fake) == ["Take me to Lisbon", SIGNED.signature, DESTINATION.name]
