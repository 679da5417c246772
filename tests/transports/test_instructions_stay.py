"""The operator's instructions reach the model, and nobody else: every door is tried."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, RunInput, ScriptedAdapter, Settings, action
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.hooks import ErrorContext, Hooks
from copilot_runtime.api.messages import Message
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.threads.export import export_threads
from copilot_runtime.threads.store import ThreadStore
from tests.in_one_test import in_one_test
from tests.wire.client import AGENTS, CHAT, PLAIN, chat
from tests.wire_agui.http import connect_input, run_input

SECRET = "xylophone-42"
PROMPT = f"You are the clerk of a bookshop.\nThe password is {SECRET}."
SUBSCRIPTION = """
subscription ($data: GenerateCopilotResponseInput) {
  generateCopilotResponse(data: $data) { cursor ended deltas { content } }
}
"""


@action
def look_up(title: str) -> str:
    """Look a book up."""
    return f"{title} is on the shelf."


def read(run: RunInput) -> str:
    return PROMPT


async def read_later(run: RunInput) -> str:
    return PROMPT


class Shop:
    """A runtime with the instructions, its model, and all that its clients and hooks got."""

    def __init__(self, folder: Path, instructions: Any, *turns: Any) -> None:
        self.model = ScriptedAdapter(*turns)
        self.hooks: list[Any] = []
        self.errors: list[tuple[BaseException, ErrorContext]] = []
        settings = Settings(
            threads=f"sqlite:{folder / 'threads.db'}",
            serve_mcp=True,
            serve_remote=True,
            page_models=("*",),
        )
        self.runtime = CopilotRuntime(
            adapter=self.model,
            instructions=instructions,
            actions=[look_up],
            agents={"clerk": DirectAgent(self.model, instructions=instructions)},
            hooks=Hooks(
                before_request=self._saw,
                after_request=self._answered,
                error=lambda error, context: self.errors.append((error, context)),
            ),
            settings=settings,
        )
        self.got: list[str] = []

    def _saw(self, run: RunInput) -> None:
        self.hooks.append(run)

    def _answered(self, run: RunInput, messages: Sequence[Message]) -> None:
        self.hooks += [run, messages]

    def ask(self, client: TestClient, path: str, body: Any = None) -> str:
        """Send a request, and return its answer."""
        url = f"/graphql{path}"
        answer = client.get(url) if body is None else client.post(url, json=body)
        assert answer.status_code == 200, (path, answer.text)
        self.got.append(answer.text)
        return answer.text

    def prompted(self) -> list[bool]:
        """Return for each request to the model whether it began with the instructions."""
        return [_first(request) == PROMPT for request in self.model.requests]


def _first(request: ChatRequest) -> Any:
    return getattr(request.messages[0], "content", None)


@in_one_test("instructions", [PROMPT, read, read_later])
def test_no_answer_thread_export_hook_or_log_has_the_instructions(
    instructions: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    turns = [call("look_up", {"title": "Emma"}), *[say(f"Hello {n}", id=f"m{n}") for n in range(9)]]
    shop = Shop(tmp_path, instructions, *turns)
    with TestClient(shop.runtime.app()) as client:
        for agent in ("default", "clerk"):
            thread = f"thread-{agent}"
            ran = shop.ask(client, f"/agent/{agent}/run", run_input(thread=thread, run=agent))
            assert "Hello" in ran
            assert "Hello" in shop.ask(client, f"/agent/{agent}/connect", connect_input(thread))
            assert "Hello" in shop.ask(client, f"/threads/{thread}/messages?agentId={agent}")
            shop.ask(client, f"/threads/{thread}/events?agentId={agent}")
            shop.ask(client, f"/threads/{thread}/state?agentId={agent}")
            shop.ask(client, f"/agent/{agent}/suggest", run_input(thread=f"s-{agent}", run="s"))
            session = {"agentSession": {"agentName": agent}} if agent != "default" else {}
            for document, at in ((CHAT, 1), (PLAIN, 2)):
                body = chat(query=document, threadId=f"v1-{agent}-{at}", **session)
                assert "Hello" in shop.ask(client, "", body)
                shop.ask(client, f"/threads/v1-{agent}-{at}/messages?agentId={agent}")
        shop.ask(client, "/info")
        shop.ask(client, "/info", {})
        shop.ask(client, "/threads?agentId=default")
        shop.ask(client, "", {"operationName": "availableAgents", "query": AGENTS})
        shop.got += [client.get(url).text for url in ("/", "/docs", "/openapi.json", "/health")]
        shop.got += asyncio.run(exported(shop.runtime.threads))

    assert shop.prompted() == [True] * 9
    assert not [text for text in shop.got if SECRET in text]
    assert SECRET not in repr(shop.hooks)
    assert SECRET not in caplog.text
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"Hello" in stored
    assert SECRET.encode() not in stored


async def exported(store: ThreadStore) -> list[str]:
    await store.open()
    lines = [line.decode() async for line in export_threads(store)]
    await store.aclose()
    return [*lines, str(len(lines))]


def test_other_programs_and_subscriptions_do_not_get_them_either(tmp_path: Path) -> None:
    shop = Shop(tmp_path, PROMPT, *[say(f"Hello {n}", id=f"m{n}") for n in range(3)])
    mcp = {"accept": "application/json, text/event-stream"}
    with TestClient(shop.runtime.app()) as client:
        executed = {"name": "clerk", "threadId": "remote", "messages": []}
        assert "Hello" in shop.ask(client, "/agents/execute", executed)
        shop.ask(client, "/agents/state", {"name": "clerk", "threadId": "remote"})
        with client.websocket_connect("/graphql", subprotocols=["graphql-transport-ws"]) as socket:
            socket.send_json({"type": "connection_init"})
            shop.got.append(socket.receive_text())
            variables = {"data": chat()["variables"]["data"]}
            payload = {"query": SUBSCRIPTION, "variables": variables}
            socket.send_json({"id": "1", "type": "subscribe", "payload": payload})
            while '"complete"' not in shop.got[-1]:
                shop.got.append(socket.receive_text())
        greeting = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
        shop.got.append(client.post("/graphql/mcp", json=hello, headers=mcp).text)

    assert shop.prompted() == [True, True]
    assert any("Hello 1" in text for text in shop.got)
    assert not [text for text in shop.got if SECRET in text]


@in_one_test("door", ["agui", "graphql"])
def test_an_error_of_the_provider_that_repeats_them_reaches_no_page_thread_or_log(
    door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    refusal = NetworkError(f"vLLM API error: 400 bad content: '{PROMPT}'", hint=f"It got {PROMPT}")
    shop = Shop(tmp_path, PROMPT, refusal)
    with TestClient(shop.runtime.app()) as client:
        failed = shop.ask(client, *question(door))
        shop.ask(client, "/agent/default/connect", connect_input("t"))
        shop.ask(client, "/threads/t/messages?agentId=default")

    assert "vLLM refused the request." in failed
    assert not [text for text in shop.got if SECRET in text]
    assert SECRET not in caplog.text


@in_one_test("door", ["agui", "graphql"])
@in_one_test("returns", [None, 7])
def test_a_function_that_fails_ends_the_run_and_only_log_and_hook_get_the_reason(
    door: str, returns: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(run: RunInput) -> Any:
        if returns is None:
            raise LookupError(f"no row for {SECRET}")
        return returns

    shop = Shop(tmp_path, broken)
    with TestClient(shop.runtime.app()) as client:
        failed = shop.ask(client, *question(door))

    assert "The instructions for this answer could not be created." in failed
    assert not [text for text in shop.got if SECRET in text]
    ((error, context),) = shop.errors
    assert context.thread_id == "t"
    if returns is None:
        assert isinstance(error.__cause__, LookupError)
        assert SECRET in caplog.text  # it is the application's own sentence, in its own log
    else:
        assert "The function 'broken' returned a int" in caplog.text


@in_one_test("door", ["agui", "graphql"])
def test_a_function_that_hangs_ends_with_the_time_of_a_run(door: str) -> None:
    async def hang(run: RunInput) -> str:
        await asyncio.Event().wait()
        return PROMPT

    settings = Settings(threads="memory", run_timeout=0.2)
    runtime = CopilotRuntime(ScriptedAdapter(), instructions=hang, settings=settings)
    with TestClient(runtime.app()) as client:
        path, body = question(door)
        failed = client.post(f"/graphql{path}", json=body).text
    assert "The answer took longer than 0.2 seconds." in failed


@in_one_test("door", ["agui", "graphql"])
def test_an_agent_that_takes_over_gets_its_own_instructions_and_not_those_of_the_chat(
    door: str,
) -> None:
    other = "You keep the stock. The password is marimba-77."
    model = ScriptedAdapter(call("clerk"), say("Hello"))
    runtime = CopilotRuntime(
        model,
        instructions=PROMPT,
        agents={"clerk": DirectAgent(model, instructions=other)},
        settings=Settings(threads="memory", hand_over="always", shared_state=False),
    )
    with TestClient(runtime.app()) as client:
        path, body = question(door)
        got = client.post(f"/graphql{path}", json=body).text
        for path in ("messages", "events", "state"):
            got += client.get(f"/graphql/threads/t/{path}?agentId=default").text

    chat_request, clerk_request = model.requests
    assert (_first(chat_request), _first(clerk_request)) == (PROMPT, other)
    assert SECRET not in repr(clerk_request)
    assert "Hello" in got
    assert SECRET not in got
    assert "marimba" not in got


def question(door: str) -> tuple[str, Mapping[str, Any]]:
    """Return the path and the body of a question in the thread `t`."""
    if door == "agui":
        return "/agent/default/run", run_input()
    return "", chat(query=PLAIN, threadId="t")
