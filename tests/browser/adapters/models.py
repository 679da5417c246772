"""The models behind the pages: our own fakes, and a mock that somebody else wrote.

A test says what the model calls, and asks what its provider was told of it.
"""

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from aiohttp import ClientSession
from playwright.async_api import Browser, Page

from copilot_runtime import Adapter, ChatRequest, CopilotRuntime, Events, Settings, action
from copilot_runtime.adapters import scripted
from copilot_runtime.adapters.capabilities import UNSUPPORTED
from copilot_runtime.agents.direct import DirectAgent
from tests.adapters.aimock.mock import SPEAKERS
from tests.adapters.contract.fakes import FAKES, CallArgs, CallEnd, CallStart, Fake, Say, Step, Stop
from tests.browser.build import built_page, new_profile, one_origin
from tests.wire_agui.server import serving


@dataclass(frozen=True, slots=True)
class Call:
    """A call and its result: a text, or what the JSON of one says."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    result: Any

    @property
    def exchange(self) -> tuple[str, Any, Any]:
        """What a provider is to be told of it: ids may be the provider's own."""
        return self.name, self.arguments, self.result


ADD = Call(
    "call_1",
    "addTask",
    {"title": "Water the plants", "owner": "Ada"},
    'Added "Water the plants".',
)
MOVE = Call(
    "call_2",
    "moveTask",
    {"title": "Order a cake for Friday", "column": "doing"},
    'Moved "Order a cake for Friday" to doing.',
)
DESTINATION = Call(
    "call_1",
    "showDestination",
    {"city": "Lisbon", "sky": "sunny"},
    "The page shows Lisbon.",
)
WEATHER = Call(
    "call_2",
    "showWeather",
    {"city": "Oslo"},
    {"city": "Oslo", "sky": "cloudy", "celsius": 13},
)
CLOCK = Call("call_1", "local_time", {"city": "Oslo"}, "It is noon in Oslo.")


@action
def local_time(city: str) -> str:
    """Tell the time in a city: the one action that the server runs."""
    return f"It is noon in {city}."


DONE = "It is done."
"""What every model answers to the results of its calls."""

MODELS = [*FAKES, *(f"aimock-{name}" for name in SPEAKERS)]


class Model(Protocol):
    """A provider on loopback, and the adapter that asks it."""

    adapter: Adapter

    async def plays(self, *calls: Call) -> None:
        """Make these calls in one answer, and say that it is done in the next."""
        ...

    async def told(self) -> list[Any]:
        """Return the `exchange` of each call in the one request that followed the first."""
        ...

    def lacks(self, ability: str) -> str | None:
        """Return why the adapter lacks an ability, or None if it does not."""
        ...


class ByFake:
    """Plays calls in turns, if its provider can write that."""

    def __init__(self, fake: Fake) -> None:
        self.adapter = fake.adapter()
        self._fake = fake
        self._calls: tuple[Call, ...] = ()

    async def plays(self, *calls: Call, before: Sequence[Step] = ()) -> None:
        steps = _one_by_one if self.lacks("interleaved_calls") else _in_turns
        self._fake.plays(*before, *steps(calls), Stop("tool_calls"))
        self._fake.plays(Say(DONE[:3]), Say(DONE[3:]), Stop())
        self._calls = calls

    async def told(self) -> list[Any]:
        _, follow_up = self._fake.asked
        if self.lacks("history"):  # the server has the calls, and is told results only
            calls = {call.id: (call.name, call.arguments) for call in self._calls}
        else:
            calls = {one.call[0]: one.call[1:] for one in follow_up.messages if one.call}
        results = [one for one in follow_up.messages if one.result_of]
        return [(*calls[one.result_of], _decoded(one.text)) for one in results]

    def lacks(self, ability: str) -> str | None:
        return UNSUPPORTED[self._fake.name].get(ability)


