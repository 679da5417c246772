"""What a service adds to its thoughts, texts and calls goes back to it, and to no other."""

import logging
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings, action
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.adapters.openai.presets import mistral
from copilot_runtime.api.messages import Message
from copilot_runtime.testing import Client
from tests.adapters.asking import answer_to, asking
from tests.adapters.contract.anthropic_fake import AnthropicFake
from tests.adapters.contract.fakes import CallArgs, CallEnd, CallStart, Say, Stop, Think
from tests.adapters.contract.fakes import Step as FakeStep
from tests.adapters.provider import (
    DONE,
    Provider,
    Step,
    chunk,
    finish,
    saying,
    serving,
    streamed,
    text,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

EXTRA = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
LONG = f"call_{'7' * 115}"


@action
def look(q: str = "") -> str:
    """Look something up."""
    return f"found {q}"


def call(id: str = "call_1", index: int = 0, **added: Any) -> Json:
    function = {"name": "look", "arguments": "{}"}
    return {"index": index, "id": id, "type": "function", "function": function, **added}


def called(id: str = "call_1", **added: Any) -> Json:
    """Return a call as it goes back."""
    return {name: value for name, value in call(id, **added).items() if name != "index"}


def answered(*deltas: Json) -> list[Step]:
    return streamed(*map(chunk, deltas), finish("tool_calls"), DONE)


def adapter_for(provider: Provider, model: str = "kimi-k2", **options: Any) -> OpenAIAdapter:
    return OpenAIAdapter(model, base_url=f"{provider.url}/v1", api_key="k", **options)


def talking_to(provider: Provider, tool_of: str = "server", **options: Any) -> Client:
    """Return a page that talks to the model of a provider, with a tool of the server or its own."""
    actions, tools = ([look], []) if tool_of == "server" else ([], [look])
    settings = Settings(threads="memory")
    runtime = CopilotRuntime(adapter=adapter_for(provider), actions=actions, settings=settings)
    return Client(runtime, tools=tools, **options)


def spoken(provider: Provider, number: int = -1) -> list[Json]:
    """Return the messages of the model in a request."""
    return [one for one in provider.requests[number].body["messages"] if one["role"] == "assistant"]


async def test_the_signature_of_a_call_goes_back_in_the_run_and_in_the_next(provider: Provider):
    two = answered({"tool_calls": [call(extra_content=EXTRA), call("call_2", 1)]})
    provider.answer(two, saying(text("Fine.")))

    async with talking_to(provider) as page:
        await page.say("Hello")
        await page.say("And now?")

    both = [called(extra_content=EXTRA), called("call_2")]
    assert [spoken(provider, number)[0]["tool_calls"] for number in (1, 2)] == [both, both]


THOUGHT = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
SECRET = {"type": "reasoning.encrypted", "index": 1, "id": "call_1", "format": "google-gemini-v1"}
BLOCK = {"type": "thinking", "signature": ""}

ANSWERS: dict[str, tuple[list[Json], Json]] = {
    "a thought, a text, another thought and two calls": (
        [
            {"role": "assistant", "content": "", "reasoning_content": "I should "},
            {"reasoning_content": "look."},
            {"content": "Let me "},
            {"content": "see."},
            {"reasoning_content": " Twice."},
            {"tool_calls": [call()]},
            {"tool_calls": [call("call_2", 1)]},
        ],
        {
            "reasoning_content": "I should look. Twice.",
            "content": "Let me see.",
            "tool_calls": [called(), called("call_2")],
        },
    ),
    "an empty thought": (
        [{"content": None, "reasoning_content": ""}, {"tool_calls": [call()]}],
        {"reasoning_content": "", "content": None, "tool_calls": [called()]},
    ),
    "reasoning details of OpenRouter in pieces": (
        [
            {"reasoning": "Let", "reasoning_details": [{**THOUGHT, "text": "Let"}]},
            {"reasoning": " me.", "reasoning_details": [{**THOUGHT, "text": " me."}]},
            {"reasoning_details": [{**THOUGHT, "signature": "c2ln"}]},
            {"tool_calls": [call()]},
            {"content": "", "reasoning_details": [{**SECRET, "data": "c2Vj"}]},
        ],
        {
            "reasoning": "Let me.",
            "reasoning_details": [
                {**THOUGHT, "text": "Let me.", "signature": "c2ln"},
                {**SECRET, "data": "c2Vj"},
            ],
            "content": None,
            "tool_calls": [called()],
        },
    ),
    "thinking blocks of LiteLLM, which have no numbers": (
        [
            {"reasoning_content": "I ", "thinking_blocks": [{**BLOCK, "thinking": "I "}]},
            {"reasoning_content": "see.", "thinking_blocks": [{**BLOCK, "thinking": "see."}]},
            {"thinking_blocks": [{**BLOCK, "thinking": "", "signature": "c2ln"}]},
            {"thinking_blocks": [{"type": "redacted_thinking", "data": "aGlk"}]},
            {"thinking_blocks": [{**BLOCK, "thinking": "Ah."}]},
            {"tool_calls": [call(provider_specific_fields={"thought_signature": "c2ln"})]},
        ],
        {
            "reasoning_content": "I see.",
            "thinking_blocks": [
                {"type": "thinking", "thinking": "I see.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "aGlk"},
                {"type": "thinking", "thinking": "Ah.", "signature": ""},
            ],
            "content": None,
            "tool_calls": [called(provider_specific_fields={"thought_signature": "c2ln"})],
        },
    ),
    "fields that nobody knows yet": (
        [
            {"content": "See: ", "vendor_state": {"turn": {"token": "to"}, "n": 1}},
            {"vendor_state": {"turn": {"token": "ken"}, "n": 2}, "refusal": None, "hint": None},
            {"tool_calls": [call()]},
        ],
        {
            "vendor_state": {"turn": {"token": "token"}, "n": 2},
            "content": "See: ",
            "tool_calls": [called()],
        },
    ),
}


@pytest.mark.parametrize("owner", ["server", "page"])
@in_one_test(("deltas", "message"), ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_goes_back_as_the_message_that_it_was(
    provider: Provider, owner: str, deltas: list[Json], message: Json
):
    provider.answer(answered(*deltas), saying(text("Fine.")))

    async with talking_to(provider, tool_of=owner) as page:
        await page.say("Hello")
        await page.say("And now?")

    whole = {"role": "assistant", **message}
    assert [spoken(provider, number)[0] for number in (1, 2)] == [whole, whole]


async def test_a_service_that_adds_nothing_gets_nothing(provider: Provider):
    provider.answer(answered({"content": "Well."}, {"tool_calls": [call()]}), saying(text("Fine.")))

    async with talking_to(provider) as page:
        await page.say("Hello")

    assert spoken(provider) == [
        {"role": "assistant", "content": "Well."},
        {"role": "assistant", "content": None, "tool_calls": [called()]},
    ]


@in_one_test("id", ["look:0", "functions.look:0", LONG])
async def test_an_id_goes_back_to_its_service_as_it_came(provider: Provider, id: str):
    two = answered({"tool_calls": [call(id)]})  # some count from zero in each answer
    provider.answer(two, two, saying(text("Fine.")))

    async with talking_to(provider) as page:
        await page.say("Hello")
        await page.say("And now?")

    messages = provider.requests[-1].body["messages"]
    asked = [one["id"] for message in messages for one in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert (asked, results) == ([id, id], [id, id])


async def said_by(provider: Provider, *deltas: Json) -> list[Message]:
    """Return the conversation of a page with the model of a provider."""
    provider.answer(answered(*deltas), saying(text("Fine.")))
    async with talking_to(provider) as page:
        await page.say("Hello")
        return [*page.messages]


async def test_another_service_gets_neither_the_fields_nor_the_id(provider: Provider):
    history = await said_by(
        provider,
        {"reasoning_content": "Hm.", "content": "Well."},
        {"tool_calls": [call(LONG, extra_content=EXTRA)]},
    )
    async with serving() as other:
        others = {
            "at another host": adapter_for(other),
            "of another family": adapter_for(provider, "gpt-5"),
            "with ids of nine characters": mistral("m", base_url=other.url, api_key="k"),
        }
        for place in (provider, other):
            place.answer(saying(text("Hi")))
        for name, adapter in others.items():
            await answer_to(adapter, asking(*history))
            asked = other if "host" in name or "nine" in name else provider
            text_, call_, _ = spoken(asked)
            assert text_ == {"role": "assistant", "content": "Well."}, name
            assert set(call_) == {"role", "content", "tool_calls"}, name
            (made,) = call_["tool_calls"]
            assert set(made) == {"id", "type", "function"}, name
            assert len(made["id"]) == (9 if "nine" in name else 40), name
            (told,) = [one for one in asked.requests[-1].body["messages"] if one["role"] == "tool"]
            assert told["tool_call_id"] == made["id"], name


async def test_a_v1_page_gets_them_from_its_thread(provider: Provider):
    deltas = [{"reasoning_content": "Hm."}, {"tool_calls": [call(LONG, extra_content=EXTRA)]}]
    provider.answer(answered(*deltas), saying(text("Fine.")))

    async with talking_to(provider, protocol="graphql") as page:
        await page.say("Hello")
        await page.say("And now?")

    whole = {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "content": None,
        "tool_calls": [called(LONG, extra_content=EXTRA)],
    }
    assert [spoken(provider, number)[0] for number in (1, 2)] == [whole, whole]


CALLS = {
    name: (CallStart(name, "look"), CallArgs(name, "{}"), CallEnd(name))
    for name in ("toolu_1", "toolu_2")
}
THINKING: dict[str, tuple[list[FakeStep], list[Json]]] = {
    "thoughts between calls": (
        [Think("Hm.", "c2ln"), *CALLS["toolu_1"], Think("Ah.", "aGFo"), *CALLS["toolu_2"]],
        [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
            {"type": "thinking", "thinking": "Ah.", "signature": "aGFo"},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
        ],
    ),
    "a thought that its service does not sign": (
        [Think("Hm."), *CALLS["toolu_1"]],
        [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        ],
    ),
}


@in_one_test(("steps", "content"), THINKING.values(), ids=THINKING)
async def test_thoughts_go_back_to_the_messages_api_in_their_place(
    steps: list[FakeStep], content: list[Json]
):
    async with AnthropicFake() as fake:
        fake.plays(*steps, Stop("tool_calls"))
        fake.plays(Say("Fine."), Stop())
        adapter = fake.adapter(cache=False)
        settings = Settings(threads="memory")
        async with Client(CopilotRuntime(adapter, actions=[look], settings=settings)) as page:
            await page.say("Hello")
            await page.say("And now?")

    sent = [asked.body["messages"][1]["content"] for asked in fake.asked[1:]]
    assert sent == [content, content]


async def test_a_conversation_too_long_loses_a_call_with_its_thought(provider: Provider):
    old = answered({"reasoning_content": "Hm. " * 300}, {"tool_calls": [call()]})
    provider.answer(old, saying(text("Fine.")))
    async with talking_to(provider) as page:
        await page.say("Hello")
        history = [*page.messages, *asking().messages]

    await answer_to(adapter_for(provider, context_tokens=250), asking(*history))

    assert [one["content"] for one in spoken(provider)] == ["Fine."]


async def test_fields_that_are_too_large_are_left_out_and_named(
    provider: Provider, caplog: pytest.LogCaptureFixture
):
    provider.answer(answered({"tool_calls": [call(blob="x" * 1_000_001)]}), saying(text("Fine.")))

    with caplog.at_level(logging.WARNING, "copilot_runtime.adapters.added_fields"):
        async with talking_to(provider) as page:
            await page.say("Hello")

    assert spoken(provider)[0]["tool_calls"] == [called()]
    (warning,) = caplog.messages
    assert warning.startswith("Left out the fields 'blob' of an answer from chat@")
    assert "xxx" not in warning
