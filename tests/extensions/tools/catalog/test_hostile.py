"""An assistant calls tools that hang, flood, lie and hang up: each harms its own call only."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api.events import Event
from copilot_runtime.extensions.assistants.settings import AssistantSettings
from copilot_runtime.testing import Client, ScriptedAdapter, call, say
from tests.adapters.provider import HANG, HEAD, RESET, piece, serving, whole
from tests.extensions.mcp.client.servers import serve as serve_mcp
from tests.extensions.tools.catalog.grpc.conftest import Context
from tests.extensions.tools.catalog.grpc.conftest import serve as serve_grpc

pytestmark = pytest.mark.anyio

FUNCTIONS = "tests.extensions.tools.catalog.functions"
FLOOD = 50_000_000
PETS: dict[str, Any] = {
    "openapi": "3.1.0",
    "servers": [{"url": "http://a/"}],
    "paths": {
        "/pets": {
            "get": {
                "operationId": "getPet",
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"type": "array"}}}}
                },
            }
        }
    },
}


@pytest.mark.stalls(reason="Servers of the test flood it from its own process.")
async def test_tools_of_all_kinds_harm_only_their_own_calls(tmp_path: Path) -> None:
    async with _serve_hostile() as urls, serve_mcp() as mcp, _serve_shop() as shop:
        order = {"address": shop.address, "method": "shop.Shop.Order", "reflection": True}
        watch = {**order, "method": "shop.Shop.Watch"}
        query = "query { a }"
        pet = {"document": "pets.json", "operations": ["getPet"], "server": urls["lie"]}
        tools: dict[str, Any] = {
            "greet": _tool(function=f"{FUNCTIONS}:greet"),
            "function_fails": _tool(function=f"{FUNCTIONS}:fail", arguments={"secret": "x"}),
            "function_floods": _tool(function=f"{FUNCTIONS}:write_much", arguments={"size": FLOOD}),
            "function_lies": _tool(
                function=f"{FUNCTIONS}:give",
                arguments={"value": {"degrees": "many"}},
                returns={"properties": {"degrees": {"type": "number"}}},
            ),
            "http_hangs": _tool(http={"url": urls["hang"]}, timeout=0.3),
            "http_floods": _tool(http={"url": urls["flood"]}),
            "http_hangs_up": _tool(http={"url": urls["reset"]}),
            "getPet": _tool(openapi=pet, returns={"type": "array"}),
            "graphql_hangs": _tool(graphql={"url": urls["hang"], "query": query}, timeout=0.3),
            "graphql_floods": _tool(graphql={"url": urls["flood"], "query": query}),
            "graphql_lies": _tool(graphql={"url": urls["garbage"], "query": query}),
            "mcp_fails": _tool(mcp={"server": mcp.url, "tool": "boom"}),
            "mcp_floods": _tool(mcp={"server": mcp.url, "tool": "large"}),
            "mcp_hangs": _tool(mcp={"server": mcp.url, "tool": "forever"}, timeout=1),
            "grpc_hangs": _tool(grpc=order, arguments={"card": "hang"}, timeout=0.5),
            "grpc_floods": _tool(grpc=order, arguments={"card": "flood"}),
            "grpc_never_ends": _tool(grpc=watch),
        }
        _write(tmp_path, tools)
        (tmp_path / "pets.json").write_text(json.dumps(PETS))
        calls = [call(name, {}, id=name) for name in tools if name != "greet"]
        first: Sequence[Event] = [
            *call("greet", {"name": 7}, id="wrong"),
            *chain.from_iterable(calls),
            *call("greet", {"name": "Ann"}, id="right"),
        ]
        async with _talk(tmp_path, first, say("Some of it worked.")) as client:
            chat = await client.say("Do everything.")

    results = {one.name: one.result or "" for one in chat.tool_calls[1:]}
    assert chat.text == "Some of it worked."
    assert results.pop("greet") == "Hello, Ann!"
    assert "name" in (chat.tool_calls[0].result or "")
    expected = {
        "function_fails": "Nobody answers to x.",
        "function_floods": "50000000",
        "function_lies": "'many' is not of type 'number'",
        "http_hangs": "0.3 s",
        "http_floods": "larger than",
        "http_hangs_up": "error",
        "getPet": "is not of type 'array'",
        "graphql_hangs": "0.3 s",
        "graphql_floods": "larger than",
        "graphql_lies": "error",
        # on a busy machine, what floods may end the connection that all of them share
        "mcp_fails": "broke off" if "broke off" in results["mcp_fails"] else "The disk is full.",
        "mcp_floods": "error",
        "mcp_hangs": "did not finish" if "14 s" in results["mcp_hangs"] else "1 s",
        "grpc_hangs": "0.5 s",
        "grpc_floods": "larger than max",
        "grpc_never_ends": "more than 1000 messages",
    }
    for name, words in expected.items():
        assert words in results[name], (name, results[name])
        assert "error" in results[name]
        assert len(results[name]) < 2_000


async def test_what_floods_is_never_in_memory(tmp_path: Path) -> None:
    async with _serve_hostile() as urls:
        tools = {
            f"flood{number}": _tool(http={"url": urls["flood"]}, retries=0) for number in range(3)
        }
        _write(tmp_path, tools)
        calls = [*chain.from_iterable(call(name, {}, id=name) for name in tools)]
        async with _talk(tmp_path, calls, say("Done.")) as client:
            tracemalloc.start()
            try:
                await client.say("Do everything.")
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert peak < 40_000_000  # each is read up to 4 MB, and nothing is read to its end


async def test_a_list_that_changes_in_the_middle_of_a_run_counts_in_the_next(
    tmp_path: Path,
) -> None:
    _write(tmp_path, {"greet": _tool(function=f"{FUNCTIONS}:greet")})

    def change(request: Any) -> Sequence[Event]:
        del request
        _write(tmp_path, {"other": _tool(function=f"{FUNCTIONS}:find_nothing")})
        return call("greet", {"name": "Bob"}, id="second")

    first = call("greet", {"name": "Ann"}, id="first")
    async with _talk(tmp_path, first, change, say("Done.")) as client:
        chat = await client.say("Greet them.")
    assert [one.result for one in chat.tool_calls] == ["Hello, Ann!", "Hello, Bob!"]


@asynccontextmanager
async def _serve_hostile() -> AsyncGenerator[dict[str, str]]:
    """Serve what hangs, floods, hangs up, and answers what it should not."""
    async with AsyncExitStack() as stack:
        urls: dict[str, str] = {}
        scripts: dict[str, Any] = {
            "hang": [HANG],
            "flood": _Endless(),
            "reset": [HEAD, piece(b"{"), RESET],
            "lie": [whole({"name": "Rex"})],
            "garbage": [whole(b"<html>")],
        }
        for name, script in scripts.items():
            server = await stack.enter_async_context(serving())
            server.answer(script)
            urls[name] = server.url
        yield urls


class _Endless:
    """A script that never ends."""

    def __iter__(self) -> Iterator[bytes]:
        yield HEAD.replace(b"text/event-stream", b"text/plain")
        yield from repeat(piece(b"x" * 65_536))


@asynccontextmanager
async def _serve_shop() -> AsyncGenerator[Any]:
    async def take(request: dict[str, Any], context: Context) -> Any:
        del context
        if request.get("card") == "flood":
            return {"number": "x" * FLOOD}
        return await asyncio.Event().wait()

    async def watch(request: Any, context: Context) -> Any:
        del request, context

        async def numbers() -> AsyncGenerator[Any]:
            while True:
                yield {"number": "x" * 1000}

        return numbers()

    async with serve_grpc({"Order": take, "Watch": watch}, reflects=True) as shop:
        yield shop


def _tool(**fields: Any) -> dict[str, Any]:
    """Return a tool: the endpoint, and what else is said of it."""
    others = {"arguments", "returns", "timeout", "retries"}
    endpoint = {name: value for name, value in fields.items() if name not in others}
    return {"endpoint": endpoint, **{name: fields[name] for name in others & fields.keys()}}


def _write(folder: Path, tools: dict[str, Any]) -> None:
    (folder / "tools.yml").write_text(json.dumps(tools))
    (folder / "clerk.agent.md").write_text(
        "---\ndescription: Does all.\nmax_parallel: 20\n---\nYou do all.\n"
    )


@asynccontextmanager
async def _talk(folder: Path, *turns: Any) -> AsyncGenerator[Client]:
    settings = Settings(
        threads="memory",
        tools=str(folder / "tools.yml"),
        assistants=AssistantSettings(folder=str(folder)),
    )
    runtime = CopilotRuntime(ScriptedAdapter(*turns), settings=settings)
    async with Client(runtime, agent="clerk") as client:
        yield client
