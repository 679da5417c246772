"""Connections break, servers die, people press stop: nothing is lost, or left behind."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import NotFoundError
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, LangGraphAgent, Settings
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.policies import load_policy
from tests.documents import blocks
from tests.extensions.frameworks.langgraph.asking import (
    agents,
    asked_v1,
    new_thread,
    operator,
    page,
    page_v1,
)
from tests.extensions.frameworks.langgraph.dev import graphs_of
from tests.extensions.frameworks.langgraph.proxy import Proxy
from tests.extensions.knowledge.test_access import COMMON, POLICY, SECRETS, build
from tests.wire.client import chat
from tests.wire.client import user as user_v1
from tests.wire_agui.http import Browser, Exchange, text_of, user
from tests.wire_agui.server import PATH, browsing, serving

pytestmark = pytest.mark.anyio

COUNTED = f"You said: slowly {' '.join(map(str, range(60)))} "


def _content(word: str) -> bytes:
    """Return how the server writes a word of a model."""
    return b'"content":"%s "' % word.encode()


@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param([_content("7")], id="once"),
        pytest.param([_content("7"), _content("8"), _content("30")], id="again and again"),
        pytest.param([b"event: metadata"], id="before the first word"),
    ],
)
async def test_a_broken_connection_costs_no_word_and_doubles_none(
    proxy: Proxy, cuts: list[bytes]
) -> None:
    proxy.cut_at = [*cuts]
    async with page(proxy.url, "chat") as browser:
        answer = await browser.run(agent="chat", thread=new_thread(), messages=[user("slowly")])

    assert proxy.cuts == len(cuts)
    assert text_of(answer.events()) == COUNTED
    assert answer.events()[-1]["type"] == "RUN_FINISHED"


async def test_a_broken_connection_begins_no_second_run(proxy: Proxy) -> None:
    proxy.cut_at = [_content("7")]
    async with page_v1(proxy.url, "chat") as client:
        response = await asked_v1(client, "chat", user_v1("slowly"), threadId=new_thread())

    [text] = [message for message in response["messages"] if "content" in message]
    assert "".join(text["content"]) == COUNTED
    begun = [
        line for line in proxy.requests if line.startswith(b"POST") and b"/runs/stream" in line
    ]
    assert len(begun) == 1


async def test_a_server_that_does_not_come_back_is_an_error_of_the_run(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(attempt: int) -> float:
        return 0.0 * attempt

    monkeypatch.setattr(
        "copilot_runtime.extensions.frameworks.langgraph.run_stream.backoff", at_once
    )
    async with (
        page(proxy.url, "chat") as browser,
        browser.running(agent="chat", thread=new_thread(), messages=[user("slowly")]) as answer,
    ):
        await answer.until("TEXT_MESSAGE_CONTENT")
        proxy.refusing = True
        events = await answer.rest()

    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["code"] == "INCOMPLETE_STREAM"
    assert proxy.url not in events[-1]["message"]


async def test_a_server_that_is_not_there_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("copilot_runtime.extensions.frameworks.langgraph.run_stream.backoff")
    async with page("http://127.0.0.1:9", "chat") as browser:
        answer = await browser.run(agent="chat", thread=new_thread())

    error = answer.events()[-1]
    assert (error["type"], error["code"]) == ("RUN_ERROR", "NETWORK_ERROR")
    assert error["message"] == "The agent 'chat' did not answer."


async def test_stop_ends_the_run_on_the_server(langgraph: str) -> None:
    thread = str(uuid4())
    async with page(langgraph, "endless") as browser, operator(langgraph) as server:
        async with browser.running(agent="endless", thread=thread) as answer:
            await answer.until("TEXT_MESSAGE_CONTENT")
            await _stop(browser, "endless", thread, answer)
        statuses = await _statuses(server, thread)

    assert statuses == ["interrupted"]


async def test_a_v1_page_that_leaves_ends_the_run_on_the_server(langgraph: str) -> None:
    thread = str(uuid4())
    async with operator(langgraph) as server:
        async with page_v1(langgraph, "endless") as client:
            body = chat(agentSession={"agentName": "endless"}, threadId=thread)
            async with client.open(body) as exchange:
                await exchange.head()
                await exchange.until(b'"5 "')
        statuses = await _statuses(server, thread)

    assert statuses == ["interrupted"]


async def test_stop_before_the_first_word_leaves_no_run_behind(langgraph: str) -> None:
    thread = str(uuid4())
    async with page(langgraph, "endless") as browser, operator(langgraph) as server:
        async with browser.running(agent="endless", thread=thread) as answer:
            await answer.until("RUN_STARTED")
            await _stop(browser, "endless", thread, answer)
        statuses = await _statuses(server, thread)

    assert {*statuses} <= {"interrupted"}


async def _stop(browser: Browser, graph: str, thread: str, answer: Exchange) -> None:
    stopped = await browser.ask("POST", f"/agent/{graph}/stop/{thread}", {})
    assert stopped.json()["stopped"]
    await answer.rest()


async def _statuses(server: LangGraphClient, thread: str) -> list[str]:
    """Return what became of the runs of a thread. A UUID is the server's id for it, too."""
    try:
        return [run["status"] for run in await server.runs.list(thread)]
    except NotFoundError:
        return []  # it was stopped before there was a thread


