"""What somebody else thinks that providers say, read by our adapters and shown to real requests.

The mock's answers are not ours: a mistake we made in our own fakes and in our adapters alike
would show here.
"""

import json
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings, action
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import Action, Adapter, ChatRequest
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage, TextMessage
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import NetworkError
from tests.adapters.aimock.mock import SPEAKERS, mocking
from tests.adapters.asking import answer_to, messages_in, sent_back
from tests.wire.client import PLAIN, chat, client_of, user
from tests.wire_agui.http import text_of
from tests.wire_agui.server import browsing


@pytest.fixture(scope="session")
def aimock() -> Generator[str, None, None]:
    with mocking() as address:
        yield address


@pytest.fixture(params=SPEAKERS)
async def adapter(
    request: pytest.FixtureRequest, aimock: str, anyio_backend: str
) -> AsyncGenerator[Adapter, None]:
    """An adapter that asks the mock, one after the other."""
    adapter = SPEAKERS[request.param](aimock)
    yield adapter
    await adapter.aclose()


pytestmark = pytest.mark.anyio

TEXT = TextMessageStart | TextMessageContent | TextMessageEnd
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Action(name="get_weather", description="The weather.", parameters=CITY)


def asking(*messages: Any) -> ChatRequest:
    return ChatRequest(messages=messages, actions=[WEATHER])


def person(text: str) -> TextMessage:
    return TextMessage(id="u1", role="user", content=text)


def spoken(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, TextMessageContent))


async def test_a_text_arrives_in_pieces_and_ends_in_order(adapter: Adapter):
    events = await answer_to(adapter, asking(person("hello")))

    texts = [event for event in events if isinstance(event, TEXT)]
    pieces = [event.content for event in texts if isinstance(event, TextMessageContent)]
    assert "".join(pieces) == "Hello! I am a mock, and I speak in several pieces."
    assert len(pieces) > 1
    assert texts == say(pieces, id=texts[0].message_id)


async def test_a_call_and_its_follow_up(adapter: Adapter):
    question = person("the weather, please")
    events = await answer_to(adapter, asking(question))
    (call,) = [m for m in fold_messages(events) if isinstance(m, ActionExecutionMessage)]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Oslo"})

    result = ResultMessage(id="r1", call_id=call.id, name=call.name, result="sunny")
    answer = await answer_to(adapter, asking(question, *fold_messages(events), result))

    assert spoken(answer) == "It is sunny in Oslo."


async def test_two_calls_in_one_answer_arrive_whole(adapter: Adapter):
    events = await answer_to(adapter, asking(person("weather in two cities")))

    started = [event.call_id for event in events if isinstance(event, ActionExecutionStart)]
    ended = [event.call_id for event in events if isinstance(event, ActionExecutionEnd)]
    arguments = dict.fromkeys(started, "")
    for event in events:
        if isinstance(event, ActionExecutionArgs):
            arguments[event.call_id] += event.delta
    assert len({*started}) == 2
    assert sorted(ended) == sorted(started)
    assert [json.loads(text)["city"] for text in arguments.values()] == ["Oslo", "Rome"]


async def test_an_overloaded_provider_is_one_that_may_answer_later(adapter: Adapter):
    with pytest.raises(NetworkError, match="Overloaded, says the mock") as caught:
        await answer_to(adapter, asking(person("overload")))

    assert caught.value.status_code == 503


@action
def get_weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


async def test_a_v1_client_gets_a_call_its_result_and_the_follow_up(adapter: Adapter):
    runtime = CopilotRuntime(adapter, actions=[get_weather], settings=Settings(threads="memory"))
    question = user("the weather, please")
    async with client_of(runtime) as client:
        first = await client.ask(chat(question, query=PLAIN))
        call, result = messages_in(first.json())
        assert (call["name"], result["result"]) == ("get_weather", "sunny in Oslo")
        second = await client.ask(chat(question, sent_back(call), sent_back(result), query=PLAIN))

    (text,) = messages_in(second.json())
    assert "".join(text["content"]) == "It is sunny in Oslo."


async def test_an_ag_ui_client_gets_a_call_and_its_follow_up_in_one_run(adapter: Adapter):
    messages = [{"id": "u1", "role": "user", "content": "the weather, please"}]
    async with browsing(adapter, actions=[get_weather]) as browser:
        events = (await browser.run(messages=messages)).events()

    results = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert results == ["sunny in Oslo"]
    assert text_of(events) == "It is sunny in Oslo."
    assert events[-1]["type"] == "RUN_FINISHED"
