"""Answers that break off, fail half-way or are none at all, over a real connection."""

from collections.abc import Sequence

import pytest

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api.events import Event
from copilot_runtime.base.errors import CopilotError, NetworkError, RateLimited, Refused
from tests.adapters.asking import called, failure_of, said
from tests.adapters.provider import (
    CLOSE,
    DONE,
    END,
    HANG,
    HEAD,
    RESET,
    Provider,
    Step,
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

PREMATURE = "OpenAI API error: Premature close"
NO_STREAM = "OpenAI API error: The answer is not a stream of chat completion chunks."


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


@in_one_test("case", FAILURES)
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


async def test_an_answer_whose_last_frame_lacks_its_end_is_not_asked_for_again(provider: Provider):
    adapter = OpenAIAdapter(api_key="sk-test", base_url=f"{provider.url}/v1", max_retries=2)
    cut = text("agraph")[:-20]
    provider.answer([HEAD, piece(text("Par")), piece(cut), END], saying(text("Paragraph")))

    seen, error = await failure_of(adapter)
    await adapter.aclose()

    assert (seen, type(error)) == (said("Par", ended=False), NetworkError)
    assert len(provider.requests) == 1


async def test_an_endless_event_is_an_error(provider: Provider, adapter: OpenAIAdapter):
    provider.answer([HEAD, *[piece(b"x" * 2**20)] * 10, HANG])
    assert "larger than" in (await failure_of(adapter))[1].message


async def test_an_error_in_the_answer_tells_the_id_of_its_request(
    provider: Provider, adapter: OpenAIAdapter
):
    head = HEAD.replace(b"\r\n\r\n", b"\r\nx-request-id: req-7\r\n\r\n")
    broken = b'data: {"error": {"code": "429", "message": "Slow down"}}\n\n'
    provider.answer([head, piece(text("Par")), piece(broken), END])
    _, error = await failure_of(adapter)
    assert isinstance(error, RateLimited)
    assert error.hint == "Model: 'gpt-4o'. Request id: req-7."
