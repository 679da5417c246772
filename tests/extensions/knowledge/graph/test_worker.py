"""What a child of the worker answers to the query of a connection."""

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from pyoxigraph import RdfFormat, Store

from copilot_runtime.extensions.knowledge.graph import worker
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


def test_the_used_memory_is_known_on_linux() -> None:
    assert worker.used_memory() > 1_000_000


def test_the_used_memory_is_none_of_our_business_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(worker.Path, "read_text", refuse)
    assert worker.used_memory() == 0
