"""What users want remembered, as pages, models and other users meet it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from copilot_runtime import DemoAdapter, ScriptedAdapter
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from tests.conformance.v2.node import HERE, install
from tests.extensions.knowledge.library import library
from tests.in_one_test import in_one_test
from tests.processes import running
from tests.wire_agui.http import Browser, text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

POLICY = """
default: allow
rules:
  - {deny: [write, delete], resources: memory.Memory.*, except: {users: ann}}
"""


def sign_in(connection: HTTPConnection) -> str | None:
    return connection.headers.get("authorization", "").removeprefix("Bearer ") or None


@asynccontextmanager
async def remembering(
    knowledge: Knowledge, adapter: Any = None
) -> AsyncGenerator[tuple[Browser, Browser, Browser]]:
    """Yield the browsers of ann, of bob, and of somebody who has not signed in."""
    adapter = adapter or DemoAdapter(pace=0)
    async with browsing(adapter, knowledge=knowledge, authenticate=sign_in) as nobody:
        yield nobody.signed_in("ann"), nobody.signed_in("bob"), nobody


async def read(browser: Browser) -> list[str]:
    answer = await browser.ask("GET", "/memories")
    return [memory["content"] for memory in answer.json()["memories"]]


async def test_a_memory_is_seen_found_changed_and_deleted_by_its_user_alone(pages: Path) -> None:
    async with remembering(library(pages)) as (ann, bob, nobody):
        first = {"content": "Ann likes teal boats", "kind": "topical"}
        added = (await ann.ask("POST", "/memories", first)).json()
        path = f"/memories/{added['id']}"
        second = {**first, "content": "Ann likes orange boats", "sourceThreadIds": ["t"]}
        for other, status in ((bob, 404), (nobody, 422)):
            assert (await other.ask("PATCH", path, second)).status == status
            assert (await other.ask("DELETE", path)).status == status

        changed = (await ann.ask("PATCH", path, second)).json()
        query = {"query": "Which boats?", "limit": 5, "scope": "user"}
        recalled = (await ann.ask("POST", "/memories/recall", query)).json()["memories"]
        lists = [await read(ann), await read(bob)]
        gone = await ann.ask("DELETE", f"/memories/{changed['id']}")

        assert (added["scope"], added["invalidatedAt"]) == ("user", None)
        assert changed["retiredId"] == added["id"]
        assert [(it["content"], it["sourceThreadIds"]) for it in recalled] == [
            ("Ann likes orange boats", ["t"])
        ]
        assert lists == [["Ann likes orange boats"], []]
        assert (gone.status, await read(ann)) == (204, [])


async def test_a_question_is_answered_from_the_memories_of_who_asks(pages: Path) -> None:
    async with remembering(library(pages)) as (ann, bob, _):
        await ann.ask("POST", "/memories", {"content": "The password of my bike is swan"})
        question = [user("What is the password of my bike?")]
        hers = await ann.run(messages=question)
        his = await bob.run(messages=question)

    assert "swan" in text_of(hers.events())
    assert "swan" not in text_of(his.events())


async def test_memories_of_all_are_written_by_whom_the_policy_lets(
    pages: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yml"
    policy.write_text(POLICY)
    memory = {"content": "We write British English", "kind": "operational", "scope": "project"}
    async with remembering(library(pages, policy=policy)) as (ann, bob, _):
        refused = await bob.ask("POST", "/memories", memory)
        added = (await ann.ask("POST", "/memories", memory)).json()
        seen = await read(bob)
        kept = await bob.ask("DELETE", f"/memories/{added['id']}")
        own = {**memory, "scope": "user"}
        changed = await bob.ask("PATCH", f"/memories/{added['id']}", own)

        assert (refused.status, kept.status, changed.status) == (403, 403, 403)
        assert seen == await read(bob) == ["We write British English"]


async def test_a_model_remembers_what_a_person_tells_it_if_settings_let_it(pages: Path) -> None:
    knowledge = library(pages, settings=KnowledgeSettings(tools=("search_content", "remember")))
    turns = [call("remember", {"content": "Ann is a vegetarian"}), say("Noted")]
    async with remembering(knowledge, ScriptedAdapter(*turns)) as (ann, _, _):
        await ann.run(messages=[user("I eat no meat")])
        memories = (await ann.ask("GET", "/memories")).json()["memories"]

    assert [(it["content"], it["sourceThreadIds"]) for it in memories] == [
        ("Ann is a vegetarian", ["t"])
    ]


@in_one_test(
    ("body", "status"),
    [
        (None, 400),
        ({"content": " "}, 400),
        ({"content": 1}, 400),
        ({"content": "x" * 2001}, 413),
        ({"content": "x", "kind": "secret"}, 400),
        ({"content": "x", "scope": "all"}, 400),
        ({"content": "x", "sourceThreadIds": [1]}, 400),
        ({"content": "x", "sourceThreadIds": ["t" * 2000]}, 413),
    ],
)
async def test_what_is_no_memory_is_refused(pages: Path, body: Any, status: int) -> None:
    async with remembering(library(pages)) as (ann, _, _):
        assert (await ann.ask("POST", "/memories", body)).status == status
        assert await read(ann) == []


async def test_without_knowledge_the_client_is_told_that_there_are_no_memories() -> None:
    async with browsing(authenticate=sign_in) as browser:
        assert (await browser.signed_in("ann").ask("GET", "/memories")).status == 422


async def test_the_hooks_of_react_read_and_change_memories_over_both_transports(
    pages: Path,
) -> None:
    await asyncio.to_thread(install)
    async with remembering(library(pages)) as (_, _, nobody):
        url = f"http://127.0.0.1:{nobody.where}{nobody.base}"
        with running(["node", "memories.mjs", url, "ann"], cwd=HERE) as program:
            printed = await asyncio.to_thread(program.output.text)

    assert printed.splitlines() == 2 * ["teal boats", "orange boats", "orange boats: episodic", ""]
