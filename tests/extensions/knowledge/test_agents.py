"""Agents of every kind use knowledge, and learn of it what their user may read, and no more.

As in `test_access.py`, each is asked in two worlds: one with secrets, and one without.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agents as sdk
import pydantic_ai
import pytest
from agents.mcp import MCPServerStreamableHttp
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from copilot_runtime import (
    AguiAgent,
    CopilotRuntime,
    DemoAdapter,
    RunInput,
    ScriptedAdapter,
    Settings,
)
from copilot_runtime.adapters.scripted import call
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import shorten_uri
from copilot_runtime.extensions.knowledge.policies import load_policy
from copilot_runtime.extensions.knowledge.tools import NOTHING
from tests.extensions.knowledge.library import Seeker, seeking
from tests.extensions.knowledge.test_access import (
    ADA,
    COMMON,
    POLICY,
    SECRET,
    SECRETS,
    build,
    sign_in,
)
from tests.in_one_test import in_one_test
from tests.wire.client import PLAIN, chat
from tests.wire.client import user as user_v1
from tests.wire_agui.http import Browser, text_of, user
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

UNTRACED = sdk.RunConfig(tracing_disabled=True)


@dataclass
class Scene:
    """What an agent is made of: knowledge, a client of its model, and where MCP is served."""

    knowledge: Knowledge
    client: AsyncOpenAI
    mcp: str = ""


Serve = Callable[[Scene], AbstractAsyncContextManager[Any]]
"""Makes an agent."""


def pydantic_model(client: AsyncOpenAI) -> OpenAIChatModel:
    return OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))


def sdk_model(client: AsyncOpenAI) -> sdk.OpenAIChatCompletionsModel:
    return sdk.OpenAIChatCompletionsModel("m", openai_client=client)


@asynccontextmanager
async def pydantic_agent(scene: Scene) -> AsyncGenerator[Any]:
    yield pydantic_ai.Agent(pydantic_model(scene.client))


@asynccontextmanager
async def pydantic_agent_with_functions(scene: Scene) -> AsyncGenerator[Any]:
    yield pydantic_ai.Agent(pydantic_model(scene.client), tools=scene.knowledge.functions())


@asynccontextmanager
async def sdk_agent(scene: Scene) -> AsyncGenerator[Any]:
    yield sdk.Agent(name="Desk", model=sdk_model(scene.client))


@asynccontextmanager
async def sdk_agent_with_functions(scene: Scene) -> AsyncGenerator[Any]:
    tools: Any = [sdk.function_tool(function) for function in scene.knowledge.functions()]
    yield sdk.Agent(name="Desk", model=sdk_model(scene.client), tools=tools)


class Offered(MessagesState):
    tools: list[Any]


@asynccontextmanager
async def graph(scene: Scene) -> AsyncGenerator[Any]:
    async def think(state: Offered) -> dict[str, Any]:
        able = Seeker().bind_tools(state["tools"])
        return {"messages": [await able.ainvoke(state["messages"])]}

    builder = StateGraph(Offered).add_node("think", think).add_edge(START, "think")
    yield builder.compile(checkpointer=InMemorySaver())


@asynccontextmanager
async def graph_with_functions(scene: Scene) -> AsyncGenerator[Any]:
    yield create_agent(Seeker(), tools=scene.knowledge.functions(), checkpointer=InMemorySaver())


@asynccontextmanager
async def remote_agent(scene: Scene) -> AsyncGenerator[Any]:
    """An agent of pydantic-ai in another program, which serves it over AG-UI."""
    agent = pydantic_ai.Agent(pydantic_model(scene.client))

    async def answer(request: Request) -> Response:
        return await AGUIAdapter.dispatch_request(request, agent=agent)

    async with serving(Starlette(routes=[Route("/", answer, methods=["POST"])])) as port:
        far = AguiAgent(f"http://127.0.0.1:{port}/")
        yield far


@asynccontextmanager
async def agent_with_mcp(scene: Scene, *, tells_thread: bool = True) -> AsyncGenerator[Any]:
    """An agent of the OpenAI Agents SDK in another program, with the SDK's own client of MCP."""

    async def desk(run: RunInput) -> str:
        headers = {"x-user": run.headers["x-user"]}
        if tells_thread:
            headers["x-thread-id"] = run.thread_id
        async with MCPServerStreamableHttp(params={"url": scene.mcp, "headers": headers}) as server:
            agent = sdk.Agent(name="Desk", model=sdk_model(scene.client), mcp_servers=[server])
            question = run.messages[-1]
            assert isinstance(question, TextMessage)
            result = await sdk.Runner.run(agent, question.content, run_config=UNTRACED)
        return str(result.final_output)

    elsewhere = CopilotRuntime(agents={"desk": desk}, settings=Settings(threads="memory"))
    async with serving(elsewhere.app(path=PATH)) as port:
        yield AguiAgent(f"http://127.0.0.1:{port}{PATH}/agent/desk/run", actions=False)


