"""A runtime with remote endpoints: what is down costs only those who need it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from copilot_runtime import Caller, CopilotRuntime, Events, RunInput, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from tests.adapters.provider import HANG, RESET, Provider, serving, whole
from tests.extensions.frameworks.remote.endpoint import (
    BROKEN,
    GONE,
    INFO,
    OFFERED,
    REFUSED,
    endpoint_of,
    lines,
    text,
)
from tests.in_one_test import in_one_test
from tests.wire.client import AGENTS, PLAIN, STATE, Client, chat, client_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

NOBODY = "http://127.0.0.1:9/copilotkit"
MESSAGE = "The agent 'crew' is not there. It may be at a remote endpoint that is down."


class Own:
    """An agent of the application."""

    description = "Ours."

    async def run(self, run: RunInput) -> Events:
        for event in say("Ours.", id=f"own-{run.run_id}"):
            yield event


def runtime_of(*endpoints: RemoteEndpoint | str, **options: Any) -> CopilotRuntime:
    options = {"adapter": ScriptedAdapter(say("Hello")), **options}
    settings = Settings(threads="memory")
    return CopilotRuntime(remote_endpoints=endpoints, settings=settings, **options)


@asynccontextmanager
async def asking(*endpoints: RemoteEndpoint | str, **options: Any) -> AsyncGenerator[Client, None]:
    async with client_of(runtime_of(*endpoints, **options)) as client:
        yield client


async def said(client: Client, agent: str | None = None, **more: Any) -> Any:
    """Return the answer to a chat turn, or the error instead."""
    session = {"agentSession": {"agentName": agent}} if agent else {}
    body = chat(user("Hi"), query=PLAIN, **session)
    body["variables"] |= more
    answer = (await client.ask(body)).json()
    if "errors" in answer:
        return answer["errors"][0]
    return answer["data"]["generateCopilotResponse"]


async def listed(client: Client) -> Any:
    body = {"operationName": "availableAgents", "query": AGENTS, "variables": {}}
    answer = (await client.ask(body)).json()
    if answer.get("errors"):
        return answer["errors"][0]["extensions"]["code"]
    return [agent["name"] for agent in answer["data"]["availableAgents"]["agents"]]


def contents(response: Any) -> list[str]:
    return ["".join(message.get("content", ())) for message in response["messages"]]


@in_one_test("script", [GONE, BROKEN, [HANG], [whole(b"no")]])
async def test_an_endpoint_that_is_down_costs_no_chat_that_does_not_need_it(
    server: Provider, script: Any
) -> None:
    server.answer(script)

    async with asking(endpoint_of(server, discovery_timeout=0.1), NOBODY) as client:
        assert contents(await said(client)) == ["Hello"]


async def test_an_endpoint_that_is_down_costs_no_agent_of_others(server: Provider) -> None:
    server.answer(OFFERED, lines(*text("m", "Theirs.")))

    async with asking(NOBODY, endpoint_of(server), agents={"own": Own()}) as client:
        assert contents(await said(client, "own")) == ["Ours."]
        assert contents(await said(client, "crew")) == ["Theirs."]


async def test_who_names_an_agent_hears_that_an_endpoint_is_down(server: Provider) -> None:
    server.answer(BROKEN)

    async with asking(endpoint_of(server)) as client:
        error = await said(client, "crew")

    assert (error["message"], error["extensions"]["code"]) == (MESSAGE, "NETWORK_ERROR")


async def test_who_names_an_agent_that_was_there_hears_that_its_endpoint_is_down() -> None:
    async with serving() as server:
        server.answer(OFFERED)
        endpoint = endpoint_of(server, ttl=0)
        runtime = runtime_of(endpoint)
        async with client_of(runtime) as client:
            assert await listed(client) == ["research", "crew"]
            server.answer([RESET])
            assert await listed(client) == ["research", "crew"]
            failed = await said(client, "crew")

    assert failed["status"]["details"]["description"].startswith(
        "The agent 'crew' did not answer: its remote endpoint is down."
    )


async def test_who_is_refused_by_an_endpoint_hears_that(server: Provider) -> None:
    server.answer(REFUSED)

    async with asking(endpoint_of(server)) as client:
        error = await said(client, "crew")

    assert error["extensions"]["code"] == "AUTHENTICATION_ERROR"


async def test_an_agent_is_not_found_where_all_endpoints_answer(server: Provider) -> None:
    async with asking(endpoint_of(server)) as client:
        error = await said(client, "nobody")

    assert error["extensions"]["code"] == "AGENT_NOT_FOUND"
    assert "Available agents are: research, crew." in error["message"]


@in_one_test(("script", "code"), [(GONE, "API_NOT_FOUND"), (BROKEN, "UNKNOWN")])
async def test_a_list_is_an_error_only_if_nothing_is_known(
    server: Provider, script: Any, code: str
) -> None:
    server.answer(script)

    async with asking(endpoint_of(server)) as client:
        assert await listed(client) == code
    async with asking(endpoint_of(server), agents={"own": Own()}) as client:
        assert await listed(client) == ["own"]


async def test_the_operators_agent_of_a_name_counts_more(server: Provider) -> None:
    def own(caller: Caller) -> dict[str, Own]:
        del caller
        return {"crew": Own()}

    async with asking(endpoint_of(server), agents=own) as client:
        assert contents(await said(client, "crew")) == ["Ours."]
        assert await listed(client) == ["crew", "research"]


async def test_an_endpoint_given_twice_is_asked_once(server: Provider) -> None:
    url = f"{server.url}/copilotkit"

    async with asking(url, f"{url}/", RemoteEndpoint(url)) as client:
        await listed(client)

    assert len(server.requests) == 1


async def test_a_chat_asks_once_what_there_is_for_actions_and_agents(server: Provider) -> None:
    server.answer(OFFERED, [whole({"result": 3})])
    adapter = ScriptedAdapter(call("add", '{"a": 1, "b": 2}'))

    async with asking(endpoint_of(server), adapter=adapter) as client:
        response = await said(client, properties={"team": "blue"})

    assert response["messages"][1]["result"] == "3"
    assert [request.line.split()[1] for request in server.requests] == [
        "/copilotkit/info",
        "/copilotkit/actions/execute",
    ]
    assert server.requests[0].body["properties"] == {"team": "blue"}
    names = {action.name for action in adapter.requests[0].actions}
    assert names == {"add", "research", "crew"}


async def test_properties_of_the_operator_are_told_with_every_question(server: Provider) -> None:
    known = {"threadExists": True, "state": {"n": 1}, "messages": []}
    server.answer(OFFERED, [whole(known)])
    variables = {"data": {"threadId": "t", "agentName": "crew"}}
    body = {"operationName": "loadAgentState", "query": STATE, "variables": variables}

    async with asking(endpoint_of(server), properties={"tenant": "a"}) as client:
        answer = (await client.ask(body)).json()

    assert answer["data"]["loadAgentState"]["state"] == '{"n":1}'
    assert [request.body["properties"] for request in server.requests] == [{"tenant": "a"}] * 2


@pytest.mark.parametrize(
    "word", ["remoteEndpoints", "remote_endpoints", "remoteActions", "endpoints"]
)
async def test_a_page_cannot_name_an_endpoint(server: Provider, word: str) -> None:
    async with serving() as stranger:
        stranger.answer(OFFERED)
        there = {"url": f"{stranger.url}/copilotkit", "endpoint": f"{stranger.url}/copilotkit"}
        async with asking(endpoint_of(server)) as client:
            response = await said(client, properties={word: [there], "url": there["url"]})
            error = await said(client, "stranger", properties={word: [there]})

        assert contents(response) == ["Hello"]
        assert error["extensions"]["code"] == "AGENT_NOT_FOUND"
        assert stranger.connections == 0


async def test_a_new_client_talks_to_a_remote_agent_too(server: Provider) -> None:
    server.answer(OFFERED, lines(*text("m", "Theirs.")))

    async with browsing(remote_endpoints=[endpoint_of(server)]) as browser:
        events = (await browser.run(agent="crew")).events()

    assert [event["type"] for event in events] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]


async def test_a_new_client_has_its_chat_while_an_endpoint_is_down() -> None:
    async with browsing(remote_endpoints=[NOBODY]) as browser:
        events = (await browser.run()).events()

    assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_new_client_hears_that_an_endpoint_is_down() -> None:
    async with browsing(remote_endpoints=[NOBODY]) as browser:
        answer = await browser.run(agent="crew")

    assert MESSAGE in answer.body.decode()


async def test_an_agent_that_cannot_be_run_is_not_listed_and_says_what_to_do(
    server: Provider,
) -> None:
    agents = [*INFO["agents"], {"name": "graph", "type": "langgraph_agui"}]
    server.answer([whole({**INFO, "agents": agents})])

    async with asking(endpoint_of(server)) as client:
        assert await listed(client) == ["research", "crew"]
        error = await said(client, "graph")

    assert error["message"] == (
        "The agent 'graph' cannot be run through its remote endpoint. "
        "It has to be registered by the address where it speaks AG-UI."
    )
