"""Titles of conversations, from whatever a model answers."""

import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from agents import Agent as SdkAgent
from agents.realtime import RealtimeAgent
from copilotkit import LangGraphAGUIAgent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

# langgraph has types, but says so in none of its folders
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.test import TestModel

from copilot_runtime import CopilotRuntime, RunInput, Settings
from copilot_runtime.adapters.demo import DemoAdapter
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, call, say
from copilot_runtime.agents.function import FunctionAgent
from copilot_runtime.agents.registry import coerce_agent
from copilot_runtime.agents.titles_and_summaries import generate_title
from copilot_runtime.api import Caller
from copilot_runtime.api.events import TextMessageContent, TextMessageStart
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    Role,
    TextMessage,
)
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage, NetworkError
from tests.in_one_test import in_one_test
from tests.wire_agui.http import text_of
from tests.wire_agui.server import browsing

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


async def echo(run: RunInput) -> AsyncGenerator[str, None]:
    yield f"Thread {run.thread_id}"


def generator(run: RunInput) -> Any:
    yield "Hi"


class Generating:
    def __call__(self, run: RunInput) -> Any:
        yield "Hi"


async def forgetful() -> AsyncGenerator[str, None]:
    yield "Hi"


async def web_app(scope: Any, receive: Any, send: Any) -> None: ...


async def node(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("Hi")]}


def graph() -> Any:
    made = StateGraph(MessagesState).add_node("node", node)
    made.set_entry_point("node")
    return made.compile(checkpointer=InMemorySaver())


def pydantic_agent() -> Any:
    return PydanticAgent(TestModel())


def sdk_agent() -> Any:
    return SdkAgent(name="Desk")


@in_one_test(
    ("make", "kind"),
    [
        (lambda: echo, "FunctionAgent"),
        (graph, "LangGraphInProcessAgent"),
        (pydantic_agent, "PydanticAIAgent"),
        (sdk_agent, "OpenAIAgentsAgent"),
    ],
)
def test_an_object_is_known_by_its_class(make: Any, kind: str) -> None:
    assert type(coerce_agent("it", make())).__name__ == kind


def test_an_agent_stays_as_it_is() -> None:
    agent = FunctionAgent(echo)

    assert coerce_agent("it", agent) is agent


async def test_a_function_of_the_caller_may_return_them_as_well() -> None:
    def agents_of(caller: Caller) -> dict[str, Any]:
        return {"it": echo}

    async with browsing(agents=agents_of) as browser:
        assert text_of((await browser.run(agent="it")).events()) == "Thread t"


@in_one_test(
    ("thing", "message"),
    [
        (generator, "The function 'generator' cannot be an agent"),
        (Generating(), "The function 'Generating' cannot be an agent: it is no async generator"),
        (forgetful, "The function 'forgetful' cannot be an agent: it does not take a run"),
        (web_app, "The function 'web_app' cannot be an agent: it does not take a run"),
        (StateGraph(MessagesState), "The agent 'it' is a StateGraph that is not compiled"),
        (RealtimeAgent(name="Desk"), "The agent 'it' is a RealtimeAgent, which cannot"),
        ("https://agents.example.com", "The agent 'it' is a str, which cannot"),
        (FunctionAgent, "The agent 'it' is the class 'FunctionAgent', which cannot"),
    ],
)
def test_what_cannot_answer_is_found_out_at_the_start(thing: Any, message: str) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        CopilotRuntime(agents={"it": thing}, settings=Settings(threads="memory"))

    assert caught.value.message.startswith(message)


@in_one_test("name", ["", " ", ".", "..", 7])
def test_a_name_that_no_client_can_write_into_a_url_is_found_out_at_the_start(name: Any) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        CopilotRuntime(agents={name: echo}, settings=Settings(threads="memory"))

    assert caught.value.message == f"{name!r} cannot be the name of an agent."
    assert caught.value.hint is not None
    assert "not empty" in caught.value.hint


@in_one_test("agents", [[echo], "echo", echo])
def test_agents_without_names_are_found_out_at_the_start(agents: Any) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        CopilotRuntime(agents=agents, settings=Settings(threads="memory"))

    assert caught.value.message.endswith("and not a mapping of names to agents.")


async def test_a_graph_that_is_to_be_served_answers_here() -> None:
    served = LangGraphAGUIAgent(name="other", graph=graph(), description="Says hi.")
    async with browsing(agents={"it": served}) as browser:
        events = (await browser.run(agent="it")).events()

    assert text_of(events) == "Hi"
    assert getattr(coerce_agent("it", served), "description", "") == "Says hi."


@in_one_test(
    ("make", "module", "extra"),
    [
        (graph, "langgraph.types", "langgraph-inprocess"),
        (pydantic_agent, "pydantic_ai.ui", "pydantic-ai"),
        (sdk_agent, "agents", "openai-agents"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    make: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make()
    monkeypatch.delitem(
        sys.modules, "copilot_runtime.extensions.frameworks.langgraph.inprocess.run", raising=False
    )
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingPackage) as caught:
        coerce_agent("it", agent)

    assert f"copilot-runtime[{extra}]" in caught.value.message