@asynccontextmanager
async def agent_with_mcp_in_no_thread(scene: Scene) -> AsyncGenerator[Any]:
    async with agent_with_mcp(scene, tells_thread=False) as agent:
        yield agent


KINDS: Mapping[str, Serve] = {
    "pydantic-ai": pydantic_agent,
    "pydantic-ai with functions": pydantic_agent_with_functions,
    "openai-agents": sdk_agent,
    "openai-agents with functions": sdk_agent_with_functions,
    "langgraph": graph,
    "langgraph with functions": graph_with_functions,
    "ag-ui": remote_agent,
    "mcp": agent_with_mcp,
}


@asynccontextmanager
async def browsing(serve: Serve, knowledge: Knowledge) -> AsyncGenerator[Browser, None]:
    """Serve a runtime with knowledge and such an agent."""
    async with (
        seeking() as model,
        AsyncOpenAI(base_url=model, api_key="k") as client,
        serve(scene := Scene(knowledge, client)) as agent,
    ):
        runtime = CopilotRuntime(
            agents={"it": agent},
            knowledge=knowledge,
            authenticate=sign_in,
            settings=Settings(threads="memory", serve_mcp=True),
        )
        async with serving(runtime.app(path=PATH)) as port:
            scene.mcp = f"http://127.0.0.1:{port}{PATH}/mcp"
            yield Browser(port)


async def ask(browser: Browser, who: str, question: str = "zebra nine", **more: Any) -> str:
    asker = Browser(browser.where, browser.base, {"x-user": who})
    events = (await asker.run(agent="it", messages=[user(question)], **more)).events()
    assert events[-1]["type"] == "RUN_FINISHED", events
    return text_of(events)


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    path = tmp_path / "policy.yml"
    path.write_text(POLICY)
    return load_policy(path)


@in_one_test("kind", KINDS)
async def test_an_agent_finds_what_its_user_may_read(kind: str, policy: Any) -> None:
    async with browsing(KINDS[kind], await build(policy, [*COMMON, *SECRETS])) as browser:
        ann, eve = [await ask(browser, who, thread=who) for who in ("ann", "eve")]
    async with browsing(KINDS[kind], await build(policy, COMMON)) as browser:
        without = await ask(browser, "ann", thread="ann")

    assert HOURS in ann
    assert any(resource.uri in eve for resource in SECRETS)
    assert ann == without


HOURS = "common.Document.d/common.Chunk.c"
BOAT = "The colour of my boat is green"


@in_one_test("kind", KINDS)
async def test_an_agent_recalls_what_was_said_in_the_thread_of_its_user(
    kind: str, policy: Any
) -> None:
    async with browsing(KINDS[kind], await build(policy, COMMON)) as browser:
        await ask(browser, "ann", BOAT, run="r1")
        recalled = await ask(browser, "ann", "recall colour of my boat", run="r2")
        by_another = await ask(browser, "eve", "recall colour of my boat", run="r3")
        elsewhere = await ask(browser, "ann", "recall colour of my boat", thread="t2")

    assert BOAT in recalled
    assert "recall" not in recalled  # the question itself would be the best match
    assert by_another == elsewhere
    assert NOTHING in elsewhere


async def test_without_its_thread_an_agent_recalls_nothing_over_mcp(policy: Any) -> None:
    async with browsing(agent_with_mcp_in_no_thread, await build(policy, COMMON)) as browser:
        await ask(browser, "ann", BOAT, run="r1")
        recalled = await ask(browser, "ann", "recall colour of my boat", run="r2")

    assert NOTHING in recalled


async def test_a_function_outside_of_a_run_acts_for_nobody(policy: Any) -> None:
    knowledge = await build(policy, [*COMMON, *SECRETS])
    [search, *_] = knowledge.functions()

    with pytest.raises(Misuse, match="search_content was called outside of a run") as raised:
        await search(input=["zebra"])
    assert "knowledge.search(text, actor=build_actor(user))" in (raised.value.hint or "")


