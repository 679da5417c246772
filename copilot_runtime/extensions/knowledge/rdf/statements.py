"""What is read from one page, within limits that no honest page comes near."""

from typing import TYPE_CHECKING

from pyoxigraph import BlankNode, Literal, NamedNode, Triple

from copilot_runtime.base.errors import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterator

Node = NamedNode | BlankNode
Term = NamedNode | BlankNode | Literal

MOST_STATEMENTS = 100_000
MOST_CHARACTERS = 64 * 1024 * 1024
MOST_STEPS = 500_000
"""Elements looked at: about a second."""


class Statements:
    """Collects the triples of a page, each once, in their order.

    Elements that stand in one another, or refer to one another, may multiply what a small page
    says; beyond the limits `add` raises `LimitExceeded`.
    """

    def __init__(self) -> None:
        self._triples: dict[Triple, None] = {}
        self._steps = 0
        self._characters = 0
        self._nodes = 0

    def __iter__(self) -> "Iterator[Triple]":
        return iter(self._triples)

    def __len__(self) -> int:
        return len(self._triples)

    def add(self, subject: Node, predicate: NamedNode, value: Term) -> None:
        """Add one triple."""
        self._characters += len(value.value)
        if self._characters > MOST_CHARACTERS:
            raise LimitExceeded("The page repeats its text too often: elements are in each other.")
        self._triples[Triple(subject, predicate, value)] = None
        if len(self._triples) > MOST_STATEMENTS:
            raise LimitExceeded(f"The page makes more than {MOST_STATEMENTS} statements.")

    def add_steps(self, count: int = 1) -> None:
        """Count elements that may be looked at again and again."""
        self._steps += count
        if self._steps > MOST_STEPS:
            raise LimitExceeded("The page refers to its elements, or nests them, too often.")

    def make_node(self) -> BlankNode:
        """Return an anonymous node that no other one of this page equals."""
        self._nodes += 1
        return BlankNode(f"n{self._nodes}")
