"""The same bytes for boto3 and for us, and the same question asked by both."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson
import pytest

from copilot_runtime.adapters.bedrock import BedrockAdapter
from copilot_runtime.api import Action, ChatRequest, Parameters
from copilot_runtime.api.events import Usage
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    MediaPart,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    TextPart,
)
from tests.adapters.asking import answer_of, calls_in, fields_in, signed, text_in, thought_in
from tests.adapters.contract.bedrock_fake import event
from tests.adapters.provider import Provider
from tests.adapters.test_bedrock import COUNTS, MODEL, STOP, answered, delta, start, stop, thought
from tests.in_one_test import in_one_test

boto3: Any = pytest.importorskip("boto3")

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n"
ANSWERS = {
    "text": [delta(0, {"text": "Hel"}), delta(0, {"text": "lo é 🙂"}), stop(0), STOP, COUNTS],
    "thoughts": [
        thought(text="Let me "),
        thought(text="see."),
        thought(signature="c2ln"),
        stop(0),
        delta(1, {"text": "Yes."}),
        stop(1),
        STOP,
        COUNTS,
    ],
    "calls in turns": [
        start(0, {"toolUse": {"toolUseId": "t1", "name": "setColor"}}),
        delta(0, {"toolUse": {"input": '{"color":'}}),
        start(1, {"toolUse": {"toolUseId": "t2", "name": "setSize"}}),
        delta(1, {"toolUse": {"input": '{"size"'}}),
        delta(0, {"toolUse": {"input": '"red"}'}}),
        delta(1, {"toolUse": {"input": ":7}"}}),
        stop(0),
        stop(1),
        event("messageStop", {"stopReason": "tool_use"}),
        COUNTS,
    ],
}


@pytest.fixture
async def bedrock(provider: Provider) -> AsyncGenerator[BedrockAdapter, None]:
    adapter = BedrockAdapter(
        MODEL, region="eu-west-1", base_url=provider.url, access_key="AKID", secret_key="secret"
    )
    yield adapter
    await adapter.aclose()


async def asked_by_boto3(provider: Provider, **request: Any) -> list[Any]:
    """Return the events as boto3 reads them."""
    client: Any = boto3.client(
        "bedrock-runtime",
        endpoint_url=provider.url,
        region_name="eu-west-1",
        aws_access_key_id="AKID",
        aws_secret_access_key="secret",
    )

    def ask() -> list[Any]:
        found = [*client.converse_stream(modelId=MODEL, **request)["stream"]]
        client.close()
        return found

    return await asyncio.to_thread(ask)


HELLO: Any = [{"role": "user", "content": [{"text": "Hello"}]}]


@in_one_test("events", ANSWERS.values(), ids=ANSWERS)
async def test_both_read_the_same(bedrock: BedrockAdapter, provider: Provider, events: list[bytes]):
    provider.answer(answered(*events))
    theirs = await asked_by_boto3(provider, messages=HELLO)
    ours = await answer_of(bedrock)
    deltas = [one["contentBlockDelta"] for one in theirs if "contentBlockDelta" in one]
    thoughts = [one["delta"].get("reasoningContent", {}) for one in deltas]
    assert text_in(ours) == "".join(one["delta"].get("text", "") for one in deltas)
    assert thought_in(ours) == "".join(one.get("text", "") for one in thoughts)
    signatures = [one["signature"] for one in thoughts if "signature" in one]
    assert fields_in(ours) == [{"signature": signature} for signature in signatures]
    calls = {id: (name, orjson.loads(args)) for id, (name, args) in calls_in(ours).items()}
    assert calls == _calls(theirs)
    usage, counted = ours[-1], theirs[-1]["metadata"]["usage"]
    assert isinstance(usage, Usage)
    assert usage.output_tokens == counted["outputTokens"]
    assert usage.cached_tokens == counted["cacheReadInputTokens"]
    assert usage.input_tokens == counted["totalTokens"] - counted["outputTokens"]


def _calls(events: list[Any]) -> dict[str, tuple[str, Any]]:
    started = {
        one["contentBlockStart"]["contentBlockIndex"]: one["contentBlockStart"]["start"]["toolUse"]
        for one in events
        if "contentBlockStart" in one
    }
    written = dict.fromkeys(started, "")
    for one in events:
        if use := one.get("contentBlockDelta", {}).get("delta", {}).get("toolUse"):
            written[one["contentBlockDelta"]["contentBlockIndex"]] += use["input"]
    return {
        use["toolUseId"]: (use["name"], orjson.loads(written[at])) for at, use in started.items()
    }


async def test_both_ask_the_same(bedrock: BedrockAdapter, provider: Provider):
    provider.answer(answered(delta(0, {"text": "Hi"}), stop(0), STOP, COUNTS))
    schema = {"type": "object", "properties": {"color": {"type": "string"}}}
    answer = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "additionalProperties": False,
    }
    mark = {"cachePoint": {"type": "default"}}
    guard = {"guardrailIdentifier": "g1", "guardrailVersion": "1", "trace": "enabled"}
    reasoning = {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}
    use = {"toolUseId": "t1", "name": "setColor", "input": {"color": "red"}}
    specified = {
        "name": "setColor",
        "description": "Sets it.",
        "inputSchema": {"json": schema},
    }
    await asked_by_boto3(
        provider,
        messages=[
            {
                "role": "user",
                "content": [
                    {"text": "Like this?"},
                    {"image": {"format": "png", "source": {"bytes": PNG}}},
                    {
                        "document": {
                            "format": "pdf",
                            "name": "my plan",
                            "source": {"bytes": b"%PDF"},
                        }
                    },
                ],
            },
            {"role": "assistant", "content": [{"reasoningContent": reasoning}, {"toolUse": use}]},
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "t1", "content": [{"text": "done"}]}},
                    mark,
                ],
            },
        ],
        system=[{"text": "Be short."}, mark],
        inferenceConfig={"maxTokens": 100, "temperature": 0.5, "stopSequences": ["END"]},
        toolConfig={
            "tools": [{"toolSpec": specified}, mark],
            "toolChoice": {"tool": {"name": "setColor"}},
        },
        outputConfig={
            "textFormat": {
                "type": "json_schema",
                "structure": {
                    "jsonSchema": {"schema": orjson.dumps(answer).decode(), "name": "reply"}
                },
            }
        },
        guardrailConfig=guard,
    )
    bedrock.cache = True
    bedrock.extra = {"guardrailConfig": guard}
    await answer_of(
        bedrock,
        ChatRequest(
            messages=[
                TextMessage(id="s", role="system", content="Be short."),
                TextMessage(
                    id="u",
                    role="user",
                    content="Like this?",
                    parts=[
                        TextPart(text="Like this?"),
                        MediaPart(kind="image", source="data", value="iVBORw0KGgo="),
                        MediaPart(
                            kind="document", source="data", value="JVBERg==", filename="my_plan.pdf"
                        ),
                    ],
                ),
                ReasoningMessage(
                    id="m-reasoning",
                    content="Hm.",
                    signature=signed("converse", provider.url, "anthropic", signature="c2ln"),
                ),
                ActionExecutionMessage(id="t1", name="setColor", arguments='{"color":"red"}'),
                ResultMessage(id="r", call_id="t1", name="setColor", result="done"),
            ],
            actions=[Action(name="setColor", description="Sets it.", parameters=schema)],
            parameters=Parameters(
                temperature=0.5,
                max_tokens=100,
                stop=["END"],
                response_schema=answer,
                response_name="reply",
                tool_choice="function",
                tool_choice_name="setColor",
            ),
        ),
    )
    theirs, ours = provider.requests
    assert ours.line == theirs.line
    assert ours.body == theirs.body
    said = [
        request.headers["authorization"].partition(" signature=")[0] for request in (theirs, ours)
    ]
    assert said[0] == said[1]
