"""What has no name gets one, made of its content."""

import random
from typing import Any

import pytest
from pyoxigraph import BlankNode, Literal, NamedNode

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.knowledge.rdf.page import SHORT, name_blank_nodes
from copilot_runtime.extensions.knowledge.rdf.terms import RDF_TYPE, Statement
from tests.extensions.knowledge.rdf.statements import say
from tests.in_one_test import in_one_test

P = NamedNode("https://p/p")


def link(one: str, other: str) -> Statement:
    return BlankNode(one), P, BlankNode(other)


def mark(node: str, text: str) -> Statement:
    return BlankNode(node), P, Literal(text)


def rename(statements: list[Statement], seed: int) -> list[Statement]:
    """Return the same statements with other names of nodes, in another order."""
    dice = random.Random(seed)
    names: dict[str, BlankNode] = {}

    def other(term: Any) -> Any:
        if isinstance(term, BlankNode):
            return names.setdefault(term.value, BlankNode(f"z{dice.randrange(10**9)}"))
        return term

    renamed: list[Statement] = [
        (other(one), predicate, other(it)) for one, predicate, it in statements
    ]
    dice.shuffle(renamed)
    return renamed


GRAPHS = {
    "a chain": [link("a", "b"), link("b", "c"), mark("c", "end")],
    "a circle": [link("a", "b"), link("b", "c"), link("c", "a"), mark("a", "here")],
    "to itself": [link("a", "a"), mark("a", "x")],
    "two circles": [
        link("a", "b"),
        link("b", "a"),
        link("b", "c"),
        link("c", "d"),
        link("d", "c"),
        mark("d", "x"),
    ],
    "alike": [link("a", "b"), link("b", "a")],
    "nothing said": [link("a", "b")],
}


@in_one_test("name", GRAPHS)
def test_names_do_not_depend_on_the_order_or_on_what_nodes_were_called(name: str) -> None:
    named = [{*name_blank_nodes(rename(GRAPHS[name], seed))} for seed in range(5)]
    assert all(found == named[0] for found in named)
    assert {*name_blank_nodes(GRAPHS[name])} == named[0]
    assert not any(isinstance(value, BlankNode) for _, _, value in named[0])


def test_nodes_in_a_circle_that_differ_stay_apart() -> None:
    named = name_blank_nodes(GRAPHS["a circle"])
    assert len({subject for subject, _, _ in named}) == 3
    assert len(named) == 4


def test_a_circle_is_called_the_same_whatever_refers_to_it() -> None:
    circle = [link("a", "b"), link("b", "a"), mark("a", "x")]
    alone = {*name_blank_nodes(circle)}
    pointed_at = {*name_blank_nodes([*circle, link("d", "c"), link("c", "a")])}
    assert alone < pointed_at


def test_two_nodes_of_which_the_same_is_said_are_one() -> None:
    assert len(name_blank_nodes([mark("a", "x"), mark("b", "x")])) == 1
    assert len(name_blank_nodes(GRAPHS["alike"])) == 1


def test_a_nested_thing_is_called_the_same_on_every_page_and_in_every_run() -> None:
    question = """<div itemprop="mainEntity" itemscope itemtype="https://schema.org/Question">
        <i itemprop="name">Why?</i>
        <div itemprop="acceptedAnswer" itemscope itemtype="https://schema.org/Answer">
        <i itemprop="text">{}</i></div></div>"""
    page = """<div itemscope itemtype="https://schema.org/FAQPage" itemid="https://e/{}">{}</div>"""
    one = say(page.format("one", question.format("So.")))
    two = say(page.format("two", question.format("So.")))
    other = say(page.format("one", question.format("No.")))
    assert one.keys() - {"https://e/one"} == two.keys() - {"https://e/two"}
    assert len(one.keys() & other.keys()) == 1


def test_the_short_form_is_that_of_copilot_ld() -> None:
    person: list[Statement] = [
        (BlankNode("a"), RDF_TYPE, NamedNode("https://schema.org/Person")),
        (BlankNode("a"), NamedNode("https://schema.org/name"), Literal("Bob")),
    ]
    assert {str(subject) for subject, _, _ in name_blank_nodes(person, SHORT)} == {
        "<urn:skolem:8463f234>"
    }


def test_values_of_other_kinds_are_other_content() -> None:
    number = Literal("1", datatype=NamedNode("http://www.w3.org/2001/XMLSchema#integer"))
    said: list[Statement] = [mark("a", "1"), (BlankNode("b"), P, number)]
    assert len({subject for subject, _, _ in name_blank_nodes(said)}) == 2
    assert len({subject for subject, _, _ in name_blank_nodes(said, SHORT)}) == 1


def test_a_circle_that_would_take_minutes_is_refused() -> None:
    size = 5000
    circle = [link(f"n{i}", f"n{(i + 1) % size}") for i in range(size)]
    with pytest.raises(LimitExceeded, match="refer to each other"):
        name_blank_nodes([*circle, mark("n0", "here")])


def test_a_chain_as_long_as_a_page_allows_is_no_recursion() -> None:
    chain = [link(f"n{i}", f"n{i + 1}") for i in range(20_000)]
    assert len(name_blank_nodes([*chain, mark("n20000", "end")])) == 20_001
