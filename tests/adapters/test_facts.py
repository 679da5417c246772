"""What we know of models, and what it is not mixed up with."""

import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot

from copilot_runtime.adapters import pricing as _facts
from copilot_runtime.adapters.context_window import ContextWindow
from copilot_runtime.adapters.pricing import UNKNOWN, ModelFacts, find_model_facts
from copilot_runtime.api import ChatRequest, Parameters
from copilot_runtime.api.events import Usage
from copilot_runtime.api.messages import ImageMessage, TextMessage
from tests.in_one_test import in_one_test

SPELLINGS = [
    ("openai", "gpt-4o", 128_000),
    ("openai", "GPT-4o-2024-08-06", 128_000),
    ("openai", "gpt-5-20260101", 400_000),
    ("openai", "ft:gpt-4o-mini-2024-07-18:company::id", 128_000),
    ("azure", "gpt-4o", 128_000),
    ("anthropic", "claude-sonnet-4-5-20250929", 200_000),
    ("google", "models/gemini-2.5-flash", 1_048_576),
    ("google", "publishers/google/models/gemini-2.5-flash", 1_048_576),
    ("google", "claude-sonnet-4-5@20250929", 200_000),
    ("bedrock", "us.anthropic.claude-sonnet-4-20250514-v1:0", 200_000),
    (
        "bedrock",
        "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-sonnet-4-20250514-v1:0",
        200_000,
    ),
    ("openrouter", "anthropic/claude-sonnet-4:free", 200_000),
    ("ollama", "gpt-oss:20b", 131_072),
    ("vllm", "openai/gpt-oss-120b", 131_072),
    ("", "gpt-4o", 128_000),
]


@in_one_test(("provider", "model", "window"), SPELLINGS)
def test_a_model_is_known_by_every_name_it_is_called(provider: str, model: str, window: int):
    assert find_model_facts(provider, model).context_tokens == window


@in_one_test("model", ["prod-chat", "my-gpt-4o-deployment", "", "x" * 10_000])
def test_a_name_that_says_nothing_is_unknown(model: str):
    assert find_model_facts("azure", model) == UNKNOWN


def test_a_window_the_provider_does_not_tell_is_taken_from_the_others():
    google = find_model_facts("google", "gemini-2.5-pro")

    assert google.priced is not None
    assert (google.priced[1].context_window, google.context_tokens) == (None, 1_048_576)


def test_an_assistants_calls_cost_what_its_model_costs():
    assert (
        find_model_facts("openai_assistants", "gpt-4o").priced
        == find_model_facts("openai", "gpt-4o").priced
    )


def test_a_call_costs_what_the_prices_say_and_cached_tokens_cost_less():
    usage = Usage(model="gpt-4o", input_tokens=1_000, output_tokens=100, cached_tokens=500)

    # 2.50 and 1.25 (cached) and 10 dollars for a million
    assert find_model_facts("openai", "gpt-4o").price(usage) == Decimal("0.002875")


def test_what_is_written_to_a_cache_costs_more():
    claude = find_model_facts("anthropic", "claude-sonnet-4-5")
    usage = Usage(model="m", input_tokens=100_000, cache_write_tokens=100_000)

    # 3.75 dollars for a million, instead of 3
    assert claude.price(usage) == Decimal("0.375")


def test_a_price_is_that_of_its_hour():
    deepseek = find_model_facts("deepseek", "deepseek-chat")
    usage = Usage(model="deepseek-chat", input_tokens=1_000_000)
    night, noon = datetime(2025, 7, 1, 20, tzinfo=UTC), datetime(2025, 7, 1, 12, tzinfo=UTC)

    assert deepseek.price(usage, at=night) == Decimal("0.135")
    assert deepseek.price(usage, at=noon) == Decimal("0.27")


def test_a_model_on_an_own_machine_costs_nothing_we_know_of():
    assert find_model_facts("ollama", "gpt-oss:20b").price(Usage(model="m", input_tokens=9)) is None


def test_counts_that_contradict_each_other_have_no_price():
    usage = Usage(model="gpt-4o", input_tokens=1, cached_tokens=500)

    assert find_model_facts("openai", "gpt-4o").price(usage) is None


