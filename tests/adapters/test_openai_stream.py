"""What becomes of the chunks of a chat completions stream, over a real connection."""

import asyncio
import json
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from copilot_runtime.adapters import assembly as _assemble
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api import ChatRequest, Parameters
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Activity,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    Usage,
)
from copilot_runtime.api.messages import TextMessage
from tests.adapters.asking import ACTIONS, HELLO, RED, SEVEN, answer_to, called, here, said, text_in
from tests.adapters.provider import (
    DONE,
    END,
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
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

STOPPED = {"finish_reason": "stop"}


@pytest.fixture(autouse=True)
def ids(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count(1)
    monkeypatch.setattr(_assemble, "new_id", lambda: f"ck-{next(numbers)}")


ANSWERS: dict[str, tuple[Sequence[Step], Sequence[Event]]] = {
    "text": (saying(text(""), text("Hel"), text("lo é 🙂")), said("Hel", "lo é 🙂")),
    "signs of life": (saying(b"data: \n\n", text("Hi"), b"data:\n\n"), said("Hi")),
    "an end with a blank": (streamed(text("Hi"), finish(), b"data: [DONE] \n\n"), said("Hi")),
    "words after the end": (
        streamed(text("Hi"), finish(), text("there"), DONE),
        [*said("Hi"), *said("there", id="chatcmpl-1-2")],
    ),
    "an end without a reason": (streamed(text("Hi"), DONE), said("Hi")),
    "a call without arguments": (
        saying(tools(tool(id="call_1", name="setColor"))),
        called("setColor"),
    ),
    "an empty call of an unknown action": (
        saying(tools(tool(id="call_1", name="noSuch"))),
        called("noSuch"),
    ),
    "calls in one that there is not": (
        saying(
            tools(tool(id="call_1", name="multi_tool_use.parallel")),
            tools(tool('{"tool_uses":[{"recipient_name":"functions.setColor","parameters":')),
            tools(tool(RED + '},{"name":"setSize","arguments":' + SEVEN + "}]}")),
        ),
        [*called("setColor", RED, id="call_1_0"), *called("setSize", SEVEN, id="call_1_1")],
    ),
    "one that there is not, with nothing in it": (
        saying(tools(tool('{"tool_uses":"none"}', id="call_1", name="parallel"))),
        called("parallel", '{"tool_uses":"none"}'),
    ),
    "a call, then text": (
        saying(tools(tool(RED, id="call_1", name="setColor")), text("Done")),
        [*called("setColor", RED), *said("Done")],
    ),
    "text, a call, then text": (
        saying(text("Before"), tools(tool(RED, id="call_1", name="setColor")), text("After")),
        [*said("Before"), *called("setColor", RED), *said("After", id="chatcmpl-1-2")],
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
                provider="openai",
                stop_reason="stop",
            ),
        ],
    ),
    "token counts in something else than objects": (
        streamed(
            text("Hi"),
            finish(),
            b'data: {"choices":[],"usage":{"prompt_tokens":"9","completion_tokens":2,'
            b'"prompt_tokens_details":"4","completion_tokens_details":[1.5]}}\n\n',
            DONE,
        ),
        [
            *said("Hi"),
            Usage(
                model="m", input_tokens=9, output_tokens=2, provider="openai", stop_reason="stop"
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
    "cut after the reason": ([HEAD, piece(text("Hi") + finish()), RESET], said("Hi")),
    "CRLF, and the last line unfinished": (
        streamed(text("Hi").replace(b"\n", b"\r\n"), finish().rstrip()),
        said("Hi"),
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
            Usage(
                model="m",
                input_tokens=1,
                output_tokens=2,
                provider="openai",
                stop_reason="tool_calls",
            ),
        ],
    ),
}


@in_one_test("case", ANSWERS)
async def test_an_answer_becomes_events(
    provider: Provider, adapter: OpenAIAdapter, case: str, monkeypatch: pytest.MonkeyPatch
):
    numbers = count(1)  # each case begins with the first
    monkeypatch.setattr(_assemble, "new_id", lambda: f"ck-{next(numbers)}")
    script, events = ANSWERS[case]
    provider.answer(script)

    heard = await answer_to(adapter)
    assert [one for one in heard if not isinstance(one, ReasoningSignature)] == events


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
    *call, end = called("setColor", RED, id="ck-2", parent="ck-1")
    kept = ReasoningSignature(entity_id="ck-2", value='here:{"$id":"call_1"}', of="call")
    assert here(second) == [*said("Hi", id="ck-1"), *call, kept, end]


async def test_blanks_before_an_answer_that_is_no_stream_are_signs_of_life(
    provider: Provider, adapter: OpenAIAdapter
):
    answered = asyncio.Event()
    message = {"id": "chatcmpl-1", "choices": [{"message": {"content": "Hi"}, **STOPPED}]}
    provider.answer([HEAD, piece(b"\n "), answered, piece(json.dumps(message).encode()), END])
    asking = asyncio.create_task(answer_to(adapter))
    await provider.until_asked(1)
    for _ in range(20):  # until what was sent so far has been read
        await asyncio.sleep(0)
    answered.set()
    assert await asking == said("Hi")


@in_one_test("sign", [": keepalive", "ping", "null", '""'])
async def test_signs_of_life_that_are_sent_as_data_end_no_answer(
    provider: Provider, adapter: OpenAIAdapter, sign: str
):
    alive = f"data: {sign}\n\n".encode()
    provider.answer(streamed(alive, text("H"), alive, text("i"), finish(), DONE))
    assert text_in(await answer_to(adapter)) == "Hi"


@in_one_test(
    "last",
    [
        finish("tool_calls").replace(b'"finish', b'"native_finish_reason": "MAX_TOKENS", "finish'),
        chunk({}, finish="tool_calls", usage={"completion_tokens": 16}),
    ],
    ids=["OpenRouter", "vLLM"],
)
async def test_a_call_is_cut_off_where_only_the_provider_or_the_tokens_say_so(
    provider: Provider, adapter: OpenAIAdapter, last: bytes
):
    start = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "wipe"}}]})
    provider.answer(streamed(start, last, DONE))
    asked = ChatRequest(messages=[HELLO], actions=ACTIONS, parameters=Parameters(max_tokens=16))
    kinds = [type(event) for event in await answer_to(adapter, asked)]
    assert (ActionExecutionStart in kinds, ActionExecutionEnd in kinds) == (True, False)


@in_one_test(
    ("url", "content"),
    [
        ("data:image/webp;base64,UklG", {"mimeType": "image/webp", "data": "UklG"}),
        ("https://x.example/a.png", {"url": "https://x.example/a.png"}),
    ],
)
async def test_an_image_the_model_made_is_an_activity(
    provider: Provider, adapter: OpenAIAdapter, url: str, content: Any
):
    image = {"type": "image_url", "image_url": {"url": url}}
    provider.answer(saying(chunk({"content": "", "images": [image]})))
    (activity,) = await answer_to(adapter)
    assert isinstance(activity, Activity)
    assert (activity.activity_type, activity.content) == ("image", content)
