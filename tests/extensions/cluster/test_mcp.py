"""MCP clients and several server processes: any process answers any request of any client."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

import httpx2
import pytest
from a2a.types import CancelTaskRequest, SubscribeToTaskRequest

from copilot_runtime import RunInput, Settings
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.graph import index as graph_index
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies import build_actor
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.knowledge.vectors import index as vector_index
from copilot_runtime.storage import LocalStorage
from tests.extensions.a2a.server.clients import at_a2a, said, state_of
from tests.extensions.a2a.server.clients import text_of as text_of_task
from tests.extensions.mcp.server.clients import over_http, text_of
from tests.extensions.mcp.server.test_mcp_server import ACCEPT, CALLING, CANCELLING, GREETING
from tests.processes import Program, running
from tests.transports.served import Slow
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, browsing

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
CONNECTIONS = 6
"""Requests on connections of their own: the system spreads them over the workers."""


async def test_a_call_is_cancelled_through_another_server(shared: Mapping[str, Any]) -> None:
    slow = Slow()
    settings = Settings(**shared, serve_mcp=True)
    async with (
        browsing(settings=settings, agents={"slow": slow}) as first,
        browsing(settings=settings, agents={"slow": Slow()}) as second,
        httpx2.AsyncClient(headers=ACCEPT, timeout=30) as http,
    ):
        urls = [f"http://127.0.0.1:{it.where}{PATH}/mcp" for it in (first, second)]
        begun = await http.post(urls[1], json=GREETING)
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        call = asyncio.create_task(http.post(urls[0], json=CALLING, headers=session))
        await slow.gate.wait_for_event()
        body = {**CANCELLING, "params": {"requestId": CALLING["id"]}}
        await http.post(urls[1], json=body, headers=session)
        await slow.left.wait()
        answer = await call

    assert "Request cancelled" in answer.text


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    target = f"{ROOT}/tests/extensions/cluster/worker_names.py:runtime"
    words = [sys.executable, "-m", "copilot_runtime", "serve", target, "--workers", "2"]
    words += ["--port", "0", "--path", "/copilotkit"]
    environ = {**os.environ, "COPILOT_THREADS": "sqlite:threads.db", "COPILOT_SERVE_MCP": "true"}
    with running(words, cwd=tmp_path, env=environ) as program:
        yield program


async def test_every_worker_answers_the_client_of_any(program: Program) -> None:
    where = int(program.until(r"runtimeUrl  http://127.0.0.1:(\d+)/copilotkit")[1])
    apart = httpx2.Limits(max_keepalive_connections=0)
    names: dict[bool, set[str]] = {True: set(), False: set()}
    tools: list[str] = []
    for modern in names:
        async with over_http(Browser(where), modern=modern, limits=apart) as session:
            for _ in range(10 * CONNECTIONS):
                tools = [tool.name for tool in (await session.list_tools()).tools]
                names[modern].add(text_of(await session.call_tool("name_process")))
                if len(names[modern]) == 2:
                    break

    assert tools == ["name_process"]
    assert len(names[True]) == 2
    assert names[True] == names[False]


async def test_a_task_is_followed_and_canceled_at_another_server(tmp_path: Path) -> None:
    slow, settings = Slow(), {"threads": f"sqlite:{tmp_path / 'threads.db'}"}
    agents, at_once = {"slow": slow}, {"streaming": False}
    async with (
        at_a2a("slow", agents=agents, way=at_once, settings=settings) as first,
        at_a2a("slow", agents=agents, settings=settings) as second,
    ):
        task = await first.ask("Hi", at_once=True)
        await slow.gate.wait_for_event()
        updates = second.client.subscribe(SubscribeToTaskRequest(id=task.id))
        begun = await anext(updates)
        canceled = await second.client.cancel_task(CancelTaskRequest(id=task.id))
        rest = [update async for update in updates]

    assert begun.task.id == task.id
    assert (state_of(canceled), text_of_task(canceled)) == ("canceled", "tick ")
    assert rest[-1].HasField("status_update")


async def test_a_message_that_comes_again_to_other_servers_is_worked_on_once(
    tmp_path: Path,
) -> None:
    runs = 0

    async def count(run: RunInput) -> str:
        nonlocal runs
        runs += 1
        return f"Done {runs}"

    settings = {"threads": f"sqlite:{tmp_path / 'threads.db'}"}
    message = said("Book it", context_id="c")
    async with (
        at_a2a("count", agents={"count": count}, settings=settings) as first,
        at_a2a("count", agents={"count": count}, settings=settings) as second,
    ):
        servers = (first, second, first, second)
        tasks = await asyncio.gather(*(server.ask(message) for server in servers))
        tasks += [await server.ask(message) for server in servers]
    async with at_a2a("count", agents={"count": count}, settings=settings) as third:
        tasks.append(await third.ask(message))

    assert {(task.id, state_of(task), text_of_task(task)) for task in tasks} == {
        (tasks[0].id, "completed", "Done 1")
    }
    assert runs == 1


PAGE = """<article itemscope itemtype="https://schema.org/Recipe" itemid="https://x.example/pie">
<h1 itemprop="name">Quince pie</h1><p itemprop="description">{}</p></article>"""


@pytest.fixture(autouse=True)
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server that has searched look at what is stored only if it is told to."""
    monkeypatch.setattr(vector_index, "_MAX_AGE", inf)
    monkeypatch.setattr(graph_index, "_REFRESH_SECONDS", inf)


