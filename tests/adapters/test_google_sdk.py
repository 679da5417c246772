"""The same bytes for Google's own package and for us, and the same question asked by both."""

import re
from collections.abc import AsyncGenerator
from typing import Any

import orjson
import pytest

from copilot_runtime.adapters.google import GoogleAdapter
from copilot_runtime.api import Action, ChatRequest, Parameters
from copilot_runtime.api.events import Usage
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    MediaPart,
    ResultMessage,
    TextMessage,
    TextPart,
)
from tests.adapters.asking import answer_of, calls_in, fields_in, signed, text_in, thought_in
from tests.adapters.contract.fakes import data
from tests.adapters.provider import Provider, streamed
from tests.adapters.test_google import PNG, STOP, call, chunk
from tests.in_one_test import in_one_test

genai: Any = pytest.importorskip("google.genai")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"),  # google-genai's
]

USAGE = {
    "promptTokenCount": 20,
    "candidatesTokenCount": 9,
    "thoughtsTokenCount": 4,
    "cachedContentTokenCount": 8,
    "totalTokenCount": 33,
}
ANSWERS = {
    "text": [chunk({"text": "Hel"}), chunk({"text": "lo é 🙂"}, usage=USAGE, **STOP)],
    "thoughts": [
        chunk({"text": "Let me ", "thought": True}),
        chunk({"text": "see.", "thought": True, "thoughtSignature": "c2ln"}),
        chunk({"text": "Yes."}, usage=USAGE, **STOP),
    ],
    "parallel calls": [
        chunk({"text": "Wait."}),
        chunk({**call("setColor", id="c1"), "thoughtSignature": "c2ln"}, call("setSize", id="c2")),
        chunk({"text": ""}, usage=USAGE, **STOP),
    ],
    "too long": [chunk({"text": "Once"}, usage=USAGE, finishReason="MAX_TOKENS")],
}


@pytest.fixture
async def google(provider: Provider) -> AsyncGenerator[GoogleAdapter, None]:
    adapter = GoogleAdapter("gemini-3-flash", base_url=f"{provider.url}/v1beta", api_key="k" * 20)
    yield adapter
    await adapter.aclose()


@pytest.fixture
async def sdk(provider: Provider) -> AsyncGenerator[Any, None]:
    options = genai.types.HttpOptions(base_url=provider.url)
    client = genai.Client(api_key="k" * 20, http_options=options)
    yield client
    await client.aio.aclose()


def camel(value: Any) -> Any:
    """Return JSON with names as in the reference: the package writes some as Python does."""
    if isinstance(value, list):
        return [camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {re.sub("_(.)", lambda m: m[1].upper(), key): camel(one) for key, one in value.items()}


@in_one_test("chunks", ANSWERS.values(), ids=ANSWERS)
async def test_both_read_the_same(
    google: GoogleAdapter, sdk: Any, provider: Provider, chunks: list[Any]
):
    provider.answer(streamed(*map(data, chunks)))
    theirs = [
        found
        async for found in await sdk.aio.models.generate_content_stream(
            model="gemini-3-flash", contents="Hello"
        )
    ]
    parts = [part for one in theirs for part in one.candidates[0].content.parts or ()]
    ours = await answer_of(google)
    assert text_in(ours) == "".join(p.text for p in parts if p.text and not p.thought)
    assert thought_in(ours) == "".join(p.text for p in parts if p.text and p.thought)
    calls = {id: (name, orjson.loads(args)) for id, (name, args) in calls_in(ours).items()}
    called = [part.function_call for part in parts if part.function_call]
    assert calls == {one.id: (one.name, one.args) for one in called}
    signatures = [{"thoughtSignature": "c2ln"} for part in parts if part.thought_signature]
    assert fields_in(ours) == signatures
    usage = ours[-1]
    counted = theirs[-1].usage_metadata
    assert isinstance(usage, Usage)
    assert usage.input_tokens == counted.prompt_token_count
    assert usage.output_tokens == counted.candidates_token_count + counted.thoughts_token_count
    assert usage.cached_tokens == counted.cached_content_token_count
    assert usage.reasoning_tokens == counted.thoughts_token_count


async def test_both_ask_the_same(google: GoogleAdapter, sdk: Any, provider: Provider):
    provider.answer(streamed(data(chunk({"text": "Hi"}, **STOP))))
    schema = {"type": "object", "properties": {"color": {"type": "string"}}}
    answer = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    types = genai.types
    function = types.FunctionDeclaration(
        name="setColor", description="Sets it.", parameters_json_schema=schema
    )
    part = types.Part
    call_part = part(
        function_call=types.FunctionCall(id="c1", name="setColor", args={"color": "red"}),
        thought_signature=b"sig",
    )
    response = types.FunctionResponse(id="c1", name="setColor", response={"output": "done"})
    async for _ in await sdk.aio.models.generate_content_stream(
        model="gemini-3-flash",
        contents=[
            types.Content(
                role="user",
                parts=[
                    part(text="Like this?"),
                    part(inline_data=types.Blob(mime_type="image/png", data=b"\x89PNG\r\n\x1a\n")),
                ],
            ),
            types.Content(role="model", parts=[call_part]),
            types.Content(role="user", parts=[part(function_response=response)]),
        ],
        config=types.GenerateContentConfig(
            system_instruction="Be short.",
            tools=[types.Tool(function_declarations=[function])],
            tool_config=types.ToolConfig(
                function_calling_config=types.FunctionCallingConfig(
                    mode="ANY", allowed_function_names=["setColor"]
                )
            ),
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            temperature=0.5,
            top_p=0.9,
            max_output_tokens=100,
            stop_sequences=["END"],
            seed=7,
            frequency_penalty=0.1,
            presence_penalty=0.2,
            response_mime_type="application/json",
            response_json_schema=answer,
            thinking_config=types.ThinkingConfig(thinking_level="LOW", include_thoughts=True),
        ),
    ):
        pass
    google.include_thoughts = True
    signature = signed("gemini", provider.url, "gemini-3-flash", thoughtSignature="c2ln")
    await answer_of(
        google,
        ChatRequest(
            messages=[
                TextMessage(id="s", role="system", content="Be short."),
                TextMessage(
                    id="u",
                    role="user",
                    content="Like this?",
                    parts=[
                        TextPart(text="Like this?"),
                        MediaPart(kind="image", source="data", value=PNG, mime_type="image/png"),
                    ],
                ),
                ActionExecutionMessage(
                    id="c1",
                    name="setColor",
                    arguments='{"color":"red"}',
                    extra={"encryptedValue": signature},
                ),
                ResultMessage(id="r", call_id="c1", name="setColor", result="done"),
            ],
            actions=[Action(name="setColor", description="Sets it.", parameters=schema)],
            parameters=Parameters(
                temperature=0.5,
                top_p=0.9,
                max_tokens=100,
                stop=["END"],
                seed=7,
                frequency_penalty=0.1,
                presence_penalty=0.2,
                response_schema=answer,
                reasoning_effort="low",
                tool_choice="function",
                tool_choice_name="setColor",
            ),
        ),
    )
    theirs, ours = provider.requests
    assert ours.line.replace("/v1beta/", "/v1/") == theirs.line
    assert ours.headers["x-goog-api-key"] == theirs.headers["x-goog-api-key"]
    told = camel(theirs.body)
    del told["systemInstruction"]["role"]  # there is nobody else
    assert ours.body == told