@pytest.mark.parametrize("counts", [(9, 5, 0, 0), (9, 5, 4, 2), (300_000, 9, 1, 0), (1, 0, 2, 0)])
def test_a_price_is_that_of_the_package(counts: tuple[int, int, int, int]):
    sent, answered, read, written = counts
    usage = Usage(
        model="m",
        input_tokens=sent,
        output_tokens=answered,
        cached_tokens=read,
        cache_write_tokens=written,
    )
    for provider in get_snapshot().providers:
        for model in provider.models[:5]:
            expected: Decimal | None = None
            with suppress(ValueError):
                counted = genai_prices.Usage(
                    input_tokens=sent,
                    output_tokens=answered,
                    cache_read_tokens=read or None,
                    cache_write_tokens=written or None,
                )
                expected = model.calc_price(counted, provider).total_price

            assert ModelFacts(priced=(provider, model)).price(usage) == expected, model.id


@pytest.mark.anyio
async def test_the_data_can_be_read_beside_the_event_loop():
    await _facts.load_prices()

    assert find_model_facts("openai", "gpt-4o") != UNKNOWN


def test_nothing_is_read_before_the_first_question():
    code = (
        "import sys, copilot_runtime, copilot_runtime.adapters.pricing as facts;"
        "assert 'genai_prices' not in sys.modules;"
        "facts.find_model_facts('openai', 'gpt-4o');"
        "assert 'genai_prices' in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


pytestmark = pytest.mark.anyio

HELLO = TextMessage(id="u1", role="user", content="Hello")
SHORT = ChatRequest(messages=[HELLO])
LONG = ChatRequest(messages=[TextMessage(id="u1", role="user", content="x" * 9_000)])


async def test_what_is_set_counts():
    assert await ContextWindow("openai", 1_000).tokens_for("gpt-4o", SHORT) == 1_000


async def test_the_answer_needs_its_part():
    request = ChatRequest(messages=[HELLO], parameters=Parameters(max_tokens=300))
    assert await ContextWindow("openai", 1_000).tokens_for("gpt-4o", request) == 700


async def test_an_answer_never_takes_more_than_half():
    request = ChatRequest(messages=[HELLO], parameters=Parameters(max_tokens=5_000))
    assert await ContextWindow("openai", 1_000).tokens_for("gpt-4o", request) == 500


async def test_a_long_conversation_is_fitted_into_what_is_known_of_the_model():
    pytest.importorskip("genai_prices")
    known = find_model_facts("openai", "gpt-4.1").context_tokens
    assert await ContextWindow("openai", usual=7_000).tokens_for("gpt-4.1", LONG) == known


async def test_a_short_one_needs_no_facts():
    assert await ContextWindow("openai", usual=7_000).tokens_for("gpt-4.1", SHORT) == 7_000


async def test_of_a_model_nobody_knows_the_usual_is_taken():
    assert await ContextWindow("openai", usual=7_000).tokens_for("a-model", LONG) == 7_000


async def test_dense_languages_have_less_room_once_they_are_counted():
    window = ContextWindow("openai", 1_000)
    window.calibrate("m", SHORT, b"x" * 3_000, Usage(model="m", input_tokens=2_700))
    assert await window.tokens_for("m", SHORT) == 333
    assert await window.tokens_for("another", SHORT) == 1_000


async def test_light_languages_have_more():
    window = ContextWindow("openai", 1_000)
    window.calibrate("m", SHORT, b"x" * 4_000, Usage(model="m", input_tokens=1_000))
    assert await window.tokens_for("m", SHORT) == 1_200


@in_one_test(
    ("request_", "tokens"),
    [
        (SHORT, 499),
        (ChatRequest(messages=[ImageMessage(id="i", role="user", format="png", bytes="")]), 9_999),
    ],
)
async def test_counts_that_say_nothing_of_texts_teach_nothing(request_: ChatRequest, tokens: int):
    window = ContextWindow("openai", 1_000)
    window.calibrate("m", request_, b"x" * 9_999, Usage(model="m", input_tokens=tokens))
    assert await window.tokens_for("m", SHORT) == 1_000
