"""What becomes of the events of Anthropic's Messages API, over a real connection."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from copilot_runtime.adapters import assembly as _assemble
from copilot_runtime.adapters.anthropic import AnthropicAdapter
from copilot_runtime.api.events import (
    Custom,
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    Usage,
)
from copilot_runtime.base.errors import (
    Refused,
)
from copilot_runtime.base.jsontext import dumps
from tests.adapters.asking import RED, answer_to, called, failure_of, here, said
from tests.adapters.contract.fakes import KEY, data
from tests.adapters.provider import Provider, Step, streamed, whole
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def ids(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count(1)
    monkeypatch.setattr(_assemble, "new_id", lambda: f"ck-{next(numbers)}")


@pytest.fixture
async def adapter(provider: Provider) -> AsyncGenerator[AnthropicAdapter, None]:
    adapter = AnthropicAdapter("claude-opus-5-5", base_url=provider.url, api_key=KEY, max_retries=0)
    yield adapter
    await adapter.aclose()


def event(type: str, **fields: Any) -> bytes:
    return data({"type": type, **fields}, event=type)


MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-5-5",
    "content": [],
    "stop_reason": None,
    "usage": {"input_tokens": 3, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 5},
}
START = event("message_start", message=MESSAGE)
STOP = event("message_stop")


def block(index: int, content: Json, *deltas: Json) -> bytes:
    """Return all events of a block."""
    return b"".join(
        [
            event("content_block_start", index=index, content_block=content),
            *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
            event("content_block_stop", index=index),
        ]
    )


def text(*pieces: str, index: int = 0) -> bytes:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def finish(reason: str = "end_turn", **more: Any) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    return event("message_delta", delta=delta, usage={"output_tokens": 7}) + STOP


def counts(reason: str = "stop", **more: Any) -> Usage:
    given: Json = {
        "input_tokens": 12,
        "cached_tokens": 5,
        "cache_write_tokens": 4,
        "output_tokens": 7,
        **more,
    }
    return Usage(model="claude-opus-5-5", provider="anthropic", stop_reason=reason, **given)


def thought(*events: Event, number: int = 1) -> list[Event]:
    id = "msg_1-reasoning" + (f"-{number}" if number > 1 else "")
    return [ReasoningStart(message_id=id), *events, ReasoningEnd(message_id=id)]


def signature(number: int = 1, **fields: str) -> ReasoningSignature:
    id = "msg_1-reasoning" + (f"-{number}" if number > 1 else "")
    return ReasoningSignature(entity_id=id, value=f"here:{dumps(fields).decode()}")


USE: Json = {"type": "tool_use", "id": "call_1", "name": "setColor", "input": {}}
SEARCH: Json = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}

ANSWERS: dict[str, tuple[Sequence[Step], Sequence[Event]]] = {
    "text": (
        streamed(START, text("Hel", "", "lo"), finish()),
        [*said("Hel", "lo", id="msg_1"), counts()],
    ),
    "text in two blocks, as with citations": (
        streamed(START, text("Hel"), text("lo", index=1), finish()),
        [*said("Hel", "lo", id="msg_1"), counts()],
    ),
    "text that begins with its block": (
        streamed(START, block(0, {"type": "text", "text": "Hi"}), finish()),
        [*said("Hi", id="msg_1"), counts()],
    ),
    "a thought without words": (
        streamed(
            START,
            block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "signature_delta", "signature": "c2ln"},
            ),
            text("Hi", index=1),
            finish(),
        ),
        [*thought(signature(signature="c2ln")), *said("Hi", id="msg_1"), counts()],
    ),
    "a thought nobody may read, after one": (
        streamed(
            START,
            block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "Hm."},
                {"type": "signature_delta", "signature": "c2ln"},
            ),
            block(1, {"type": "redacted_thinking", "data": "aGlkZGVu"}),
            text("Hi", index=2),
            finish(),
        ),
        [
            *thought(
                ReasoningContent(message_id="msg_1-reasoning", content="Hm."),
                signature(signature="c2ln"),
            ),
            *thought(signature(2, data="aGlkZGVu"), number=2),
            *said("Hi", id="msg_1"),
            counts(),
        ],
    ),
    "a call whose arguments come at once": (
        streamed(START, block(0, {**USE, "input": {"color": "red"}}), finish("tool_use")),
        [*called("setColor", RED, parent="msg_1"), counts("tool_calls")],
    ),
    "a call without arguments": (
        streamed(
            START,
            block(0, USE, {"type": "input_json_delta", "partial_json": ""}),
            finish("tool_use"),
        ),
        [*called("setColor", parent="msg_1"), counts("tool_calls")],
    ),
    "a tool that runs at the provider's": (
        streamed(
            START,
            block(0, SEARCH, {"type": "input_json_delta", "partial_json": '{"query":1}'}),
            block(1, {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}),
            text("Found.", index=2),
            finish("pause_turn"),
        ),
        [*said("Found.", id="msg_1"), counts("pause")],
    ),
    "events and deltas of newer versions": (
        streamed(
            START,
            event("ping"),
            event("moon_phase", phase="full"),
            block(0, {"type": "hologram"}, {"type": "hologram_delta", "light": 1}),
            text("Hi", index=1),
            finish("tea_time"),
        ),
        [*said("Hi", id="msg_1"), counts("tea_time")],
    ),
    "a window that is full": (
        streamed(START, text("On and"), finish("model_context_window_exceeded")),
        [
            *said("On and", id="msg_1"),
            Custom(name="finish_reason", value="length"),
            counts("length"),
        ],
    ),
    "an end without a reason": (
        streamed(START, text("Hi"), STOP),
        [*said("Hi", id="msg_1"), replace(counts(output_tokens=None), stop_reason=None)],
    ),
    "tokens of thoughts": (
        streamed(
            START,
            text("Hi"),
            event(
                "message_delta",
                delta={"stop_reason": "end_turn"},
                usage={
                    "output_tokens": 7,
                    "input_tokens": None,
                    "output_tokens_details": {"thinking_tokens": 6},
                },
            ),
            STOP,
        ),
        [*said("Hi", id="msg_1"), counts(reasoning_tokens=6)],
    ),
    "no stream at all": (
        [
            whole(
                {
                    **MESSAGE,
                    "content": [
                        {"type": "thinking", "thinking": "", "signature": "c2ln"},
                        {"type": "text", "text": "Hi"},
                        {**USE, "input": {"color": "red"}},
                    ],
                    "stop_reason": "tool_use",
                    "usage": {**MESSAGE["usage"], "output_tokens": 7},
                }
            )
        ],
        [
            *thought(signature(signature="c2ln")),
            *said("Hi", id="msg_1"),
            *called("setColor", RED, parent="msg_1"),
            counts("tool_calls"),
        ],
    ),
}


@in_one_test(("script", "events"), ANSWERS.values(), ids=ANSWERS)
async def test_events_become_ours(
    provider: Provider,
    adapter: AnthropicAdapter,
    script: Sequence[Step],
    events: Sequence[Event],
) -> None:
    provider.answer(script)

    assert here(await answer_to(adapter)) == events


async def test_a_refusal_says_so_after_its_counts(
    provider: Provider, adapter: AnthropicAdapter
) -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    provider.answer(streamed(START, text("Well"), finish("refusal", stop_details=details)))

    seen, error = await failure_of(adapter)

    assert seen == [*said("Well", id="msg_1"), counts("refusal")]
    assert isinstance(error, Refused)
    assert error.message == (
        "Anthropic refused to answer (bio). Please put the question differently."
    )
    assert error.hint == "Model: 'claude-opus-5-5'. Not this."


@in_one_test(
    "script",
    [
        streamed(b"data: {]\n\n"),
        streamed(b'data: {"type":"content_block_delta"}\n\n'),
        [whole(b"<html>Hello</html>", content_type="text/html")],
        [whole({"choices": []})],
    ],
    ids=["no JSON", "no delta", "HTML", "another API"],
)
async def test_something_else_is_no_answer(
    provider: Provider, adapter: AnthropicAdapter, script: Sequence[Step]
) -> None:
    provider.answer(script)

    _, error = await failure_of(adapter)

    assert error.message == ("Anthropic API error: The answer is not a stream of the Messages API.")
    assert KEY not in str(error.hint)