async def test_after_a_stop_the_thread_takes_the_next_question(langgraph: str) -> None:
    thread = str(uuid4())
    async with page(langgraph, "chat") as browser:
        async with browser.running(
            agent="chat", thread=thread, messages=[user("slowly")]
        ) as answer:
            await answer.until("TEXT_MESSAGE_CONTENT")
            await _stop(browser, "chat", thread, answer)
        messages = [user("slowly"), user("Next", "user-2")]
        answer = await browser.run(agent="chat", thread=thread, run="r2", messages=messages)

    assert text_of(answer.events()) == "You said: Next "


async def test_a_run_that_somebody_else_has_begun_is_waited_for_or_refused(langgraph: str) -> None:
    thread = str(uuid4())
    async with operator(langgraph) as server:
        await server.threads.create(thread_id=thread)
        other = await server.runs.create(thread, "endless", input={"messages": []})
        refusing = agents(langgraph, "chat", if_busy="reject")
        async with browsing(agents=refusing) as browser:
            refused = await browser.run(agent="chat", thread=thread)
        interrupting = agents(langgraph, "chat", if_busy="interrupt")
        async with browsing(agents=interrupting) as browser:
            answer = await browser.run(agent="chat", thread=thread)
        ended = await server.runs.get(thread, other["run_id"])

    error = refused.events()[-1]
    assert (error["type"], error["code"]) == ("RUN_ERROR", "THREAD_BUSY")
    assert text_of(answer.events()) == "You said: Hi "
    assert ended["status"] == "interrupted"


async def test_a_graph_that_fails_ends_its_run_and_keeps_its_secrets(langgraph: str) -> None:
    async with page(langgraph, "failing") as browser:
        answer = await browser.run(agent="failing", thread=new_thread())

    events = answer.events()
    assert text_of(events) == "Half a "
    assert (events[-1]["type"], events[-1]["message"]) == (
        "RUN_ERROR",
        "The agent 'failing' failed: ValueError.",
    )
    assert "secret_prices" not in str(events)


async def test_a_graph_that_is_not_there_is_said_to_be_missing(langgraph: str) -> None:
    async with page(langgraph, "nosuch") as browser:
        answer = await browser.run(agent="nosuch", thread=new_thread())

    error = answer.events()[-1]
    assert (error["type"], error["code"]) == ("RUN_ERROR", "NOT_FOUND")
    assert error["message"] == "The agent 'nosuch' is not there."


PAGE = "knowledge/agents"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the graph of the page."""
    folder = tmp_path_factory.mktemp("librarian")
    [graph] = [block for block in blocks("python", PAGE) if "graph = " in block.code]
    (folder / "graph.py").write_text(graph.code)
    config = folder / "config.json"
    graphs = {"librarian": "./graph.py:graph"}
    config.write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    with graphs_of(config, folder) as url:
        yield url


def sign_in(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-session")


@asynccontextmanager
async def library(server: str, knowledge: Knowledge) -> AsyncGenerator[Browser]:
    configurable: dict[str, Any] = {}
    agent = LangGraphAgent(server, graph="librarian", config={"configurable": configurable})
    runtime = CopilotRuntime(
        agents={"it": agent},
        knowledge=knowledge,
        authenticate=sign_in,
        settings=Settings(threads="memory", serve_mcp=True),
    )
    async with serving(runtime.app(path=PATH)) as port:
        configurable["mcp"] = f"http://127.0.0.1:{port}{PATH}/mcp"
        yield Browser(port)


async def test_a_graph_on_a_server_finds_what_its_user_may_read(
    server: str, tmp_path: Path
) -> None:
    path = tmp_path / "policy.yml"
    path.write_text(POLICY)
    answers: list[dict[str, Any]] = []
    for resources in ([*COMMON, *SECRETS], COMMON):
        async with library(server, await build(load_policy(path), resources)) as browser:
            found: dict[str, Any] = {}
            for who in ("ann", "eve"):
                asker = Browser(browser.where, browser.base, {"x-session": who})
                run = await asker.run(
                    agent="it", thread=new_thread(), messages=[user("zebra nine")]
                )
                results = json.loads(text_of(run.events()))["results"]
                found[who] = [result["id"] for result in results]
            answers.append(found)

    full, without = answers
    assert full["ann"] == without["ann"]
    assert full["ann"] == ["common.Document.d/common.Chunk.c"]
    assert {resource.uri for resource in SECRETS}.intersection(full["eve"])