@asynccontextmanager
async def serving_knowledge(
    shared: Mapping[str, Any], folder: Path
) -> AsyncGenerator[Sequence[Knowledge], None]:
    """Serve the same knowledge by two servers, each of which has searched it already."""
    async with AsyncExitStack() as stack:
        both = [Knowledge(LocalStorage(folder / "stored")) for _ in range(2)]
        for knowledge in both:
            settings = Settings(**shared)
            await stack.enter_async_context(browsing(settings=settings, knowledge=knowledge))
        await both[0].update()
        for knowledge in both:
            await knowledge.search("a pie")
            await knowledge.triples("? ? ?")
        yield both


async def find(knowledge: Knowledge, user: str = "ann") -> tuple[list[str], list[str]]:
    """Return what a person finds by meaning, and by a pattern of the graph."""
    actor = build_actor(user)
    by_meaning = await knowledge.search("a quince pie", actor=actor)
    by_pattern = await knowledge.find("? schema:name ?", actor=actor)
    return [it.text for it in by_meaning], [it.text for it in by_pattern]


async def wait_until_found(knowledge: Knowledge, words: str) -> None:
    """Search until both indexes have these words, or nothing for none."""
    while True:
        found = await find(knowledge)
        if all(words in "".join(texts) and bool(texts) == bool(words) for texts in found):
            return
        await asyncio.sleep(0)


async def test_what_one_server_takes_in_changes_and_removes_is_found_at_another(
    shared: Mapping[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "pages" / "pie.html"
    page.parent.mkdir()
    async with serving_knowledge(shared, tmp_path) as (first, second):
        for words in ("It is baked slowly.", "It is baked at night."):
            page.write_text(PAGE.format(words))
            await first.ingest(page.parent)
            await wait_until_found(second, words)
        page.unlink()
        await first.ingest(page.parent)
        await wait_until_found(second, "")


async def test_data_of_one_user_is_invisible_to_others_at_another_server(
    shared: Mapping[str, Any], tmp_path: Path
) -> None:
    note = Identifier("common.Document", "note", "common.User.ann")
    text = '<https://x.example/pie> <https://schema.org/name> "Quince pie of Ann" .'
    async with serving_knowledge(shared, tmp_path) as (first, second):
        await first.resources.put(Resource(note, text, format="turtle"))
        await first.update()
        await wait_until_found(second, "Quince pie of Ann")

        assert await find(second, "eve") == ([], [])
