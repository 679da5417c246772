"""Services that speak like OpenAI: their addresses, their keys and their habits."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from copilot_runtime.adapters import ADAPTERS
from copilot_runtime.adapters.openai import OpenAIAdapter, presets
from copilot_runtime.adapters.openai.answers import NAMES
from copilot_runtime.adapters.openai.presets import PRESETS
from copilot_runtime.api import Action, ChatRequest, Parameters
from copilot_runtime.api.events import (
    Event,
    ReasoningContent,
    ReasoningEnd,
    ReasoningSignature,
    ReasoningStart,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.registry import Registry
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import ConfigurationFailed, Misuse, NetworkError
from tests.adapters.asking import answer_to, here, said, signed
from tests.adapters.provider import (
    DONE,
    Provider,
    Request,
    chunk,
    finish,
    saying,
    streamed,
    text,
    tool,
    tools,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

HELLO = TextMessage(id="u1", role="user", content="Hello")
Ask = Callable[..., Awaitable[list[Event]]]


@pytest.fixture
async def ask(provider: Provider) -> AsyncGenerator[Ask, None]:
    """Ask a service something; return the events of its answer."""
    adapters: list[OpenAIAdapter] = []
    provider.answer(saying(text("Hi")))

    async def ask(
        name: str, *messages: Message, wishes: Parameters | None = None, **options: Any
    ) -> list[Event]:
        given = {"base_url": provider.url, "api_key": "a-key", "model": "m", **options}
        make: Any = OpenAIAdapter if name == "openai" else getattr(presets, name)
        adapters.append(make(**given))
        request = ChatRequest(
            messages=messages or [HELLO],
            actions=[Action(name="set")],
            parameters=wishes or Parameters(),
        )
        return await answer_to(adapters[-1], request)

    yield ask
    for adapter in adapters:
        await adapter.aclose()


def sent(provider: Provider) -> Request:
    return provider.requests[-1]


@in_one_test("name", [name for name in PRESETS if name != "openai"])
def test_every_preset_is_an_adapter_by_its_name(name: str):
    make = Registry("copilot_runtime.adapters", ADAPTERS)[name]
    adapter = make("m", base_url="http://localhost:1/v1")
    assert (type(adapter), adapter.options.preset) == (OpenAIAdapter, PRESETS[name])


@in_one_test(
    ("options", "line"),
    [
        ({}, "POST /openai/v1/chat/completions HTTP/1.1"),
        (
            {"api_version": "2024-10-21", "model": "my gpt"},
            "POST /openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21 HTTP/1.1",
        ),
        ({"api": "responses"}, "POST /openai/v1/responses HTTP/1.1"),
    ],
)
async def test_azure_finds_its_deployment(
    provider: Provider, ask: Ask, options: dict[str, Any], line: str
):
    if "api" in options:
        with pytest.raises(NetworkError):  # it is no Responses API that answers
            await ask("azure", **options)
    else:
        await ask("azure", **options)
    assert sent(provider).line == line
    assert sent(provider).headers["api-key"] == "a-key"
    assert "authorization" not in sent(provider).headers


async def test_azure_takes_a_token_that_is_fetched_for_each_request(provider: Provider, ask: Ask):
    async def fetch() -> str:
        return "entra-token"

    await ask("azure", token=fetch)

    assert sent(provider).headers["authorization"] == "bearer entra-token"
    assert "api-key" not in sent(provider).headers


def test_azure_needs_an_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    with pytest.raises(ConfigurationFailed, match="There is no address for Azure OpenAI") as caught:
        presets.azure("gpt-4o")
    assert "AZURE_OPENAI_ENDPOINT" in (caught.value.hint or "")


async def test_a_service_that_wants_a_key_says_which(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with pytest.raises(ConfigurationFailed, match="no API key for Groq") as caught:
        await answer_to(presets.groq())
    assert "GROQ_API_KEY" in (caught.value.hint or "")


async def test_a_model_of_ones_own_must_be_named(ask: Ask):
    with pytest.raises(ConfigurationFailed, match="No model of vLLM is named"):
        await ask("vllm", model="")


async def test_a_key_of_openai_goes_nowhere_else(
    provider: Provider, ask: Ask, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    await ask("ollama", api_key=None)
    assert "authorization" not in sent(provider).headers


async def test_mistral_has_words_of_its_own(provider: Provider, ask: Ask):
    wishes = Parameters(seed=7, max_tokens=9, tool_choice="required")
    await ask("mistral", wishes=wishes)
    body = sent(provider).body
    assert (body["random_seed"], body["max_tokens"], body["tool_choice"]) == (7, 9, "any")
    assert {"seed", "max_completion_tokens", "stream_options"} & set(body) == set()


async def test_mistral_gets_ids_as_it_likes_them(provider: Provider, ask: Ask):
    calls = [
        ActionExecutionMessage(id=id, name="set", arguments="{}")
        for id in ("call_0123456789", "abcDEF123")
    ]
    results = [
        ResultMessage(id=f"r-{call.id}", call_id=call.id, name="set", result="done")
        for call in calls
    ]
    await ask("mistral", HELLO, *calls, *results)

    messages = sent(provider).body["messages"][1:]
    made, kept = messages[0]["tool_calls"][0]["id"], messages[2]["tool_calls"][0]["id"]
    assert (len(made), made.isalnum(), kept) == (9, True, "abcDEF123")
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == [made, kept]


@in_one_test("api", ["chat", "responses"])
async def test_openai_takes_no_ids_longer_than_its_own(provider: Provider, ask: Ask, api: str):
    call = ActionExecutionMessage(id="x" * 90, name="set", arguments="{}")
    result = ResultMessage(id="r", call_id=call.id, name="set", result="done")
    if api == "responses":
        completed = b'data: {"type": "response.completed", "response": {}}\n\n'
        provider.answer(streamed(completed))
    await ask("openai", HELLO, call, result, api=api)
    if api == "responses":
        ids = [item["call_id"] for item in sent(provider).body["input"][1:]]
    else:
        _, made, told = sent(provider).body["messages"]
        ids = [made["tool_calls"][0]["id"], told["tool_call_id"]]
    assert ([len(id) for id in ids], len(set(ids))) == ([40, 40], 1)


async def test_deepseek_gets_its_thoughts_back_beside_their_calls(provider: Provider, ask: Ask):
    thought, call = chunk({"reasoning_content": "Hm."}), tool("{}", id="call_1", name="set")
    provider.answer(streamed(thought, tools(call), finish("tool_calls"), DONE))
    events = await ask("deepseek")
    said = fold_messages(events)
    result = ResultMessage(id="r1", call_id="call_1", name="set", result="done")
    provider.answer(saying(text("Done.")))

    await ask("deepseek", HELLO, *said, result)

    assert [event.of for event in events if isinstance(event, ReasoningSignature)] == ["message"]
    assert [m.get("reasoning_content") for m in sent(provider).body["messages"]] == [
        None,
        "Hm.",
        None,
    ]


async def test_others_are_not_told_the_thoughts_of_deepseek(provider: Provider, ask: Ask):
    signature = signed("chat", "https://api.deepseek.com", "m", **{NAMES: ["reasoning_content"]})
    thought = ReasoningMessage(id="t1", content="Hm.", signature=signature)
    await ask("groq", HELLO, thought)
    assert sent(provider).body["messages"] == [{"role": "user", "content": "Hello"}]


async def test_groq_counts_in_a_field_of_its_own(provider: Provider, ask: Ask):
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    provider.answer(streamed(text("Hi"), chunk({}, finish="stop", x_groq={"usage": usage}), DONE))
    (counted,) = [event for event in await ask("groq") if isinstance(event, Usage)]
    assert (counted.input_tokens, counted.output_tokens) == (9, 2)


async def test_counts_in_every_chunk_are_told_once(provider: Provider, ask: Ask):
    counts = [{"prompt_tokens": 9, "completion_tokens": number} for number in (1, 2)]
    provider.answer(
        streamed(text("H", usage=counts[0]), text("i", usage=counts[1]), finish(), DONE)
    )
    found = [event for event in await ask("vllm") if isinstance(event, Usage)]
    assert [event.output_tokens for event in found] == [2]


async def test_a_model_that_may_not_call_does_not_hear_of_tools_where_the_word_is_ignored(
    provider: Provider, ask: Ask
):
    await ask("ollama", wishes=Parameters(tool_choice="none"))
    assert {"tools", "tool_choice"} & set(sent(provider).body) == set()


@in_one_test(
    ("model", "wishes", "dropped"),
    [
        ("o3-mini", Parameters(temperature=0.3, stop=["x"], seed=7), ["temperature", "stop"]),
        ("gpt-5", Parameters(top_p=0.3, reasoning_effort="low"), ["top_p"]),
        ("gpt-5.1", Parameters(temperature=0.3), []),
        ("gpt-4o", Parameters(reasoning_effort="low"), ["reasoning_effort"]),
        ("some-model", Parameters(temperature=0.3, reasoning_effort="low"), []),
    ],
)
async def test_what_a_model_does_not_take_is_left_out(
    provider: Provider, ask: Ask, model: str, wishes: Parameters, dropped: list[str]
):
    events = await ask("openai", wishes=wishes, model=model)
    warned = [event.value["code"] for event in events if event.type == "custom"]
    assert warned == dropped
    assert set(dropped) & set(sent(provider).body) == set()


STRICT = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


@in_one_test(
    ("schema", "strict"),
    [
        (STRICT, True),
        ({**STRICT, "properties": {"a": {"type": "string"}}}, None),
        ({"type": "object"}, None),
        ({**STRICT, "$defs": {"a": {"type": "object"}}}, None),
    ],
)
async def test_a_schema_is_strict_if_it_can_be(
    provider: Provider, ask: Ask, schema: dict[str, Any], strict: bool | None
):
    wishes = Parameters(response_schema=schema, response_name="my answer")
    await ask("openai", wishes=wishes)
    format = sent(provider).body["response_format"]["json_schema"]
    assert (format["name"], format.get("strict")) == ("my_answer", strict)


async def test_what_is_unsupported_is_warned_of_or_refused(ask: Ask):
    with pytest.raises(Misuse, match="'warn' or 'refuse', not 'ignore'"):
        await ask("groq", unsupported="ignore")


async def test_mistral_hears_messages_in_the_order_it_insists_on(provider: Provider, ask: Ask):
    call = ActionExecutionMessage(id="abcdefghi", name="set", arguments="{}")
    result = ResultMessage(id="r", call_id="abcdefghi", name="set", result="done")
    rules = TextMessage(id="s", role="system", content="Be kind.")
    await ask("mistral", HELLO, call, result, HELLO, rules, call, HELLO)
    roles = [message["role"] for message in sent(provider).body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "user"]


async def test_mistral_is_asked_by_the_user_at_last(provider: Provider, ask: Ask):
    answer = TextMessage(id="a", role="assistant", content="Hi")
    rules = TextMessage(id="s", role="system", content="Sum it up.")
    await ask("mistral", HELLO, answer, rules)
    assert sent(provider).body["messages"][-1] == {"role": "user", "content": "Sum it up."}
    await ask("mistral", HELLO, answer)
    assert sent(provider).body["messages"][-1] == {"role": "user", "content": "Please go on."}


@in_one_test(
    ("name", "path"),
    [
        *(("ollama", "/v1"), ("groq", "/openai/v1"), ("unify", "/v0"), ("openai", "")),
        ("azure", "/openai/v1"),
    ],
)
async def test_an_address_may_be_that_of_the_host_alone(
    provider: Provider, ask: Ask, name: str, path: str
):
    await ask(name, base_url=f"{provider.url}/")
    assert sent(provider).line == f"POST {path}/chat/completions HTTP/1.1"


async def test_an_image_of_long_ago_is_told_of_where_none_can_be_shown(
    provider: Provider, ask: Ask
):
    image = ImageMessage(id="i", role="user", format="png", bytes="iVBO")
    await ask("deepseek", image, HELLO)
    (part,) = sent(provider).body["messages"][0]["content"]
    assert part["text"].startswith("[Here was the image (image/png). It is left out:")
    with pytest.raises(Misuse):
        await ask("deepseek", image)


async def test_a_thought_ends_where_the_answer_begins(provider: Provider, ask: Ask):
    both = chunk({"reasoning_content": "Hm.", "content": "Y"})
    provider.answer(saying(both, text("es.")))
    assert here(await ask("deepseek")) == [
        ReasoningStart(message_id="chatcmpl-1-reasoning"),
        ReasoningContent(message_id="chatcmpl-1-reasoning", content="Hm."),
        ReasoningSignature(
            entity_id="chatcmpl-1-reasoning", value='here:{"$names":["reasoning_content"]}'
        ),
        ReasoningEnd(message_id="chatcmpl-1-reasoning"),
        *said("Y", "es."),
    ]