async def test_each_function_takes_what_its_tool_takes_and_tells_what_is_wrong(
    policy: Any,
) -> None:
    knowledge = await build(policy, [*COMMON, *SECRETS])
    calls: dict[str, dict[str, Any]] = {
        "search_content": {"input": []},
        "query_by_pattern": {"predicate": "schema:name"},
        "get_ontology": {},
        "get_subjects": {"type": "Person"},
        "recall": {"input": ["boat"]},
    }

    async def agent(run: RunInput) -> AsyncIterator[str]:
        for function in knowledge.functions():
            name = function.__name__
            yield f"{name}: {await function(**calls[name])}\n"

    @asynccontextmanager
    async def caller(scene: Scene) -> AsyncGenerator[Any]:
        yield agent

    async with browsing(caller, knowledge) as browser:
        lines = (await ask(browser, "ann")).splitlines()

    assert lines[0] == "search_content: Error: input: write 1 to 10 texts that are not empty."
    assert lines[1].startswith("query_by_pattern: {'triples': ")
    assert [line for line in lines if "schema:PersonShape" in line]
    assert f"get_subjects: {ADA}\thttps://schema.org/Person" in lines
    assert lines[-1] == f"recall: {NOTHING}"


async def test_an_agent_that_takes_over_acts_by_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "policy.yml"
    path.write_text("rules: [{allow: read, agents: helper, resources: 'hr.Record.*'}]")
    knowledge = await build(load_policy(path), [*COMMON, *SECRETS])
    [search, *_] = knowledge.functions()

    async def helper(run: RunInput) -> str:
        """Helps."""
        return str(await search(input=["zebra 4711"]))

    model = ScriptedAdapter(call("helper", {}, id="c1"))
    runtime = CopilotRuntime(
        model,
        agents={"helper": helper, "other": helper},
        knowledge=knowledge,
        settings=Settings(threads="memory", hand_over="always"),
    )
    async with serving(runtime.app(path=PATH)) as port:
        browser = Browser(port)
        taken_over = text_of((await browser.run()).events())
        other = text_of((await browser.run(agent="other", thread="t2")).events())

    assert SECRET in taken_over
    assert other == NOTHING


async def test_sources_of_an_answer_open_for_who_asked_and_are_those_that_one_may_read(
    policy: Any,
) -> None:
    async def look(
        resources: list[Any], who: str, question: str
    ) -> tuple[list[dict[str, Any]], str]:
        """Return the sources of an answer, and the answer to a client of v1."""
        runtime = CopilotRuntime(
            DemoAdapter(pace=0),
            knowledge=await build(policy, resources),
            authenticate=sign_in,
            settings=Settings(threads="memory"),
        )
        async with serving(runtime.app(path=PATH)) as port:
            person = Browser(port, PATH, {"x-user": who})
            events = (await person.run(messages=[user(question)])).events()
            [found] = [it["content"] for it in events if it["type"] == "ACTIVITY_SNAPSHOT"]
            body = chat(user_v1(question), query=PLAIN)
            by_v1 = (await person.ask("POST", "", body)).json()["data"]["generateCopilotResponse"]
            for source in found["sources"]:
                assert source["url"].startswith(f"{PATH}/knowledge/resources/")
                path = source["url"].removeprefix(PATH).partition("#")[0]
                opened = await person.ask("GET", path)
                assert opened.status == 200
                stranger = Browser(port, PATH, {"x-user": "ann"})
                refused = await stranger.ask("GET", path)
                unknown = await stranger.ask("GET", f"{path[:-16]}{0:016}")
                if source["id"] == SECRET:
                    assert (refused.status, refused.body) == (404, unknown.body)
                else:
                    assert refused.status == 200
        texts = ["".join(message.get("content", ())) for message in by_v1["messages"]]
        return found["sources"], "".join(texts)

    everything, secret_answer = await look(
        [*COMMON, *SECRETS[:1]], "eve", "Who is Ada with the 4711 zebra?"
    )
    question = "When does the library of the zebra open at nine?"
    ann, without = [await look(it, "ann", question) for it in ([*COMMON, *SECRETS], COMMON)]

    assert SECRET in [source["id"] for source in everything]
    assert f"{PATH}/knowledge/resources/{shorten_uri(SECRET)}#here" in secret_answer
    assert ann == without
    assert f"({PATH}/knowledge/resources/" in ann[1]  # a link in Markdown
