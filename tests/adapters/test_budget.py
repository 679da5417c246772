"""How much a person may ask, and what they are told when that is spent."""

import logging
from contextlib import aclosing
from datetime import timedelta

import pytest

from copilot_runtime.adapters import budget
from copilot_runtime.adapters.budget import BudgetedAdapter
from copilot_runtime.adapters.fallback import FallbackAdapter
from copilot_runtime.adapters.scripted import ScriptedAdapter, Turn, call, say
from copilot_runtime.api import Adapter, ChatRequest
from copilot_runtime.api.events import Custom, Event, Usage
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    MissingPackage,
    NetworkError,
    RateLimited,
)
from tests.adapters.asking import HELLO, answer_to
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

SIXTY = [*say("Hello"), Usage(model="gpt-4o", provider="openai", input_tokens=50, output_tokens=10)]
EIGHT = 1_800_000_000.0
"""2027-01-15 08:00 UTC."""


class Clock:
    now = EIGHT

    def __call__(self) -> float:
        return self.now


def by(user: str | None) -> ChatRequest:
    return ChatRequest(messages=[HELLO], user=user)


def endless(turn: Turn = SIXTY) -> ScriptedAdapter:
    return ScriptedAdapter(*[turn] * 10)


async def refusal_of(adapter: Adapter, user: str | None = "ada") -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        await answer_to(adapter, by(user))
    return caught.value


async def test_the_answer_that_crosses_the_limit_is_finished_and_the_next_refused():
    clock, model = Clock(), endless()
    adapter = BudgetedAdapter(model, tokens=100, clock=clock)

    assert await answer_to(adapter, by("ada")) == SIXTY
    assert await answer_to(adapter, by("ada")) == SIXTY
    clock.now += 3600
    refusal = await refusal_of(adapter)

    assert refusal.message == (
        "You have used up your 100 tokens. You can ask again from 2027-01-16 08:00 UTC."
    )
    assert refusal.retry_after == 23 * 3600
    assert len(model.requests) == 2


async def test_everybody_has_a_budget_of_their_own():
    adapter = BudgetedAdapter(endless(), tokens=50)
    await answer_to(adapter, by("ada"))

    await refusal_of(adapter, "ada")

    assert await answer_to(adapter, by("bob")) == SIXTY


async def test_those_without_a_name_share_one_budget():
    adapter = BudgetedAdapter(endless(), tokens=50)
    await answer_to(adapter, by(None))

    await refusal_of(adapter, None)


async def test_a_new_period_begins_with_a_full_budget():
    clock = Clock()
    adapter = BudgetedAdapter(endless(), tokens=50, period=timedelta(hours=1), clock=clock)
    await answer_to(adapter, by("ada"))
    await refusal_of(adapter)

    clock.now += 3600

    assert await answer_to(adapter, by("ada")) == SIXTY


async def test_a_budget_may_be_money():
    adapter = BudgetedAdapter(endless(), dollars=0.0004)  # one answer costs 0.000225
    await answer_to(adapter, by("ada"))
    await answer_to(adapter, by("ada"))

    assert (await refusal_of(adapter)).message.startswith("You have used up your 0.0004 US dollars")


async def test_a_model_without_a_price_is_said_to_cost_nothing(caplog: pytest.LogCaptureFixture):
    free = [Usage(model="llama-on-my-desk", provider="vllm", input_tokens=10**9)]
    adapter = BudgetedAdapter(endless(free), dollars=0.01)

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert await answer_to(adapter, by("ada")) == free

    assert [r.getMessage() for r in caplog.records] == [
        "No price is known for 'llama-on-my-desk': it is not budgeted."
    ]


@in_one_test("turn", [say("x" * 300), call("f", "x" * 300)], ids=["text", "call"])
async def test_who_hangs_up_before_the_count_pays_by_estimate(turn: list[Event]):
    adapter = BudgetedAdapter(endless(turn), tokens=100)
    async with aclosing(adapter.stream(by("ada"))) as events:
        await anext(events)
        await anext(events)

    await refusal_of(adapter)


async def test_a_question_nobody_answered_costs_nothing():
    adapter = BudgetedAdapter(ScriptedAdapter(NetworkError("Down."), SIXTY), tokens=1)
    with pytest.raises(CopilotError):
        await answer_to(adapter, by("ada"))

    assert await answer_to(adapter, by("ada")) == SIXTY


async def test_a_cheaper_model_goes_on_when_the_budget_is_spent():
    cheap = ScriptedAdapter(say("Hi"))
    adapter = FallbackAdapter(BudgetedAdapter(endless(), tokens=50), cheap)
    await answer_to(adapter, by("ada"))

    assert await answer_to(adapter, by("ada")) == say("Hi")


async def test_a_wish_left_out_costs_nothing_and_keeps_no_other_from_answering():
    warning = Custom(name="warning", value={"code": "seed"})
    overloaded = endless([warning, NetworkError("Overloaded.")])
    adapter = FallbackAdapter(BudgetedAdapter(overloaded, tokens=1), endless(say("Hello")))

    for _ in range(2):
        assert await answer_to(adapter, by("ada")) == say("Hello")
    assert len(overloaded.requests) == 2  # the second time, too, there was a budget


async def test_closing_it_closes_the_adapter():
    model = ScriptedAdapter()

    await BudgetedAdapter(model, tokens=1).aclose()

    assert model.closed


def test_a_budget_of_nothing_in_particular_is_refused():
    with pytest.raises(ConfigurationFailed):
        BudgetedAdapter(ScriptedAdapter())


def test_a_budget_of_money_needs_the_prices(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(budget, "find_spec", _nothing)

    with pytest.raises(MissingPackage, match="genai-prices"):
        BudgetedAdapter(ScriptedAdapter(), dollars=1)


def _nothing(name: str) -> None:
    """Find no package."""