class ByAimock:
    """Lets aimock play: it writes each call as its authors think that the provider does."""

    def __init__(self, name: str, adapter: Adapter, mock: ClientSession) -> None:
        self.adapter = adapter
        self._name = name
        self._mock = mock

    async def plays(self, *calls: Call) -> None:
        made = [{"name": call.name, "arguments": call.arguments} for call in calls]
        fixtures = [
            {"match": {"hasToolResult": False}, "response": {"toolCalls": made}},
            {"match": {"hasToolResult": True}, "response": {"content": DONE}},
        ]
        async with self._mock.post("/__aimock/reset") as answer:
            assert answer.ok
        async with self._mock.post("/__aimock/fixtures", json={"fixtures": fixtures}) as answer:
            assert answer.ok, await answer.text()

    async def told(self) -> list[Any]:
        async with self._mock.get("/__aimock/journal") as journal:
            _, follow_up = await journal.json()
        messages = follow_up["body"]["messages"]  # aimock tells all providers' alike: as OpenAI's
        calls = {call["id"]: call["function"] for m in messages for call in m.get("tool_calls", ())}
        results = [
            (calls[m["tool_call_id"]], m["content"]) for m in messages if m["role"] == "tool"
        ]
        return [
            (call["name"], json.loads(call["arguments"]), _decoded(result))
            for call, result in results
        ]

    def lacks(self, ability: str) -> str | None:
        return UNSUPPORTED.get(self._name, {}).get(ability)


@asynccontextmanager
async def by_aimock(name: str, address: str) -> AsyncGenerator[ByAimock, None]:
    """Yield the mock at that address in the role of a provider."""
    adapter = SPEAKERS[name](address)
    async with ClientSession(address) as mock:
        yield ByAimock(name, adapter, mock)
    await adapter.aclose()


def _in_turns(calls: tuple[Call, ...]) -> Iterator[Step]:
    for call in calls:
        yield from _begun(call)
    for call in calls:
        yield from _ended(call)


def _one_by_one(calls: tuple[Call, ...]) -> Iterator[Step]:
    for call in calls:
        yield from _begun(call)
        yield from _ended(call)


def _begun(call: Call) -> Iterator[Step]:
    yield CallStart(call.id, call.name)
    yield CallArgs(call.id, json.dumps(call.arguments)[:10])


def _ended(call: Call) -> Iterator[Step]:
    yield CallArgs(call.id, json.dumps(call.arguments)[10:])
    yield CallEnd(call.id)


def _decoded(result: str) -> Any:
    """Return what a result says. Gemini takes objects only, so a text is put into one."""
    try:
        value = json.loads(result)
    except ValueError:
        return result
    return value.get("output", value)


def needs(model: Model, ability: str) -> None:
    """Skip the test if the adapter lacks it, for the reason the table gives."""
    if reason := model.lacks(ability):
        pytest.skip(reason)


@asynccontextmanager
async def opened(
    example: str, browser: Browser, adapter: Adapter
) -> AsyncGenerator[tuple[Page, str], None]:
    """Serve an example and a runtime; yield an empty page in a fresh profile, and their address."""
    runtime = CopilotRuntime(
        adapter,
        actions=[local_time],
        agents={"trip": DirectAgent(adapter)},
        settings=Settings(threads="memory"),
    )
    async with serving(one_origin(built_page(example), runtime)) as port:
        context = await new_profile(browser, 1280, 760)
        try:
            yield await context.new_page(), f"http://127.0.0.1:{port}"
        finally:
            await context.close()  # ends its streams, so that the server can end


class WithoutSuggestions(Adapter):
    """Answers the pages' own wish for suggestions itself, as it comes at moments of its own.

    So the nth request that reaches the model is the nth of the conversation.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def stream(self, request: ChatRequest) -> Events:
        forced = request.parameters.tool_choice_name
        return _none(forced) if forced else self._adapter.stream(request)


async def _none(function: str) -> Events:
    for event in scripted.call(function, {"suggestions": []}):
        yield event
