"""What a child of the worker answers to the query of a connection."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pyoxigraph import RdfFormat, Store

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.graph import GraphIndex, SparqlLimits, worker
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.policies import build_actor
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.storage import MemoryStorage
from tests.extensions.knowledge.graph.scenes import Evaluations, build
from tests.extensions.knowledge.library import WordCounter
from tests.in_one_test import in_one_test

DATA = '<urn:a> <urn:p> "one" . <urn:b> <urn:p> <<( <urn:x> <urn:y> "z" )>> .'


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Return the limits that were set: this process shall have none."""
    calls: list[tuple[float, int]] = []
    monkeypatch.setattr(worker, "limit", lambda *limits: calls.append(limits))  # pyright: ignore
    return calls


def ask(query: str, **limits: int) -> list[Any]:
    store = Store()
    store.load(DATA, format=RdfFormat.TURTLE)
    request: Mapping[str, Any] = {
        "query": query,
        "prefixes": {"x": "urn:"},
        "seconds": 1,
        "memory": 5,
        "rows": 10,
        "bytes": 1000,
        **limits,
    }
    ours, theirs = socket.socketpair()
    with ours, theirs:
        body = json.dumps(request).encode()
        ours.sendall(struct.pack("!I", len(body)) + body)
        worker.answer(store, theirs)
        theirs.shutdown(socket.SHUT_WR)
        with ours.makefile("rb") as lines:
            return [json.loads(line) for line in lines][1:]


def test_solutions_are_lines_with_an_end(limits: list[tuple[float, int]]) -> None:
    lines = ask("SELECT ?s ?o { ?s x:p ?o } ORDER BY ?s")

    assert lines == [
        {"variables": ["s", "o"]},
        ["<urn:a>", '"one"'],
        ["<urn:b>", '<<( <urn:x> <urn:y> "z" )>>'],
        {"cut": ""},
    ]
    assert limits == [(1, 5)]


@pytest.mark.usefixtures("limits")
def test_every_kind_of_query_ends_with_what_became_of_it() -> None:
    assert ask("ASK { x:a ?p ?o }") == [{"boolean": True, "cut": ""}]
    assert ask("DESCRIBE x:a") == [["<urn:a>", "<urn:p>", '"one"'], {"cut": ""}]
    assert ask("SELECT ?x { OPTIONAL { x:c x:p ?x } }") == [
        {"variables": ["x"]},
        [None],
        {"cut": ""},
    ]
    assert ask("SELECT ?s { ?s ?p ?o }", rows=1)[-1] == {"cut": "rows"}
    assert ask("SELECT ?s { ?s ?p ?o }", bytes=8)[-1] == {"cut": "bytes"}
    assert list(ask("SELECT")[0]) == ["syntax"]


@pytest.mark.usefixtures("limits")
@in_one_test(("error", "lines"), [(OSError("no"), [{"failure": "no"}]), (MemoryError(), [])])
def test_what_fails_is_told_and_what_lacks_memory_says_nothing(
    error: BaseException, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> str:
        raise error

    monkeypatch.setattr(worker, "write_rows", fail)
    assert ask("CONSTRUCT { ?s ?p ?o } { ?s ?p ?o }") == lines


pytestmark = pytest.mark.anyio

BOMB = "?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n ?o . ?p ?q ?r . ?s ?t ?u . ?v ?w ?x"
SLOW = f"ASK {{ {BOMB} FILTER(STRLEN(STR(?a)) + STRLEN(STR(?x)) > 1000) }}"
QUICK = "ASK {}"

Tasks = list[asyncio.Task[Any]]


@asynccontextmanager
async def ending(tasks: Tasks) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def knowledge() -> AsyncIterator[Knowledge]:
    knowledge = Knowledge(MemoryStorage(), embedder=WordCounter())
    lines = [f'<a:s{n}> <a:p> "text {n}" .' for n in range(300)]
    await knowledge.resources.put(
        Resource(Identifier("common.Message", "m"), "\n".join(lines), "nquads")
    )
    await knowledge.update()
    yield knowledge
    await knowledge.aclose()


@pytest.fixture
async def graph() -> AsyncIterator[GraphIndex]:
    graph = await build({f"m{n}": f'ex:s{n} ex:p "text {n}" .' for n in range(300)})
    await graph.sparql(QUICK)
    yield graph
    await graph.aclose()


def flood(knowledge: Knowledge, name: str | None, count: int) -> Tasks:
    """Ask slow queries, each from another thread of somebody."""
    return [
        asyncio.create_task(knowledge.sparql(SLOW, actor=build_actor(name, f"t{n}")))
        for n in range(count)
    ]


@in_one_test("name", ["mallory", None])
async def test_many_heavy_queries_of_one_let_others_be_answered_at_once(
    knowledge: Knowledge, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await knowledge.sparql(QUICK, actor=build_actor("bob"))
    evaluations = Evaluations(monkeypatch)
    slow = flood(knowledge, name, 10)
    async with ending(slow):
        await evaluations.wait_for(2)

        answers = [await knowledge.sparql(QUICK, actor=build_actor("bob")) for _ in range(3)]

        assert all(answer.boolean for answer in answers)
        assert not any(task.done() for task in slow)


async def test_who_asks_too_much_is_told_so_and_may_ask_again_later(knowledge: Knowledge) -> None:
    slow = flood(knowledge, "mallory", 30)
    async with ending(slow):
        await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
        refused = [task.exception() for task in slow if task.done()]

    assert len(refused) == 30 - 2 - 20
    for error in refused:
        assert isinstance(error, LimitExceeded)
        assert "20 of your queries wait for others of yours" in error.message
        assert error.hint == "Ask 2 at a time."
    assert (await knowledge.sparql(QUICK, actor=build_actor("mallory"))).boolean


async def test_a_query_does_not_wait_for_ever_behind_others(graph: GraphIndex) -> None:
    limits = SparqlLimits(seconds=60)
    slow = [asyncio.create_task(graph.sparql(SLOW, limits=limits, asker="m")) for _ in range(2)]
    async with ending(slow):
        await asyncio.sleep(0)
        with pytest.raises(LimitExceeded, match=r"waited 0\.05 seconds for others of yours"):
            await graph.sparql(QUICK, limits=SparqlLimits(seconds=0.05), asker="m")
        assert (await graph.sparql(QUICK, asker="other")).boolean


async def test_what_waits_is_answered_in_its_turn(graph: GraphIndex) -> None:
    answers = await asyncio.gather(*(graph.sparql(QUICK, asker="ann") for _ in range(22)))

    assert [answer.boolean for answer in answers] == [True] * 22
