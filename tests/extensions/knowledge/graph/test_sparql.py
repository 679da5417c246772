"""Queries that read, and cannot do anything else."""

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyoxigraph import Literal, NamedNode

from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    Misuse,
    Refused,
)
from copilot_runtime.extensions.knowledge.graph import GraphIndex, SparqlLimits
from copilot_runtime.extensions.knowledge.graph.evaluator import Evaluation, SparqlEvaluator
from copilot_runtime.extensions.knowledge.graph.sparql import check_query
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.storage import MemoryStorage
from tests.extensions.knowledge.graph.scenes import PEOPLE, Evaluations, Only, build, fill
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

EX = "https://example.invalid/"
BOMB = "?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n ?o . ?p ?q ?r . ?s ?t ?u . ?v ?w ?x"
SLOW = f"ASK {{ {BOMB} FILTER(STRLEN(STR(?a)) + STRLEN(STR(?x)) > 1000) }}"
DOUBLING = " ".join(f"BIND(CONCAT(?a{n}, ?a{n}) AS ?a{n + 1})" for n in range(40))


@pytest.fixture(params=["memory", "disk"])
async def graph(request: pytest.FixtureRequest) -> AsyncIterator[GraphIndex]:
    graph = await build(PEOPLE, sparql_store=request.param)
    yield graph
    await graph.aclose()


@pytest.fixture(params=["memory", "disk"])
async def large(request: pytest.FixtureRequest) -> AsyncIterator[GraphIndex]:
    texts = {f"m{n}": f'ex:s{n} a ex:T ; ex:p "text {n}" .' for n in range(300)}
    graph = await build(texts, sparql_store=request.param)
    yield graph
    await graph.aclose()


async def test_select_returns_solutions(graph: GraphIndex) -> None:
    result = await graph.sparql(
        "SELECT ?who ?age { ?who schema:name [] OPTIONAL { ?who schema:age ?age } } ORDER BY ?who"
    )

    assert result.kind == "select"
    assert result.variables == ("who", "age")
    assert result.rows == (
        {"who": NamedNode(f"{EX}alice")},
        {"who": NamedNode(f"{EX}bob"), "age": Literal(42)},
    )
    assert result.cut == ""


async def test_ask_answers_yes_or_no(graph: GraphIndex) -> None:
    assert (await graph.sparql("ASK { ex:alice schema:knows ex:bob }")).boolean is True
    assert (await graph.sparql("# SELECT\nASK { ex:bob schema:knows ?x }")).boolean is False


async def test_construct_and_describe_return_triples(graph: GraphIndex) -> None:
    made = await graph.sparql("CONSTRUCT { ?b ex:knownTo ?a } WHERE { ?a schema:knows ?b }")
    described = await graph.sparql("DESCRIBE ex:bob")

    assert [str(triple) for triple in made.triples] == [f"<{EX}bob> <{EX}knownTo> <{EX}alice>"]
    assert len(described.triples) == 3


async def test_statements_about_statements_are_terms_of_an_answer(graph: GraphIndex) -> None:
    result = await graph.sparql('SELECT (<<( ex:a ex:b "c d" )>> AS ?x) {}')
    assert str(result.rows[0]["x"]) == f'<{EX}a> <{EX}b> "c d"'


@in_one_test(
    "query",
    [
        "INSERT DATA { ex:a ex:b ex:c }",
        "DELETE WHERE { ?s ?p ?o }",
        "PREFIX a: <urn:a> # ASK\nDELETE WHERE { ?s ?p ?o }",
        "LOAD <file:///etc/passwd>",
        "CLEAR ALL",
        "DROP GRAPH <urn:g>",
        "COPY DEFAULT TO <urn:g>",
        "WITH <urn:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
        "SELECT * { ?s ?p ?o } ; INSERT DATA { ex:a ex:b ex:c }",
    ],
)
async def test_an_update_is_refused(graph: GraphIndex, query: str) -> None:
    with pytest.raises(Refused, match="would change data, which no query may"):
        await graph.sparql(query)
    assert await graph.count() == 7


