"""Titles of conversations, from whatever a model answers."""

import pytest

from copilot_runtime.adapters.demo import DemoAdapter
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, call, say
from copilot_runtime.agents.title import generate_title
from copilot_runtime.api.events import TextMessageContent, TextMessageStart
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    Role,
    TextMessage,
)
from copilot_runtime.base.errors import NetworkError
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def said(text: str, role: Role = "user") -> TextMessage:
    return TextMessage(id="m", role=role, content=text)


async def name_of(answer: str) -> str | None:
    return await generate_title(ScriptedAdapter(say(answer)), [said("Hi")])


async def test_the_model_sees_the_first_exchange_only():
    adapter = ScriptedAdapter(say("Weather in Oslo"))
    messages: list[Message] = [
        said("Be kind.", "system"),
        said("How is the weather?" + "!" * 5_000),
        ActionExecutionMessage(id="c", name="get_weather", arguments="{}"),
        said("Sunny.", "assistant"),
        said("And tomorrow?"),
    ]
    assert await generate_title(adapter, messages) == "Weather in Oslo"

    instructions, exchange = adapter.requests[0].messages
    assert isinstance(instructions, TextMessage)
    assert isinstance(exchange, TextMessage)
    assert (instructions.role, exchange.role) == ("system", "user")
    assert exchange.content.startswith("User:\nHow is the weather?!!!")
    assert exchange.content.endswith("!\n\nAssistant:\nSunny.")
    assert len(exchange.content) < 2_100
    assert adapter.requests[0].actions == ()


@in_one_test(
    ("answer", "name"),
    [
        ("Weather in Oslo", "Weather in Oslo"),
        ('  "Weather in Oslo."\n', "Weather in Oslo"),
        ("**Title: Weather in Oslo**\n\nI chose it because", "Weather in Oslo"),
        ("# „Das Wetter in Oslo“", "Das Wetter in Oslo"),
        ("«Погода в Осло»", "Погода в Осло"),
        ("「オスロの天気」", "オスロの天気"),
        ("Learning C#", "Learning C#"),
        ("Is it raining?", "Is it raining?"),
        ("<think>A title.\nHm.</think>\n\nRain", "Rain"),
        ("a  b\tc\x1b", "a b c"),
        ("half \ud83d", "half \ufffd"),
        ("word " * 30, "word " * 11 + "word…"),
        ("字" * 100, "字" * 59 + "…"),
        ("x" * 60, "x" * 60),
        ("", None),
        ("<think>I never stop", None),
        ('""', None),
        ("...", None),
    ],
)
async def test_a_title_is_one_short_line_without_quotes(answer: str, name: str | None):
    assert await name_of(answer) == name
    assert len(name or "") <= 60


async def test_a_conversation_that_nobody_began_has_no_name():
    adapter = ScriptedAdapter()
    assert await generate_title(adapter, [said("Hello!", "assistant"), said(" ")]) is None
    assert adapter.requests == []


@in_one_test(
    "message",
    [
        ImageMessage(id="i", role="user", format="png", bytes="iVBO"),
        TextMessage(
            id="i",
            role="user",
            content="",
            parts=[MediaPart(kind="image", source="data", value="iVBO")],
        ),
    ],
)
async def test_an_image_is_a_beginning(message: Message):
    adapter = ScriptedAdapter(say("A picture"))
    assert await generate_title(adapter, [message]) == "A picture"
    assert "(image)" in str(adapter.requests[0].messages[1])


@in_one_test("error", [NetworkError("The model is away."), RuntimeError("oops")])
async def test_a_model_that_fails_gives_no_name(error: Exception):
    assert await generate_title(ScriptedAdapter(error), [said("Hi")]) is None


async def test_a_model_that_calls_something_gives_no_name():
    assert await generate_title(ScriptedAdapter(call("rename")), [said("Hi")]) is None


async def test_a_slow_model_gives_no_name():
    adapter = ScriptedAdapter(say("Late"), gate=Gate())
    assert await generate_title(adapter, [said("Hi")], timeout=0.01) is None


async def test_a_model_without_end_is_left():
    class Talker(ScriptedAdapter):
        closed = False

        async def stream(self, request: object):
            try:
                yield TextMessageStart(message_id="m")
                while True:
                    yield TextMessageContent(message_id="m", content="Endless talk\n")
            finally:
                self.closed = True

    talker = Talker()
    assert await generate_title(talker, [said("Hi")]) == "Endless talk"
    assert talker.closed


async def test_the_demo_model_names_a_conversation_by_its_beginning():
    adapter = DemoAdapter(pace=0)
    question = said("What is the time in Oslo\nand in Rome?")
    assert await generate_title(adapter, [question, said("Noon.", "assistant")]) == (
        "What is the time in Oslo"
    )
    assert await generate_title(adapter, [said("long " * 20)]) == (
        "long long long long long long long long…"
    )
