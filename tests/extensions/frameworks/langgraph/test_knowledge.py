"""A graph on a real LangGraph server uses knowledge over MCP, as the documents show it."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, LangGraphAgent, Settings
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.policies import load_policy
from tests.documents import blocks
from tests.extensions.frameworks.langgraph.asking import new_thread
from tests.extensions.frameworks.langgraph.dev import graphs_of
from tests.extensions.knowledge.test_access import COMMON, POLICY, SECRETS, build
from tests.wire_agui.http import Browser, text_of, user
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

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