@in_one_test(
    ("query", "reason"),
    [
        ("SELECT * { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }", "SERVICE"),
        ("SELECT * { service silent ?x { ?s ?p ?o } }", "SERVICE"),
        ("SELECT * FROM <file:///etc/passwd> { ?s ?p ?o }", "FROM"),
        ("SELECT * FROM NAMED <http://127.0.0.1/x> { ?s ?p ?o }", "FROM"),
        ("ASK { GRAPH ?g { ?s ?p ?o } }", "GRAPH"),
        ("SELECT * { FILTER(?a<?b) SERVICE<urn:x>{} FILTER(?c>?d) }", "SERVICE"),
        ("SELECT * { ?s ?p 'it''s' . SERVICE <urn:x> {} }", "SERVICE"),
        ('SELECT * { ?s ?p """a"b""" . SERVICE <urn:x> {} }', "SERVICE"),
        ("SELECT * { ?s ?p '''a'b''' # '\n SERVICE <urn:x> {} }", "SERVICE"),
    ],
)
async def test_a_query_that_looks_elsewhere_is_refused(
    graph: GraphIndex, query: str, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        await graph.sparql(query)


@in_one_test(
    "query",
    [
        'SELECT * { ?s schema:name "SERVICE <http://x> INSERT DATA" }',
        "SELECT * { ?s schema:name 'it\\'s FROM here' }",
        'SELECT ?from ?service { ?from schema:service ?service ; ex:insert "" }',
        "SELECT * { ?s <https://example.invalid/SERVICE/FROM> ?o } # DROP ALL",
        'SELECT * { ?s ex:graph """LOAD "" <x> \\""" CLEAR""" }',
        "ask { ?s ?p ?o filter(?s < ?o && ?o > ?s) }",
    ],
)
async def test_words_in_texts_names_and_comments_are_no_keywords(
    graph: GraphIndex, query: str
) -> None:
    assert (await graph.sparql(query)).cut == ""


@in_one_test("query", ["", "# SELECT", "FETCH * { ?s ?p ?o }", "{ ?s ?p ?o }"])
async def test_what_is_no_query_is_refused(graph: GraphIndex, query: str) -> None:
    with pytest.raises(Misuse, match="A query begins with SELECT, ASK, CONSTRUCT or DESCRIBE"):
        await graph.sparql(query)


async def test_bad_syntax_is_told_with_its_place(graph: GraphIndex) -> None:
    with pytest.raises(Misuse, match=r"^This is no SPARQL: error at 1:\d+\.$"):
        await graph.sparql("SELECT * { ?s ?p")


def test_a_query_that_is_too_long_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="A query has at most 10 characters, not 19"):
        check_query("SELECT * {?s ?p ?o}", SparqlLimits(length=10))


async def test_rows_and_bytes_are_limited(large: GraphIndex) -> None:
    rows = await large.sparql("SELECT * { ?s ?p ?o }", limits=SparqlLimits(rows=7))
    size = await large.sparql("SELECT * { ?s ?p ?o }", limits=SparqlLimits(bytes=1000))
    triples = await large.sparql("CONSTRUCT { ?s ?p ?o } { ?s ?p ?o }", limits=SparqlLimits(rows=5))
    exact = await large.sparql("SELECT * { ?s ?p ?o } LIMIT 7", limits=SparqlLimits(rows=7))

    assert (len(rows.rows), rows.cut) == (7, "rows")
    assert (0 < len(size.rows) < 30, size.cut) == (True, "bytes")
    assert (len(triples.triples), triples.cut) == (5, "rows")
    assert (len(exact.rows), exact.cut) == (7, "")


@in_one_test(
    "query",
    [
        f"SELECT (COUNT(*) AS ?n) {{ {BOMB} }}",
        SLOW,
        f"SELECT (GROUP_CONCAT(?c) AS ?all) {{ {BOMB} }}",
        f"SELECT * {{ {BOMB} }} ORDER BY ?a OFFSET 100000000",
    ],
)
async def test_a_query_that_runs_long_is_stopped(large: GraphIndex, query: str) -> None:
    await large.sparql("ASK {}")
    started = time.monotonic()

    with pytest.raises(LimitExceeded, match=r"was stopped after 0\.3 seconds|more memory"):
        await large.sparql(query, limits=SparqlLimits(seconds=0.3))

    assert time.monotonic() - started < 5
    assert (await large.sparql("ASK { ?s a ex:T }")).boolean


