"""Graphs to ask."""

import asyncio
import threading
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Literal

import pytest

from copilot_runtime.extensions.knowledge.access import Access
from copilot_runtime.extensions.knowledge.graph import GraphIndex, GraphOptions
from copilot_runtime.extensions.knowledge.graph.evaluator import Evaluation
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import MemoryStorage, Storage

PREFIXES = """
@prefix schema: <https://schema.org/> .
@prefix ex: <https://example.invalid/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
"""

PEOPLE = {
    "m1": 'ex:alice a schema:Person ; schema:name "Alice Smith" ; schema:knows ex:bob .',
    "m2": 'ex:bob a schema:Individual ; schema:name "Bob"@en ; schema:age 42 .',
    "m3": 'ex:alice schema:email "a@x" .',
}


def turtle(name: str, text: str, tokens: int | None = None) -> Resource:
    """Return a message with a content in Turtle."""
    identifier = Identifier("common.Message", name, tokens=tokens)
    return Resource(identifier, PREFIXES + text, "turtle")


async def fill(resources: ResourceIndex, texts: Mapping[str, str]) -> None:
    """Store messages by their names."""
    await resources.put_many([turtle(name, text) for name, text in texts.items()])


async def build(
    texts: Mapping[str, str],
    storage: Storage | None = None,
    *,
    vocabulary: str = "",
    sparql_store: Literal["memory", "disk"] = "memory",
) -> GraphIndex:
    """Return a graph of messages by their names."""
    storage = storage or MemoryStorage()
    resources = ResourceIndex(storage)
    await fill(resources, texts)
    graph = GraphIndex(storage, GraphOptions(vocabulary=vocabulary, sparql_store=sparql_store))
    await graph.update(resources)
    return graph


class Only(Access):
    """Allows some messages, by their names, and counts how often it is asked."""

    def __init__(self, *names: str) -> None:
        self._uris = {f"common.Message.{name}" for name in names}
        self.questions = 0

    @property
    def key(self) -> Hashable:
        return frozenset(self._uris)

    def allows(self, uri: str) -> bool:
        self.questions += 1
        return uri in self._uris


def names(identifiers: Collection[Identifier]) -> list[str]:
    """Return the names of resources."""
    return [identifier.name for identifier in identifiers]


class Evaluations:
    """Counts the queries whose evaluation has begun, each in a process of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        self._changed = threading.Condition()
        loading: set[int] = set()
        kill_with = Evaluation.kill_with

        def count(evaluation: Evaluation, kill: Callable[[], None]) -> None:
            kill_with(evaluation, kill)
            with self._changed:
                self._count += id(evaluation) in loading  # the second time, it has a process
                loading.add(id(evaluation))
                self._changed.notify_all()

        monkeypatch.setattr(Evaluation, "kill_with", count)

    async def wait_for(self, count: int) -> None:
        """Wait until so many more have begun."""
        await asyncio.to_thread(self._wait, count)

    def _wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._count >= count, 60)
            self._count = 0
