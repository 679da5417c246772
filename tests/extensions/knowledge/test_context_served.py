"""Context windows over HTTP and in GraphQL."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.base.errors import IncompleteStream, NetworkError
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies import build_actor
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.testing import say
from tests.extensions.knowledge.memory.test_context import words
from tests.extensions.knowledge.test_served import sign_in
from tests.in_one_test import in_one_test

ANN = "common.User.ann/common.Conversation.t1"
NOBODY = "common.Conversation.t1"
OPTIMIZE = (
    "mutation($id: String!, $budget: Int) "
    "{ optimizeContextWindow(id: $id, budget: $budget) { successful optimized } }"
)
WINDOW = (
    "query($id: String!) { contextWindow(id: $id) { id tokens resources { id type role content "
    "tokens } } }"
)


@contextmanager
def serve(
    adapter: ScriptedAdapter, chat: str = ANN, *, has_users: bool = True
) -> Generator[tuple[TestClient, Knowledge]]:
    """Serve eight messages of a conversation."""
    knowledge = Knowledge("memory")
    runtime = CopilotRuntime(
        adapter,
        knowledge=knowledge,
        authenticate=sign_in if has_users else None,
        settings=Settings(threads="memory"),
    )
    resources = [
        Resource(Identifier("common.Message", f"m{number}", chat), f"{number} {words(100)}")
        for number in range(8)
    ]
    with TestClient(runtime.app()) as client:
        assert client.portal
        client.portal.call(knowledge.resources.put_many, resources)
        client.portal.call(knowledge.memory.append, chat, *(it.id for it in resources))
        yield client, knowledge


def ask(client: TestClient, query: str, user: str, **variables: Any) -> Any:
    body = {"query": query, "variables": variables}
    return client.post("/graphql", json=body, headers={"x-user": user}).json()


def test_a_window_is_optimised_by_the_model_over_http() -> None:
    adapter = ScriptedAdapter(say(["<think>hm</think>They talked ", "about ships."]))
    headers = {"x-user": "ann"}
    with serve(adapter) as (client, _):
        before = client.get(f"/graphql/knowledge/context/{ANN}", headers=headers).json()
        url = f"/graphql/knowledge/context/cld:{ANN}"
        results = [client.post(url, json={"budget": 500}, headers=headers).json() for _ in range(2)]
        after = client.get(url, headers=headers).json()

    assert results == [
        {"successful": True, "optimized": True},
        {"successful": True, "optimized": False},
    ]
    assert (before["id"], len(before["resources"])) == (ANN, 8)
    assert after["tokens"] <= 500
    assert after["resources"][0]["content"] == "They talked about ships."
    assert after["resources"][0]["role"] == "system"
    request = adapter.requests[0].messages
    assert "at most 125 tokens" in request[0].content  # pyright: ignore[reportAttributeAccessIssue]
    assert "0 word" in request[1].content  # pyright: ignore[reportAttributeAccessIssue]


def test_a_window_is_optimised_in_graphql() -> None:
    with serve(ScriptedAdapter(say("Ships."))) as (client, _):
        result = ask(client, OPTIMIZE, "ann", id=ANN, budget=500)
        again = ask(client, OPTIMIZE, "ann", id=ANN, budget=500)
        window = ask(client, WINDOW, "ann", id=ANN)["data"]["contextWindow"]
        by_setting = ask(client, OPTIMIZE, "ann", id=ANN)

    assert result["data"]["optimizeContextWindow"] == {"successful": True, "optimized": True}
    assert again["data"]["optimizeContextWindow"] == {"successful": True, "optimized": False}
    assert by_setting == again
    assert window["resources"][0]["type"] == "context.Summary"
    assert window["tokens"] == sum(it["tokens"] for it in window["resources"])


@in_one_test("turn", [NetworkError("no model"), say(""), say("<think>never ends")])
def test_where_the_model_fails_the_window_fits_all_the_same(turn: Any) -> None:
    with serve(ScriptedAdapter(turn)) as (client, _):
        result = ask(client, OPTIMIZE, "ann", id=ANN, budget=500)
        window = ask(client, WINDOW, "ann", id=ANN)["data"]["contextWindow"]
    assert result["data"]["optimizeContextWindow"] == {"successful": True, "optimized": True}
    assert "left out here" in window["resources"][0]["content"]


def test_a_summary_that_never_ends_is_given_up() -> None:
    with serve(ScriptedAdapter(say("x" * 100_000))) as (client, knowledge):
        assert client.portal and knowledge.summarize
        with pytest.raises(IncompleteStream, match="too long"):
            client.portal.call(knowledge.summarize, "text", 10)


def test_others_see_and_change_nothing() -> None:
    with serve(ScriptedAdapter()) as (client, _):
        url, headers = f"/graphql/knowledge/context/{ANN}", {"x-user": "bob"}
        answers = [client.get(url, headers=headers), client.post(url, headers=headers)]
        graph = [ask(client, query, "bob", id=ANN) for query in (WINDOW, OPTIMIZE)]
    assert [it.status_code for it in answers] == [404, 404]
    assert {it["errors"][0]["extensions"]["code"] for it in graph} == {"NOT_FOUND"}


def test_a_conversation_of_nobody_belongs_to_who_knows_it() -> None:
    with serve(ScriptedAdapter(say("Ships.")), NOBODY, has_users=False) as (client, _):
        url = f"/graphql/knowledge/context/{NOBODY}"
        assert client.post(url, json={"budget": 500}).json()["optimized"]
        assert len(client.get(url).json()["resources"]) < 8
        assert ask(client, WINDOW, "", id=NOBODY)["data"]["contextWindow"]["tokens"] <= 500


@in_one_test(
    ("body", "status"),
    [
        ("{", 400),
        ("[]", 400),
        ('{"budget": "x"}', 400),
        ('{"budget": true}', 400),
        ('{"budget": 0}', 400),
        ("", 200),
        ("{}", 200),
        ('{"budget": null}', 200),
    ],
)
def test_a_budget_is_a_number(body: str, status: int) -> None:
    with serve(ScriptedAdapter()) as (client, _):
        url = f"/graphql/knowledge/context/{ANN}"
        answer = client.post(url, content=body, headers={"x-user": "ann"})
    assert answer.status_code == status


def test_what_is_not_there_is_not_found() -> None:
    with serve(ScriptedAdapter()) as (client, _):
        headers = {"x-user": "ann"}
        for path in ("common.User.ann/common.Conversation.t2", ""):
            answer = client.get(f"/graphql/knowledge/context/{path}", headers=headers)
            assert answer.status_code == 404


@pytest.mark.anyio
async def test_a_program_optimises_without_a_server() -> None:
    knowledge = Knowledge("memory")
    first, second = (
        Resource(Identifier("common.Message", name, ANN), words(100)) for name in ("a", "b")
    )
    await knowledge.resources.put_many([first, second])
    window = await knowledge.get_window(ANN, actor=build_actor("ann"))
    result = await knowledge.optimize_window(window, 150, actor=build_actor("ann"))
    assert (result.successful, result.optimized) == (True, True)
    await knowledge.aclose()
