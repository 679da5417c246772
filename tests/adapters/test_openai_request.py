"""What the model is asked: the bodies the Node runtime 1.10.6 sends, where it is not wrong."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

import pytest

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api import Action, ActionContext, ChatRequest, Parameters
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from tests.adapters.provider import Provider, saying, text
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

SYSTEM = TextMessage(id="s1", role="system", content="You are a test.")
HELLO = TextMessage(id="u1", role="user", content="Hello")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

Ask = Callable[..., Awaitable[dict[str, Any]]]


async def run(arguments: Any, context: ActionContext) -> None:
    """Do nothing."""


def tool_of(name: str, parameters: Any = CITY) -> dict[str, Any]:
    function = {"name": name, "description": "", "parameters": parameters}
    return {"type": "function", "function": function}


@pytest.fixture
async def ask(provider: Provider) -> AsyncGenerator[Ask, None]:
    """Ask the model something; return the body that reaches it."""
    adapters: list[OpenAIAdapter] = []
    provider.answer(saying(text("Hi")))

    async def ask(
        messages: Sequence[Message] = (HELLO,),
        actions: Sequence[Action] = (),
        parameters: Parameters = Parameters(),  # noqa: B008 - a frozen value
        **options: Any,
    ) -> dict[str, Any]:
        options.setdefault("api_key", "sk-mock")
        adapters.append(OpenAIAdapter(base_url=f"{provider.url}/v1", **options))
        request = ChatRequest(messages=messages, actions=actions, parameters=parameters)
        async with aclosing(adapters[-1].stream(request)) as events:
            async for _ in events:
                pass
        return provider.requests[-1].body

    yield ask
    for adapter in adapters:
        await adapter.aclose()


async def test_a_first_question(ask: Ask):
    action = Action(name="getTime", description="Get the time in a city.", parameters=CITY, run=run)

    body = await ask([SYSTEM, HELLO], [action])

    assert list(body) == ["model", "stream", "messages", "tools"]
    assert body == {
        "model": "gpt-4o",
        "stream": True,
        "messages": [
            {"role": "developer", "content": "You are a test."},
            {"role": "user", "content": "Hello"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "getTime",
                    "description": "Get the time in a city.",
                    "parameters": CITY,
                },
            }
        ],
    }


async def test_the_results_of_two_calls(ask: Ask):
    body = await ask(
        [
            HELLO,
            ActionExecutionMessage(id="c1", name="setColor", arguments='{"color":"red"}'),
            ActionExecutionMessage(id="c2", name="setSize", arguments='{"size":42}'),
            ResultMessage(id="r2", call_id="c2", name="setSize", result="done setSize"),
            ResultMessage(id="r1", call_id="c1", name="setColor", result="done setColor"),
        ]
    )

    def call(id: str, name: str, arguments: str) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        calls = [{"id": id, "type": "function", "function": function}]
        return {"role": "assistant", "tool_calls": calls, "content": None}

    assert body["messages"][1:] == [
        call("c1", "setColor", '{"color":"red"}'),
        {"role": "tool", "content": "done setColor", "tool_call_id": "c1"},
        call("c2", "setSize", '{"size":42}'),
        {"role": "tool", "content": "done setSize", "tool_call_id": "c2"},
    ]
    assert "tools" not in body


async def test_all_wishes_of_the_client_are_honoured(ask: Ask):
    wishes = Parameters(
        model="gpt-4.1-mini",
        temperature=0.3,
        max_tokens=55,
        stop=["END"],
        tool_choice="function",
        tool_choice_name="setColor",
    )
    body = await ask(actions=[Action(name="setColor")], parameters=wishes)
    del body["messages"], body["tools"]
    assert body == {
        "model": "gpt-4.1-mini",
        "stream": True,
        "max_completion_tokens": 55,
        "stop": ["END"],
        "tool_choice": {"type": "function", "function": {"name": "setColor"}},
        "temperature": 0.3,
    }


async def test_zero_is_a_wish(ask: Ask):
    body = await ask(parameters=Parameters(temperature=0.0, max_tokens=0, stop=[]))
    assert (body["temperature"], body["max_completion_tokens"]) == (0, 0)
    assert "stop" not in body


@in_one_test("choice", ["auto", "none", "required"])
async def test_a_choice_of_tools_is_passed_on(ask: Ask, choice: str):
    body = await ask(actions=[Action(name="a")], parameters=Parameters(tool_choice=choice))
    assert body["tool_choice"] == choice


async def test_without_tools_nothing_is_said_about_them(ask: Ask):
    wish = Parameters(tool_choice="required")
    body = await ask(parameters=wish, parallel_tool_calls=False)
    assert list(body) == ["model", "stream", "messages"]


async def test_settings_of_the_adapter_reach_the_model(ask: Ask):
    body = await ask(
        actions=[Action(name="a")],
        parameters=Parameters(max_tokens=9),
        model="llama3",
        max_tokens_name="max_tokens",
        parallel_tool_calls=False,
        include_usage=True,
    )
    assert (body["model"], body["max_tokens"], body["parallel_tool_calls"]) == ("llama3", 9, False)
    assert body["stream_options"] == {"include_usage": True}


@in_one_test(
    ("options", "role"),
    [
        ({}, "developer"),
        ({"model": "openai/o3-mini"}, "developer"),
        ({"keep_system_role": True}, "system"),
        ({"model": "llama-3.3-70b"}, "system"),
    ],
)
async def test_instructions_have_the_role_the_model_knows(
    ask: Ask, options: dict[str, Any], role: str
):
    assert (await ask([SYSTEM, HELLO], **options))["messages"][0]["role"] == role


async def test_only_what_the_model_may_call_is_offered_once(ask: Ask):
    body = await ask(
        actions=[
            Action(name="a", run=run, parameters=CITY),
            Action(name="a", description="another"),
            Action(name="b", available="remote"),
            Action(name="c", available="disabled"),
            Action(name="d", available="remote", run=run, parameters=CITY),
        ]
    )
    assert body["tools"] == [tool_of("a"), tool_of("d")]


@in_one_test(
    ("format", "data", "url"),
    [
        ("png", "iVBO", "data:image/png;base64,iVBO"),
        ("JPG", "/9j/", "data:image/jpeg;base64,/9j/"),
        ("image/webp", "UklG", "data:image/webp;base64,UklG"),
        ("png", "data:image/gif;base64,R0lG", "data:image/gif;base64,R0lG"),
        ("png", "https://example.test/a.png", "https://example.test/a.png"),
    ],
)
async def test_an_image_is_shown_by_the_user(ask: Ask, format: str, data: str, url: str):
    image = ImageMessage(id="i1", role="assistant", format=format, bytes=data)
    assert (await ask([image]))["messages"] == [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    ]


async def test_texts_and_schemas_of_any_kind_can_be_sent(ask: Ask):
    broken = TextMessage(id="u1", role="user", content="a\ud83d")
    schema = MappingProxyType({"type": "object", "required": ("a",)})
    body = await ask([broken], [Action(name="a", parameters=schema)])
    assert body["messages"][0]["content"] == "a?"
    known = {"type": "object", "required": ["a"], "properties": {}}
    assert body["tools"] == [tool_of("a", known)]


async def test_headers_tell_who_asks(ask: Ask, provider: Provider):
    await ask(organization="org-1", project="proj-1", headers={"X-Mine": "1"})
    headers = provider.requests[0].headers
    assert headers["authorization"] == "bearer sk-mock"
    assert (headers["openai-organization"], headers["openai-project"]) == ("org-1", "proj-1")
    assert (headers["x-mine"], headers["accept-encoding"]) == ("1", "identity")


async def test_a_key_may_be_fetched_for_each_request(ask: Ask, provider: Provider):
    async def fetch() -> str:
        return "fresh\n"

    await ask(api_key=fetch)
    await ask(api_key=lambda: "sync")

    sent = [request.headers["authorization"] for request in provider.requests]
    assert sent == ["bearer fresh", "bearer sync"]


async def test_a_conversation_too_long_for_the_model_loses_its_oldest_part(ask: Ask):
    old = [TextMessage(id=f"u{n}", role="user", content=f"{n:0300d}") for n in range(20)]
    body = await ask([SYSTEM, *old, HELLO], context_tokens=1_000)
    sent = [message["content"] for message in body["messages"]]
    assert sent == ["You are a test.", *(f"{n:0300d}" for n in range(11, 20)), "Hello"]
