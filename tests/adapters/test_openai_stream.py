"""What becomes of the chunks of a chat completions stream, over a real connection."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import count
from typing import Any

import pytest

from copilot_runtime.adapters import _assemble
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.errors import CopilotError, NetworkError, RateLimited, Refused
from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Custom,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.interfaces import Action, ChatRequest
from copilot_runtime.messages import TextMessage
from tests.adapters.provider import (
    CLOSE,
    DONE,
    END,
    HANG,
    HEAD,
    RESET,
    Provider,
    Step,
    chunk,
    finish,
    piece,
    saying,
    streamed,
    text,
    tool,
    tools,
    whole,
)

pytestmark = pytest.mark.anyio

HELLO = TextMessage(id="u1", role="user", content="Hello")
ACTIONS = [Action(name="setColor"), Action(name="setSize"), Action(name="set")]
REQUEST = ChatRequest(messages=[HELLO], actions=ACTIONS)
PREMATURE = "OpenAI API error: Premature close"
NO_STREAM = "OpenAI API error: The answer is not a stream of chat completion chunks."


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def adapter(provider: Provider) -> AsyncGenerator[OpenAIAdapter, None]:
    adapter = OpenAIAdapter(base_url=f"{provider.url}/v1", api_key="sk-mock")
    yield adapter
    await adapter.aclose()


@pytest.fixture(autouse=True)
def ids(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count(1)
    monkeypatch.setattr(_assemble, "_new_id", lambda: f"ck-{next(numbers)}")


async def answer_to(adapter: OpenAIAdapter, request: ChatRequest = REQUEST) -> list[Event]:
    async with aclosing(adapter.stream(request)) as events:
        return [event async for event in events]


async def failure_of(adapter: OpenAIAdapter) -> tuple[list[Event], CopilotError]:
    """Return the events before the error, and the error."""
    seen: list[Event] = []
    with pytest.raises(CopilotError) as caught:
        async with aclosing(adapter.stream(REQUEST)) as events:
            async for event in events:
                seen.append(event)
    return seen, caught.value


def said(*pieces: str, id: str = "chatcmpl-1", ended: bool = True) -> list[Event]:
    return [
        TextMessageStart(message_id=id),
        *(TextMessageContent(message_id=id, content=piece) for piece in pieces),
        *([TextMessageEnd(message_id=id)] if ended else []),
    ]


def called(name: str, *pieces: str, id: str = "call_1", parent: str = "chatcmpl-1") -> list[Event]:
    return [
        ActionExecutionStart(call_id=id, name=name, parent_id=parent),
        *(ActionExecutionArgs(call_id=id, delta=piece) for piece in pieces),
        ActionExecutionEnd(call_id=id),
    ]


RED, SEVEN = '{"color":"red"}', '{"size":7}'


ANSWERS: dict[str, tuple[Sequence[Step], Sequence[Event]]] = {
    "text": (saying(text(""), text("Hel"), text("lo é 🙂")), said("Hel", "lo é 🙂")),
    "nothing": (saying(chunk({"role": "assistant", "content": ""})), []),
    "a call in pieces": (
        saying(
            tools(tool(id="call_1", name="setColor")),
            tools(tool('{"color":')),
            tools(tool('"red"}')),
        ),
        called("setColor", '{"color":', '"red"}'),
    ),
    "a call without arguments": (
        saying(tools(tool(id="call_1", name="setColor"))),
        called("setColor"),
    ),
    "a call of an unknown action": (
        saying(tools(tool(id="call_1", name="noSuch")), tools(tool("{}"))),
        called("noSuch", "{}"),
    ),
    "an empty call of an unknown action": (
        saying(tools(tool(id="call_1", name="noSuch"))),
        called("noSuch"),
    ),
    "text, then a call": (
        saying(text("Sure."), tools(tool(RED, id="call_1", name="setColor"))),
        [*said("Sure."), *called("setColor", RED)],
    ),
    "a call, then text": (
        saying(tools(tool(RED, id="call_1", name="setColor")), text("Done")),
        [*called("setColor", RED), *said("Done")],
    ),
    "text, a call, then text": (
        saying(text("Before"), tools(tool(RED, id="call_1", name="setColor")), text("After")),
        [*said("Before"), *called("setColor", RED), *said("After", id="chatcmpl-1-2")],
    ),
    "two calls, one after the other": (
        saying(
            tools(tool(RED, id="call_1", name="setColor")),
            tools(tool(id="call_2", name="setSize", index=1)),
            tools(tool(SEVEN, index=1)),
        ),
        [*called("setColor", RED), *called("setSize", SEVEN, id="call_2")],
    ),
    "two calls in one chunk": (
        saying(
            tools(
                tool(RED, id="call_1", name="setColor"),
                tool(SEVEN, id="call_2", name="setSize", index=1),
            )
        ),
        [*called("setColor", RED), *called("setSize", SEVEN, id="call_2")],
    ),
    "two calls, mixed": (
        saying(
            tools(tool(id="call_1", name="setColor")),
            tools(tool(id="call_2", name="setSize", index=1)),
            tools(tool(SEVEN, index=1)),
            tools(tool(RED)),
        ),
        [
            ActionExecutionStart(call_id="call_1", name="setColor", parent_id="chatcmpl-1"),
            ActionExecutionStart(call_id="call_2", name="setSize", parent_id="chatcmpl-1"),
            ActionExecutionArgs(call_id="call_2", delta=SEVEN),
            ActionExecutionArgs(call_id="call_1", delta=RED),
            ActionExecutionEnd(call_id="call_1"),
            ActionExecutionEnd(call_id="call_2"),
        ],
    ),
    "a call without an id": (
        saying(tools(tool(RED, name="setColor"))),
        called("setColor", RED, id="ck-1"),
    ),
    "a call that gets its id later": (
        saying(tools(tool(name="set")), tools(tool("{}", id="call_1"))),
        called("set", "{}"),
    ),
    "a name in pieces": (
        saying(tools(tool(id="call_1", name="set")), tools(tool(name="Color")), tools(tool(RED))),
        called("setColor", RED),
    ),
    "a name, an id and an index repeated": (
        saying(
            tools(tool(id="call_1", name="setColor")),
            tools(tool('{"color":', id="call_1", name="setColor")),
            tools(tool('"red"}', id="call_1", name="setColor")),
        ),
        called("setColor", '{"color":', '"red"}'),
    ),
    "every call at index 0": (
        saying(
            tools(tool(RED, id="call_1", name="setColor")),
            tools(tool(SEVEN, id="call_2", name="setSize")),
        ),
        [*called("setColor", RED), *called("setSize", SEVEN, id="call_2")],
    ),
    "every call at index 0, without ids": (
        saying(tools(tool(SEVEN, name="setSize")), tools(tool(SEVEN, name="setSize"))),
        [*called("setSize", SEVEN, id="ck-1"), *called("setSize", SEVEN, id="ck-2")],
    ),
    "calls without an index": (
        saying(
            tools(tool('{"color":', id="call_1", name="setColor", index=None)),
            tools(tool('"red"}', index=None)),
            tools(tool(SEVEN, id="call_2", name="setSize", index=None)),
        ),
        [
            *called("setColor", '{"color":', '"red"}'),
            *called("setSize", SEVEN, id="call_2"),
        ],
    ),
    "two calls with one id": (
        saying(
            tools(tool(RED, id="call_1", name="setColor")),
            tools(tool(SEVEN, id="call_1", name="setSize", index=1)),
        ),
        [*called("setColor", RED), *called("setSize", SEVEN, id="ck-1")],
    ),
    "arguments repeated when all is said": (
        saying(tools(tool(RED, id="call_1", name="setColor")), text("Done"), tools(tool(RED))),
        [*called("setColor", RED), *said("Done")],
    ),
    "arguments that are no JSON": (
        saying(tools(tool('{"color":', id="call_1", name="setColor"))),
        called("setColor", '{"color":'),
    ),
    "arguments as an object": (
        saying(
            chunk(
                {
                    "tool_calls": [
                        {"id": "call_1", "function": {"name": "set", "arguments": {"a": 1}}}
                    ]
                }
            )
        ),
        called("set", '{"a":1}'),
    ),
    "arguments of null, and a call of nothing": (
        saying(tools(tool(None, id="call_1", name="set"), tool("", index=1))),
        called("set"),
    ),
    "a refusal": (
        saying(chunk({"refusal": "I can't"}), chunk({"refusal": " do that."})),
        said("I can't", " do that."),
    ),
    "thoughts, then text": (
        saying(chunk({"reasoning_content": "Hm"}), chunk({"reasoning": "m"}), text("Yes")),
        [
            ReasoningStart(message_id="chatcmpl-1-reasoning"),
            ReasoningContent(message_id="chatcmpl-1-reasoning", content="Hm"),
            ReasoningContent(message_id="chatcmpl-1-reasoning", content="m"),
            ReasoningEnd(message_id="chatcmpl-1-reasoning"),
            *said("Yes"),
        ],
    ),
    "content in parts": (
        saying(
            chunk(
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]}
            ),
            chunk({"content": [{"type": "text", "text": "Yes"}]}),
        ),
        [
            ReasoningStart(message_id="chatcmpl-1-reasoning"),
            ReasoningContent(message_id="chatcmpl-1-reasoning", content="Hm"),
            ReasoningEnd(message_id="chatcmpl-1-reasoning"),
            *said("Yes"),
        ],
    ),
    "an answer cut at its limit": (
        saying(text("Once upon"), reason="length"),
        [*said("Once upon"), Custom(name="finish_reason", value="length")],
    ),
    "token counts": (
        streamed(
            text("Hi"),
            finish(),
            b'data: {"id":"x","model":"gpt-4o-2024","choices":[],"usage":{"prompt_tokens":9,'
            b'"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4},'
            b'"completion_tokens_details":{"reasoning_tokens":1}}}\n\n',
            DONE,
        ),
        [
            *said("Hi"),
            Usage(
                model="gpt-4o-2024",
                input_tokens=9,
                output_tokens=2,
                cached_tokens=4,
                reasoning_tokens=1,
            ),
        ],
    ),
    "a chunk of Azure's filter, without choices": (
        saying(b'data: {"id":"","choices":[],"prompt_filter_results":[]}\n\n', text("Hi")),
        said("Hi"),
    ),
    "no id, null, other choices, comments": (
        saying(
            b": ping\n\n",
            b'data: {"choices":[{"delta":null}],"usage":null}\n\n',
            b'data: {"choices":[{"index":1,"delta":{"content":"No"}},'
            b'{"delta":{"content":"Yes"}}]}\n\n',
        ),
        said("Yes", id="ck-1"),
    ),
    "no [DONE]": (streamed(text("Hi"), finish()), said("Hi")),
    "CRLF, and the last line unfinished": (
        streamed(text("Hi").replace(b"\n", b"\r\n"), finish().rstrip()),
        said("Hi"),
    ),
    "every byte alone": (
        [HEAD, *(piece(bytes([b])) for b in text("é🙂") + finish() + DONE), END],
        said("é🙂"),
    ),
    "half a character, escaped": (
        saying(b'data: {"id":"chatcmpl-1","choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'),
        said("a\N{REPLACEMENT CHARACTER}"),
    ),
    "a whole completion instead of a stream": (
        [
            whole(
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "model": "m",
                    "choices": [
                        {
                            "index": 0,
                            "message": {
                                "role": "assistant",
                                "content": "Hi",
                                "tool_calls": [tool(RED, id="call_1", name="setColor", index=None)],
                            },
                            "finish_reason": "tool_calls",
                        }
                    ],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 2},
                }
            )
        ],
        [
            *said("Hi"),
            *called("setColor", RED),
            Usage(model="m", input_tokens=1, output_tokens=2),
        ],
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_an_answer_becomes_events(provider: Provider, adapter: OpenAIAdapter, case: str):
    script, events = ANSWERS[case]
    provider.answer(script)

    assert await answer_to(adapter) == events


FAILURES: dict[str, tuple[Sequence[Step], Sequence[Event], type[CopilotError], str]] = {
    "cut in mid-text": (
        [HEAD, piece(text("Par")), RESET],
        said("Par", ended=False),
        NetworkError,
        PREMATURE,
    ),
    "closed in mid-text": (
        [HEAD, piece(text("Par")), CLOSE],
        said("Par", ended=False),
        NetworkError,
        PREMATURE,
    ),
    "ended without a reason": (
        streamed(text("Par")),
        said("Par", ended=False),
        NetworkError,
        PREMATURE,
    ),
    "done without a reason": (
        streamed(text("Par"), DONE),
        said("Par", ended=False),
        NetworkError,
        PREMATURE,
    ),
    "cut in mid-call": (
        [HEAD, piece(tools(tool('{"col', id="call_1", name="setColor"))), RESET],
        called("setColor", '{"col')[:-1],
        NetworkError,
        PREMATURE,
    ),
    "nothing at all": (streamed(), [], NetworkError, NO_STREAM),
    "garbage": (
        [whole(b"\x00\xff\x17 what?", content_type="text/event-stream")],
        [],
        NetworkError,
        NO_STREAM,
    ),
    "a web page": (
        [whole(b"<!doctype html><h1>Welcome", content_type="text/html")],
        [],
        NetworkError,
        NO_STREAM,
    ),
    "events that are no JSON": (
        streamed(text("Par"), b"data: {nope\n\n"),
        said("Par", ended=False),
        NetworkError,
        NO_STREAM,
    ),
    "JSON of another kind": (streamed(b"data: [1]\n\n"), [], NetworkError, NO_STREAM),
    "JSON of an odd shape": (
        streamed(b'data: {"choices":[{"delta":{"tool_calls":[3]}}]}\n\n'),
        [],
        NetworkError,
        NO_STREAM,
    ),
    "JSON that is very deep": (
        streamed(b"data: " + b"[" * 100_000 + b"\n\n"),
        [],
        NetworkError,
        NO_STREAM,
    ),
    "stopped by the content filter": (
        saying(text("How to"), reason="content_filter"),
        said("How to", ended=False),
        Refused,
        "The content filter of OpenAI stopped the answer. Please put the question differently.",
    ),
    "an error in mid-stream": (
        streamed(
            text("Par"), b'data: {"error":{"message":"Overloaded.","type":"server_error"}}\n\n'
        ),
        said("Par", ended=False),
        NetworkError,
        "OpenAI API error: Overloaded.",
    ),
    "a rate limit in mid-stream": (
        streamed(b'data: {"error":{"message":"Slow down.","code":"rate_limit_exceeded"}}\n\n'),
        [],
        RateLimited,
        "OpenAI API error: Slow down.",
    ),
    "an error by number, beside choices": (
        streamed(
            b'data: {"choices":[{"delta":{}}],"error":{"message":"Slow down.","code":429}}\n\n'
        ),
        [],
        RateLimited,
        "OpenAI API error: Slow down.",
    ),
    "an error of vLLM": (
        streamed(b'data: {"object":"error","message":"Too long.","code":500}\n\n'),
        [],
        NetworkError,
        "OpenAI API error: Too long.",
    ),
    "an error that says nothing": (
        streamed(b'data: {"choices":[{"delta":{},"finish_reason":"error"}]}\n\n'),
        [],
        NetworkError,
        "OpenAI API error: The answer broke off with an error.",
    ),
    "an error with status 200": (
        [whole({"error": {"message": "No.", "type": "server_error"}})],
        [],
        NetworkError,
        "OpenAI API error: No.",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_what_came_before_an_error_is_kept(
    provider: Provider, adapter: OpenAIAdapter, case: str
):
    script, events, kind, message = FAILURES[case]
    provider.answer(script)

    seen, error = await failure_of(adapter)

    assert (seen, type(error), error.message) == (events, kind, message)


async def test_a_premature_close_is_reported_as_the_node_runtime_does(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer([HEAD, piece(text("Par")), RESET])
    report = (await failure_of(adapter))[1].report()
    assert (report.code, report.status_code, report.severity, report.visibility, report.kind) == (
        "NETWORK_ERROR",
        503,
        "critical",
        "banner",
        "OpenAIError",
    )


async def test_an_endless_event_is_an_error(provider: Provider, adapter: OpenAIAdapter):
    provider.answer([HEAD, *[piece(b"x" * 2**20)] * 10, HANG])
    assert "larger than" in (await failure_of(adapter))[1].message


async def test_each_chunk_is_delivered_before_the_next_one_is_sent(
    provider: Provider, adapter: OpenAIAdapter
):
    gates = [asyncio.Event() for _ in range(5)]
    pieces: list[Step] = [HEAD]
    for number, gate in enumerate(gates):
        pieces += [gate, piece(text(str(number)))]
    provider.answer([*pieces, piece(finish() + DONE), END])
    seen: list[str] = []

    gates[0].set()
    async with aclosing(adapter.stream(REQUEST)) as events:
        async for event in events:
            if isinstance(event, TextMessageContent):
                seen.append(event.content)
                if len(seen) < 5:
                    gates[len(seen)].set()

    assert seen == ["0", "1", "2", "3", "4"]


async def test_ids_the_conversation_already_has_are_not_used_again(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer(saying(text("Hi"), tools(tool(RED, id="call_1", name="setColor"))))
    first = await answer_to(adapter)
    history: list[Any] = [
        HELLO,
        TextMessage(id="chatcmpl-1", role="assistant", content="Hi"),
        TextMessage(id="call_1", role="user", content="Again"),
    ]

    second = await answer_to(adapter, ChatRequest(messages=history, actions=ACTIONS))

    assert first == [*said("Hi"), *called("setColor", RED)]
    assert second == [
        *said("Hi", id="ck-1"),
        *called("setColor", RED, id="ck-2", parent="ck-1"),
    ]


async def test_a_finished_answer_leaves_its_connection_for_the_next(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer(saying(text("Hi")))
    for _ in range(3):
        await answer_to(adapter)
    assert provider.connections == 1


async def test_the_end_of_the_body_may_come_after_the_end_of_the_answer(
    provider: Provider, adapter: OpenAIAdapter
):
    late = asyncio.Event()
    provider.answer([HEAD, piece(text("Hi") + finish() + DONE), late, END])

    assert await answer_to(adapter) == said("Hi")
    late.set()
    await provider.until_open(1)
    await adapter.aclose()
    await provider.until_open(0)


async def test_a_hundred_cancelled_answers_close_a_hundred_connections(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer([HEAD, piece(text("Hi")), HANG])
    tasks = [asyncio.create_task(answer_to(adapter)) for _ in range(100)]
    await provider.until_open(100)
    await provider.until_asked(100)

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    async with asyncio.timeout(0.2):
        await provider.until_open(0)


async def test_leaving_an_answer_closes_its_connection(provider: Provider, adapter: OpenAIAdapter):
    provider.answer([HEAD, piece(text("Hi")), HANG])
    async with aclosing(adapter.stream(REQUEST)) as events:
        async for _ in events:
            break
    async with asyncio.timeout(0.2):
        await provider.until_open(0)


async def test_a_request_cancelled_before_its_answer_closes_its_connection(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer([HANG])
    task = asyncio.create_task(answer_to(adapter))
    await provider.until_asked(1)
    task.cancel()
    async with asyncio.timeout(0.2):
        await provider.until_open(0)