@in_one_test(
    "query",
    [
        f'SELECT ?a40 {{ BIND("{"a" * 100}" AS ?a0) {DOUBLING} }}',
        f"SELECT * {{ {BOMB} }} ORDER BY ?a ?d ?g",
        f"ASK {{ {'{' * 4000}{'}' * 4000} }}",
    ],
)
async def test_a_query_that_needs_too_much_memory_is_stopped(large: GraphIndex, query: str) -> None:
    limits = SparqlLimits(seconds=30, memory=64 << 20)

    with pytest.raises(LimitExceeded, match="needs more memory than it may have, or is nested"):
        await large.sparql(query, limits=limits)

    assert (await large.sparql("ASK { ?s a ex:T }")).boolean


async def test_an_evaluation_could_open_neither_sockets_nor_files(
    graph: GraphIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the check of the words were wrong."""

    def trust(query: str, limits: SparqlLimits) -> str:
        return "select"

    monkeypatch.setattr("copilot_runtime.extensions.knowledge.graph.index.check_query", trust)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        port = server.getsockname()[1]
        with pytest.raises(Misuse, match="The query failed: Too many open files"):
            await graph.sparql(f"SELECT * {{ SERVICE <http://127.0.0.1:{port}/> {{ ?s ?p ?o }} }}")
        with pytest.raises(TimeoutError):
            server.accept()
    with pytest.raises(Misuse, match="This is no SPARQL"):
        await graph.sparql("INSERT DATA { ex:a ex:b ex:c }")


async def test_a_worker_knows_no_keys(graph: GraphIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    await graph.sparql("ASK {}")

    environment = _worker_of(graph, "environ")

    assert b"OPENAI_API_KEY" not in environment
    assert environment


async def test_nobody_is_told_of_what_they_may_not_see(graph: GraphIndex) -> None:
    async def ask(query: str, *names: str) -> Any:
        return await graph.sparql(query, Only(*names))

    everything = "SELECT * { ?s ?p ?o }"
    assert len((await ask(everything, "m1")).rows) == 3
    assert len((await ask(everything)).rows) == 0
    count = await ask("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }", "m2")
    assert count.rows == ({"n": Literal(3)},)
    join = "ASK { ex:alice schema:knows ?x . ?x schema:name ?n }"
    assert (await ask(join, "m1", "m2")).boolean is True
    assert (await ask(join, "m1")).boolean is False
    assert (await ask("DESCRIBE ex:alice", "m3")).triples[0].predicate.value.endswith("email")
    assert (await ask("ASK { FILTER NOT EXISTS { ?s schema:email ?o } }", "m1")).boolean is True
    path = await ask("SELECT ?x { ex:alice (schema:knows|schema:email)* ?x }", "m1")
    assert {row["x"].value for row in path.rows} == {f"{EX}alice", f"{EX}bob"}


async def test_what_is_hidden_never_was_in_the_process_that_answers() -> None:
    graph = await build(PEOPLE)
    await graph.sparql("ASK {}", Only("m1"))
    memory = _memory_of(graph)

    assert b"Alice Smith" in memory
    assert b"a@x" not in memory
    await graph.aclose()


async def test_temporary_files_are_removed() -> None:
    graph = await build(PEOPLE, sparql_store="disk")
    await graph.sparql("ASK {}")
    folder = Path(_views(graph)[0]._folder.name)
    assert _files(folder) != []

    await graph.aclose()

    assert _files(folder) == []


async def test_those_who_see_the_same_share_a_process(graph: GraphIndex) -> None:
    await graph.sparql("ASK {}")
    await graph.sparql("ASK {}", Only("m1", "m2", "m3"))
    await graph.sparql("ASK {}", Only("m1", "m2", "m3", "m4"))
    assert len(_views(graph)) == 1

    for names in (["m1"], ["m2"], ["m3"], ["m1", "m2"], ["m1", "m3"]):
        await graph.sparql("ASK {}", Only(*names))
    assert len(_views(graph)) == 4


async def test_queries_are_answered_side_by_side(large: GraphIndex) -> None:
    await large.sparql("ASK {}")
    slow = asyncio.create_task(
        large.sparql(f"SELECT (COUNT(*) AS ?n) {{ {BOMB} }}", limits=SparqlLimits(seconds=600))
    )

    answers = await asyncio.gather(*(large.sparql("ASK { ?s a ex:T }") for _ in range(20)))

    assert all(answer.boolean for answer in answers)
    assert not slow.done()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_a_query_that_nobody_waits_for_is_ended(
    large: GraphIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large.sparql("ASK {}")
    evaluations = Evaluations(monkeypatch)
    limits = SparqlLimits(seconds=60)
    tasks = [asyncio.create_task(large.sparql(SLOW, limits=limits)) for _ in range(4)]
    await evaluations.wait_for(4)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert (await large.sparql("ASK { ?s a ex:T }", limits=SparqlLimits(seconds=20))).boolean


async def test_too_many_queries_at_once_are_told_to_come_again(
    large: GraphIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large.sparql("ASK {}")
    evaluations = Evaluations(monkeypatch)
    slow = [asyncio.create_task(large.sparql(SLOW)) for _ in range(4)]
    await evaluations.wait_for(4)

    with pytest.raises(LimitExceeded, match="4 queries are being answered"):
        await large.sparql("ASK {}", limits=SparqlLimits(seconds=0.1))

    for task in slow:
        task.cancel()
    await asyncio.wait(slow)


async def test_no_time_at_all_is_not_for_ever(large: GraphIndex) -> None:
    await large.sparql("ASK {}")
    with pytest.raises(LimitExceeded, match="was stopped after 0 seconds"):
        await large.sparql(SLOW, limits=SparqlLimits(seconds=0))


async def test_a_query_with_half_a_character_is_answered(graph: GraphIndex) -> None:
    assert (await graph.sparql('ASK { ?s ?p "\ud83d" }')).boolean is False


def test_triples_that_cannot_be_read_are_told_as_such() -> None:
    evaluator = SparqlEvaluator()
    evaluation = Evaluation("ASK {}", "ask", SparqlLimits(), {})

    with pytest.raises(CopilotError, match="could not read the graph"):
        evaluator.run(evaluation, (1, True), lambda: ["no triple"])
    assert evaluator.run(evaluation, (1, True), list).boolean is True

    evaluator.close()


def make_evaluation(seconds: float = 60) -> Evaluation:
    return Evaluation("ASK { ?s ?p ?o }", "ask", SparqlLimits(seconds=seconds), {})


class Slow:
    """Triples that come once somebody says so."""

    def __init__(self) -> None:
        self.asked, self.ready = threading.Event(), threading.Event()

    def __call__(self) -> Iterator[str]:
        self.asked.set()
        assert self.ready.wait(60)
        yield "<urn:s> <urn:p> <urn:o> ."


def test_loading_takes_of_the_time_of_a_query_and_keeps_no_slot() -> None:
    evaluator, slow = SparqlEvaluator(), Slow()

    for _ in range(6):  # there are four slots
        with pytest.raises(LimitExceeded, match=r"was not loaded within 0\.05 seconds"):
            evaluator.run(make_evaluation(0.05), (1, True), slow)
    assert evaluator.run(make_evaluation(), (1, "other"), list).boolean is False

    slow.ready.set()
    assert evaluator.run(make_evaluation(), (1, True), slow).boolean is True
    evaluator.close()


async def test_a_query_whose_graph_is_being_loaded_can_be_cancelled() -> None:
    evaluator, slow, evaluation = SparqlEvaluator(), Slow(), make_evaluation()
    answer = asyncio.create_task(asyncio.to_thread(evaluator.run, evaluation, (1, True), slow))
    await asyncio.to_thread(slow.asked.wait)

    evaluation.cancel()

    with pytest.raises(LimitExceeded):
        await answer
    slow.ready.set()
    evaluator.close()


def test_a_worker_that_hangs_while_it_loads_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, slow = SparqlEvaluator(), Slow()
    with pytest.raises(LimitExceeded):
        evaluator.run(make_evaluation(0.01), (1, True), slow)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 301)
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.graph.evaluator.time", later)

    assert evaluator.run(make_evaluation(), (1, True), list).boolean is False

    slow.ready.set()
    evaluator.close()


def test_a_process_that_cannot_be_ended_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = SparqlEvaluator()
    evaluator.run(make_evaluation(), (1, True), list)
    (old,) = evaluator._views.values()  # pyright: ignore[reportPrivateUsage]
    close = old.close

    def fail() -> None:
        close()
        raise OSError("no")

    monkeypatch.setattr(old, "close", fail)
    with pytest.raises(OSError, match="no"):
        evaluator.run(make_evaluation(), (2, True), list)

    (new,) = evaluator._views.values()  # pyright: ignore[reportPrivateUsage]
    assert new.users == 0
    assert evaluator.run(make_evaluation(), (2, True), list).boolean is False
    evaluator.close()


async def test_a_worker_that_dies_is_replaced(graph: GraphIndex) -> None:
    await graph.sparql("ASK {}")
    os.kill(_pid(graph), signal.SIGKILL)
    _views(graph)[0]._process.wait()

    assert (await graph.sparql("ASK { ex:alice ?p ?o }")).boolean


async def test_a_worker_ends_with_its_parent(
    large: GraphIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large.sparql("ASK {}")
    evaluations = Evaluations(monkeypatch)
    slow = asyncio.create_task(large.sparql(SLOW, limits=SparqlLimits(seconds=60)))
    await evaluations.wait_for(1)
    process = _views(large)[0]._process

    await large.aclose()

    assert process.poll() is not None
    with pytest.raises(CopilotError):
        await slow


async def test_a_changed_graph_is_asked_anew() -> None:
    storage = MemoryStorage()
    graph = await build(PEOPLE, storage)
    assert not (await graph.sparql("ASK { ex:carol ?p ?o }")).boolean

    await fill(ResourceIndex(storage), {"m4": "ex:carol schema:knows ex:alice ."})
    await graph.update(ResourceIndex(storage))

    assert (await graph.sparql("ASK { ex:carol ?p ?o }")).boolean
    assert len(_views(graph)) == 1
    await graph.aclose()


async def test_no_process_is_left_when_the_server_is_killed() -> None:
    program = """
import asyncio
from tests.extensions.knowledge.graph.scenes import PEOPLE, build
async def main():
    graph = await build(PEOPLE)
    await graph.sparql("ASK {}")
    print(*(view._process.pid for view in graph._evaluator._views.values()), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    worker = int(await server.stdout.readline())
    assert _is_running(worker)

    server.kill()
    await server.communicate()

    await asyncio.to_thread(_wait_for_end, worker)


async def test_a_system_without_fork_is_told_so(
    graph: GraphIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ConfigurationFailed, match="SPARQL needs a system with processes that fork"):
        await graph.sparql("ASK {}")


async def test_no_thread_is_left_behind(graph: GraphIndex) -> None:
    before = {*threading.enumerate()}
    await graph.sparql("ASK {}")
    await graph.aclose()
    for thread in {*threading.enumerate()} - before:
        thread.join(20)
        assert not thread.is_alive(), thread


def _views(graph: GraphIndex) -> list[Any]:
    return [*graph._evaluator._views.values()]  # pyright: ignore[reportPrivateUsage]


def _pid(graph: GraphIndex) -> int:
    return _views(graph)[0]._process.pid


def _worker_of(graph: GraphIndex, file: str) -> bytes:
    with open(f"/proc/{_pid(graph)}/{file}", "rb") as opened:  # noqa: PTH123
        return opened.read()


def _is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended and is not reaped does not."""
    try:
        return b"State:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    except FileNotFoundError:
        return False


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while _is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _files(folder: Path) -> list[Path]:
    return [*folder.glob("*")]


def _memory_of(graph: GraphIndex) -> bytes:
    pieces: list[bytes] = []
    with open(f"/proc/{_pid(graph)}/mem", "rb", 0) as file:  # noqa: PTH123
        for line in _worker_of(graph, "maps").decode().splitlines():
            span, rights = line.split()[:2]
            start, stop = (int(part, 16) for part in span.split("-"))
            if rights.startswith("rw"):
                file.seek(start)
                pieces.append(file.read(stop - start))
    return b"".join(pieces)
