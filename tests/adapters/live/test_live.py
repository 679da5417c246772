"""The services themselves, asked by whoever has their keys: a few cents at most.

Each test runs only if the environment has its service's key, and is skipped otherwise, also in
CI: a key is a secret that others may not have, costs money with each run, and a service may be
down. What our adapters do is proved by the contract suite; these show that the services still
speak as our fakes do. `LIVE_MODEL` names another model than the adapter's own.
"""

import json
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from copilot_runtime.adapters import ADAPTERS
from copilot_runtime.api import Action, Adapter, ChatRequest, Parameters
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.api.messages import ActionExecutionMessage, Message, ResultMessage, TextMessage
from copilot_runtime.api.registry import Registry
from copilot_runtime.api.transcript import fold_messages

# taken while tests are collected, before the guard of tests/conftest.py stands
_REAL = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex")}
_RESOLVE = socket.getaddrinfo


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test reach other machines."""
    for name, real in _REAL.items():
        monkeypatch.setattr(socket.socket, name, real)
    monkeypatch.setattr(socket, "getaddrinfo", _RESOLVE)


pytestmark = pytest.mark.anyio

LIVE: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "anthropic": (("ANTHROPIC_API_KEY",), {}),
    "azure": (("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "LIVE_MODEL"), {}),
    "bedrock": (("AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION"), {}),
    "deepseek": (("DEEPSEEK_API_KEY",), {}),
    "github": (("GITHUB_TOKEN",), {}),
    "google": (("GEMINI_API_KEY",), {}),
    "groq": (("GROQ_API_KEY",), {}),
    "lmstudio": (("LMSTUDIO_BASE_URL", "LIVE_MODEL"), {}),
    "mistral": (("MISTRAL_API_KEY",), {}),
    "ollama": (("OLLAMA_BASE_URL",), {}),
    "openai": (("OPENAI_API_KEY",), {}),
    "openai_responses": (("OPENAI_API_KEY",), {"api": "responses"}),
    "openrouter": (("OPENROUTER_API_KEY",), {}),
    "together": (("TOGETHER_API_KEY",), {}),
    "unify": (("UNIFY_KEY", "LIVE_MODEL"), {}),
    "vllm": (("VLLM_BASE_URL", "LIVE_MODEL"), {}),
}
"""Adapter → variables it needs, options it is made with."""

ASKS_NOBODY = {"demo", "empty", "scripted"}
CLOSED = {"openai_assistants"}
BRINGS_ITS_OWN = {"langchain"}
NAMED = Registry("copilot_runtime.adapters", ADAPTERS)

COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
SET_COLOR = Action(name="set_color", description="Sets the color of the page.", parameters=COLOR)


@pytest.fixture(params=LIVE)
async def adapter(
    request: pytest.FixtureRequest, outside: None, anyio_backend: str
) -> AsyncGenerator[Adapter, None]:
    """An adapter that asks the service itself."""
    variables, options = LIVE[request.param]
    if missing := [name for name in variables if not os.environ.get(name)]:
        pytest.skip(f"asks the service itself: set {' and '.join(missing)}")
    model = os.environ.get("LIVE_MODEL")
    made = NAMED[request.param.removesuffix("_responses")](
        **options, **({"model": model} if model else {})
    )
    yield made
    await made.aclose()


def test_every_service_has_a_test():
    assert {*ADAPTERS} - ASKS_NOBODY - CLOSED - BRINGS_ITS_OWN == {*LIVE} - {"openai_responses"}


async def test_the_service_answers(adapter: Adapter):
    question = TextMessage(id="u1", role="user", content="Reply with the one word: pong")

    events = await asked(adapter, question)

    (text,) = [m for m in fold_messages(events) if isinstance(m, TextMessage)]
    assert "pong" in text.content.lower()
    assert all(event.output_tokens for event in events if isinstance(event, Usage))


async def test_the_service_calls_and_takes_the_result(adapter: Adapter):
    question = TextMessage(id="u1", role="user", content="Make the page red, with your tool.")

    first = fold_messages(await asked(adapter, question))
    (call,) = [m for m in first if isinstance(m, ActionExecutionMessage)]
    assert "red" in json.loads(call.arguments)["color"].lower()
    result = ResultMessage(id="r1", call_id=call.id, name=call.name, result="The page is red.")
    events = await asked(adapter, question, *first, result)

    assert any(isinstance(m, TextMessage) for m in fold_messages(events))


async def asked(adapter: Adapter, *messages: Message) -> list[Event]:
    request = ChatRequest(
        messages=messages, actions=[SET_COLOR], parameters=Parameters(max_tokens=2_000)
    )
    async with aclosing(adapter.stream(request)) as events:
        return [event async for event in events]
