"""How much of a conversation is sent: by settings, by facts, by what providers counted."""

import pytest

from copilot_runtime.adapters.context_window import ContextWindow
from copilot_runtime.adapters.pricing import find_model_facts
from copilot_runtime.api import ChatRequest, Parameters
from copilot_runtime.api.events import Usage
from copilot_runtime.api.messages import ImageMessage, TextMessage
from tests.in_one_test import in_one_test

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
