"""The Responses API: what is special about it, beside the contract."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime.adapters.added_fields import name_origin
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api import ChatRequest, Parameters
from copilot_runtime.api.events import Activity, Event, ReasoningContent, Usage
from copilot_runtime.api.messages import MediaPart, ReasoningMessage, TextMessage
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    Misuse,
    NetworkError,
    Refused,
)
from tests.adapters.asking import HELLO, RED, answer_to, called, failure_of, fields_in, said
from tests.adapters.provider import END, HEAD, Provider, Step, piece, whole
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

COMPLETED = {"id": "resp_1", "model": "m", "status": "completed", "output": []}


@pytest.fixture
async def adapter(provider: Provider) -> AsyncGenerator[OpenAIAdapter, None]:
    adapter = OpenAIAdapter("gpt-5", api="responses", base_url=f"{provider.url}/v1", api_key="k")
    yield adapter
    await adapter.aclose()


def event(type: str, **fields: Any) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, **fields})}\n\n".encode()


def playing(*events: bytes, last: str = "completed", **response: Any) -> list[Step]:
    created = event("response.created", response=COMPLETED)
    end = event(f"response.{last}", response={**COMPLETED, "status": last, **response})
    return [HEAD, *map(piece, [created, *events, end]), END]


def text(delta: str) -> bytes:
    return event("response.output_text.delta", output_index=0, delta=delta)


async def test_nothing_is_kept_there_and_thoughts_come_along(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer(playing(text("Hi")))
    wishes = Parameters(reasoning_effort="low")
    await answer_to(adapter, ChatRequest(messages=[HELLO], parameters=wishes))
    assert provider.requests[0].line == "POST /v1/responses HTTP/1.1"
    assert provider.requests[0].body == {
        "model": "gpt-5",
        "stream": True,
        "store": False,
        "input": [{"role": "user", "content": "Hello"}],
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }


async def test_tools_are_as_lax_as_elsewhere(provider: Provider, adapter: OpenAIAdapter):
    provider.answer(playing(text("Hi")))
    await answer_to(adapter)
    assert provider.requests[0].body["tools"][0] == {
        "type": "function",
        "name": "setColor",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }


async def test_parts_of_a_summary_are_paragraphs(provider: Provider, adapter: OpenAIAdapter):
    kind = "response.reasoning_summary_text.delta"
    parts = [
        event(kind, output_index=0, summary_index=number, delta=delta)
        for number, delta in [(0, "First"), (0, "."), (1, "Then.")]
    ]
    provider.answer(playing(*parts, text("Yes")))
    events = await answer_to(adapter)
    thoughts = "".join(e.content for e in events if isinstance(e, ReasoningContent))
    assert thoughts == "First.\n\nThen."


async def test_a_thought_without_words_is_signed_too(provider: Provider, adapter: OpenAIAdapter):
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}
    provider.answer(
        playing(event("response.output_item.done", output_index=0, item=item), text("Yes"))
    )
    added = fields_in(await answer_to(adapter))
    assert added == [{"id": "rs_1", "encrypted_content": "c2ln"}]


async def test_the_phase_of_a_text_goes_back_with_it(provider: Provider, adapter: OpenAIAdapter):
    text_part = {"type": "output_text", "text": "Well."}
    item = {"type": "message", "id": "msg_1", "phase": "commentary", "content": [text_part]}
    provider.answer(playing(event("response.output_item.done", output_index=0, item=item)))
    answer = fold_messages(await answer_to(adapter))

    await answer_to(adapter, ChatRequest(messages=[HELLO, *answer, HELLO]))

    (_, told, _) = provider.requests[-1].body["input"]
    assert told == {"role": "assistant", "content": "Well.", "phase": "commentary"}


async def test_a_signature_that_cannot_be_read_is_left_out(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer(playing(text("Hi")))
    origin = name_origin("responses", provider.url, "gpt-5")
    thought = ReasoningMessage(id="t1", content="Hm.", signature=f"{origin}:nonsense")
    await answer_to(adapter, ChatRequest(messages=[HELLO, thought]))
    assert provider.requests[0].body["input"] == [{"role": "user", "content": "Hello"}]


async def test_a_whole_answer_instead_of_a_stream_is_read(
    provider: Provider, adapter: OpenAIAdapter
):
    output = [
        {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "call_1", "name": "setColor", "arguments": RED},
    ]
    provider.answer([whole({**COMPLETED, "object": "response", "output": output})])
    assert await answer_to(adapter) == [
        *said("Hi", id="resp_1"),
        *called("setColor", RED, parent="resp_1"),
        Usage(model="m", provider="openai", stop_reason="tool_calls"),
    ]


async def test_a_response_that_failed_says_why(provider: Provider, adapter: OpenAIAdapter):
    error = {"code": "server_error", "message": "It fell over."}
    provider.answer(playing(text("Par"), last="failed", error=error))
    seen, caught = await failure_of(adapter)
    assert (seen, type(caught)) == (said("Par", id="resp_1", ended=False), NetworkError)
    assert caught.message == "OpenAI API error: It fell over."


async def test_a_response_that_its_filter_cut_is_refused(
    provider: Provider, adapter: OpenAIAdapter
):
    details = {"reason": "content_filter"}
    provider.answer(playing(text("Par"), last="incomplete", incomplete_details=details))
    assert isinstance((await failure_of(adapter))[1], Refused)


async def test_chunks_of_chat_completions_are_told_from_it(
    provider: Provider, adapter: OpenAIAdapter
):
    chunk = b'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"Hi"}}]}\n\n'
    provider.answer([HEAD, piece(chunk), END])
    assert (await failure_of(adapter))[1].message == "OpenAI API error: Premature close"


async def test_events_that_make_no_sense_are_an_error(provider: Provider, adapter: OpenAIAdapter):
    provider.answer([HEAD, piece(event("response.output_text.delta")), END])
    error = (await failure_of(adapter))[1]
    assert error.message == "OpenAI API error: The answer is not a stream of response events."


async def test_a_video_cannot_be_shown(adapter: OpenAIAdapter):
    video = MediaPart(kind="video", source="data", value="AA==", mime_type="video/mp4")
    look = TextMessage(id="u1", role="user", content="", parts=[video])
    with pytest.raises(Misuse, match="Responses API takes no video"):
        await answer_to(adapter, ChatRequest(messages=[look]))


def test_there_are_two_apis():
    with pytest.raises(Misuse, match="not 'completions'"):
        OpenAIAdapter(api="completions")  # pyright: ignore[reportArgumentType]  # the mistake


CALL = {"type": "function_call", "call_id": "call_1", "name": "setColor"}
HI = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}


@in_one_test(
    ("items", "events"),
    [
        ([HI], said("Hi", id="resp_1")),
        ([{**CALL, "arguments": RED}], called("setColor", RED, parent="resp_1")),
        ([{**CALL, "arguments": ""}], called("setColor", parent="resp_1")),
    ],
)
@in_one_test("told", ["done", "added and done", "completed"])
async def test_an_item_without_deltas_is_taken_once(
    provider: Provider, adapter: OpenAIAdapter, told: str, items: list[Any], events: list[Event]
):
    item = items[0]
    empty = {**item, **({"content": []} if "content" in item else {"arguments": ""})}
    added = event("response.output_item.added", output_index=0, item=empty)
    done = event("response.output_item.done", output_index=0, item=item)
    came = {"done": [done], "added and done": [added, done], "completed": []}[told]
    provider.answer(playing(*came, output=items))
    assert [e for e in await answer_to(adapter) if not isinstance(e, Usage)] == events


async def test_an_image_the_model_made_is_an_activity(provider: Provider, adapter: OpenAIAdapter):
    image = {"type": "image_generation_call", "result": "UklG", "output_format": "webp"}
    done = event("response.output_item.done", output_index=0, item=image)
    provider.answer(playing(done, output=[image]))
    activity, _ = await answer_to(adapter)
    assert isinstance(activity, Activity)
    assert activity.content == {"mimeType": "image/webp", "data": "UklG"}


@in_one_test(
    ("code", "kind"),
    [("invalid_prompt", ConfigurationFailed), ("image_content_policy_violation", Refused)],
)
async def test_what_the_request_did_is_told_from_what_the_server_did(
    provider: Provider, adapter: OpenAIAdapter, code: str, kind: type[CopilotError]
):
    provider.answer(playing(last="failed", error={"code": code, "message": "No."}))
    _, error = await failure_of(adapter)
    assert type(error) is kind
