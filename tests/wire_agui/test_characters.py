"""Characters whose halves come in two pieces: what a page, a thread and a model get."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from copilot_runtime import AguiAgent, Events, OpenAIAdapter, RunInput, action
from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    ReasoningContent,
    ReasoningEnd,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage
from copilot_runtime.base.errors import NetworkError
from tests.adapters.provider import Step, saying, serving, streamed
from tests.agents.pages import asked_v1, page_v1, texts_v1
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Event, text_of
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

HIGH, LOW, FACE, HALF = "\ud83d", "\ude00", "\N{GRINNING FACE}", "\N{REPLACEMENT CHARACTER}"


def escaped(delta: bytes) -> bytes:
    """Return a chunk of a model whose text is JSON as it stands."""
    return b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % delta


def content(delta: bytes) -> bytes:
    """Return a chunk of an AG-UI agent whose text is JSON as it stands."""
    return b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"%b"}\n\n' % delta


MODEL = saying(escaped(rb"a\ud83d"), escaped(rb"\ude00b"), escaped(rb"c\ud83d"))
MODEL_OF_BYTES = saying(escaped(b"a\xf0\x9f"), escaped(b"\x98\x80b"), escaped(b"c\xf0\x9f\x98"))
"""llama.cpp and others cut a text between two bytes: ggml-org/llama.cpp#28926."""
AGENT = streamed(
    b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n',
    b'data: {"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}\n\n',
    content(rb"a\ud83d"),
    content(rb"\ude00b"),
    content(rb"c\ud83d"),
    b'data: {"type":"TEXT_MESSAGE_END","messageId":"m"}\n\n',
    b'data: {"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n\n',
)


async def cut(run: RunInput) -> AsyncGenerator[str]:
    """Yield a text as a program does that cuts it between UTF-16 code units."""
    for piece in ("a" + HIGH, LOW + "b", "c" + HIGH):
        yield piece


@asynccontextmanager
async def speaker(name: str) -> AsyncGenerator[dict[str, Any]]:
    """Yield the arguments of a runtime in which that kind of agent answers."""
    async with AsyncExitStack() as stack:
        if name == "function":
            yield {"agents": {"it": cut}}
            return
        models = {"model": MODEL, "model that cuts bytes": MODEL_OF_BYTES}
        script: Sequence[Step] = models.get(name, AGENT)
        provider = await stack.enter_async_context(serving())
        provider.answer(script)
        if name in models:
            yield {"adapter": OpenAIAdapter("m", base_url=provider.url, api_key="k")}
        else:
            yield {"agents": {"it": AguiAgent(provider.url)}}


@in_one_test("name", ["model", "model that cuts bytes", "agent", "function"])
async def test_a_page_and_its_thread_get_whole_characters(name: str):
    agent = "default" if name.startswith("model") else "it"
    async with speaker(name) as options, browsing(**options) as browser:
        shown = (await browser.run(agent=agent)).events()
        stored = (await browser.connect(agent=agent)).events()

    assert (text_of(shown), text_of(stored)) == (f"a{FACE}bc{HALF}",) * 2


async def test_a_v1_page_gets_whole_characters():
    async with page_v1(cut) as client:
        assert texts_v1(await asked_v1(client)) == [f"a{FACE}bc{HALF}"]


def interleaved(run: RunInput) -> Events:
    """Two texts, a thought and two calls whose halves do not belong together."""

    async def events() -> Events:
        yield TextMessageStart(message_id="m1")
        yield TextMessageStart(message_id="m2")
        yield ReasoningStart(message_id="t1")
        yield ActionExecutionStart(call_id="c1", name="one")
        yield ActionExecutionStart(call_id="c2", name="two")
        yield TextMessageContent(message_id="m1", content="1" + HIGH)
        yield TextMessageContent(message_id="m2", content=LOW + "2")
        yield ReasoningContent(message_id="t1", content="3" + HIGH)
        yield ActionExecutionArgs(call_id="c1", delta='"4' + HIGH)
        yield ActionExecutionArgs(call_id="c2", delta=LOW + '5"')
        yield TextMessageContent(message_id="m2", content="!")
        yield ActionExecutionArgs(call_id="c1", delta=LOW + '"')
        yield ReasoningContent(message_id="t1", content=LOW)
        yield ReasoningEnd(message_id="t1")
        for id in ("m1", "m2"):
            yield TextMessageEnd(message_id=id)
        for id in ("c1", "c2"):
            yield ActionExecutionEnd(call_id=id)
        yield ActionExecutionResult(call_id="c1", name="one", result="x" + HIGH)
        yield AgentState(agent="it", state={"text": "y" + HIGH})

    return events()


def deltas(events: Sequence[Event]) -> dict[str, str]:
    """Return the text of each message, thought and call."""
    found: dict[str, str] = {}
    for event in events:
        if "delta" in event and isinstance(event["delta"], str):
            id = event.get("messageId") or event["toolCallId"]
            found[id] = found.get(id, "") + event["delta"]
    return found


async def test_halves_of_two_messages_or_calls_are_not_joined():
    async with browsing(agents={"it": interleaved}) as browser:
        events = (await browser.run(agent="it")).events()

    assert deltas(events) == {
        "m1": f"1{HALF}",
        "m2": f"{HALF}2!",
        "t1": f"3{FACE}",
        "c1": f'"4{FACE}"',
        "c2": f'{HALF}5"',
    }
    assert next(e["content"] for e in events if e["type"] == "TOOL_CALL_RESULT") == f"x{HALF}"
    assert (
        next(e["snapshot"] for e in events if e["type"] == "STATE_SNAPSHOT")["text"] == f"y{HALF}"
    )


async def failing(run: RunInput) -> AsyncGenerator[str]:
    yield "a" + HIGH
    raise NetworkError("No more.")


async def test_half_a_character_before_a_failure_is_not_lost():
    async with browsing(agents={"it": failing}) as browser:
        events = (await browser.run(agent="it")).events()

    assert (text_of(events), events[-1]["type"]) == (f"a{HALF}", "RUN_ERROR")


async def test_an_action_and_the_next_request_get_whole_characters():
    heard: list[str] = []

    @action
    async def remember(text: str) -> str:
        """Remember a text."""
        heard.append(text)
        return "x" + HIGH + LOW

    begin, piece, end = call("remember", '{"text":"a' + HIGH, id="c1")
    rest = ActionExecutionArgs(call_id="c1", delta=LOW + r'\ud83d"}')
    adapter = ScriptedAdapter([begin, piece, rest, end], say("Done."))
    async with browsing(adapter, actions=[remember]) as browser:
        await browser.run()

    assert heard == [f"a{FACE}{HALF}"]
    *_, called, result = adapter.requests[-1].messages
    assert isinstance(called, ActionExecutionMessage)
    assert isinstance(result, ResultMessage)
    assert (called.arguments, result.result) == (f'{{"text":"a{FACE}\\ud83d"}}', f"x{FACE}")
