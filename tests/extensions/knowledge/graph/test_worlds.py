"""What is hidden from somebody might as well not be there: nobody can tell two worlds apart."""

import random
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from pyoxigraph import Literal, NamedNode, RdfFormat, Store

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access
from copilot_runtime.extensions.knowledge.graph import GraphIndex, Pattern
from copilot_runtime.extensions.knowledge.graph.picture import draw_ontology
from copilot_runtime.extensions.knowledge.index import Filter
from tests.extensions.knowledge.graph.scenes import PREFIXES, Only, build, names
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

THINGS = [f"ex:t{number}" for number in range(12)]
CLASSES = [f"ex:C{number}" for number in range(4)]
LINKS = ["ex:knows", "ex:part", "ex:whole", "ex:made"]
TEXTS = ['"a"', '"a"@en', '"b"', "1", "2.5", '"2026-01-01"^^xsd:date', '"x"^^xsd:integer', "true"]

PATTERNS = [
    "? ? ?",
    "ex:t1 ? ?",
    "? ex:knows ?",
    "? a ex:C1",
    "? ? ex:t2",
    "ex:t1 ex:knows ?",
    "? ? a",
    '? ? "a"@en',
    "? ex:part ex:t3",
]
QUERIES = [
    "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
    "SELECT ?c (COUNT(?s) AS ?n) { ?s a ?c } GROUP BY ?c ORDER BY ?c",
    "SELECT ?a ?c { ?a ex:knows ?b . ?b ex:part ?c } ORDER BY ?a ?c",
    "SELECT ?s { ?s a ex:C1 FILTER NOT EXISTS { ?s ex:knows ?o } } ORDER BY ?s",
    "SELECT ?o { ex:t1 (ex:knows|ex:part)+ ?o } ORDER BY ?o",
    "SELECT (GROUP_CONCAT(?t) AS ?all) { { SELECT ?t { ?s ex:made ?t } ORDER BY ?t } }",
    "SELECT (COUNT(DISTINCT ?p) AS ?n) (MAX(?o) AS ?last) (SAMPLE(1) AS ?one) { ?s ?p ?o }",
    "SELECT ?s (EXISTS { ?s ex:made [] } AS ?is) { ?s a ex:C2 } ORDER BY ?s",
    "SELECT ?s { ?s a ?c MINUS { ?s ex:whole ?o } } ORDER BY ?s",
    "SELECT ?a ?b { ?a (^ex:made/!(ex:knows|a))* ?b } ORDER BY ?a ?b",
    "SELECT (1/COUNT(?o) AS ?n) { ex:t3 ex:knows ?o }",
    "SELECT ?n { VALUES ?s { ex:t1 ex:t2 } { SELECT (COUNT(?o) AS ?n) { ?s ex:knows ?o } } }",
    "ASK { ?a ex:knows/ex:part+ ?a }",
    "ASK { FILTER NOT EXISTS { ?s ex:text 1 } }",
    "DESCRIBE ex:t1 ex:t5",
    "CONSTRUCT { ?o ?p ?s } WHERE { ?s ?p ?o FILTER(ISIRI(?o)) }",
    "SELECT * { GRAPH ?g { ?s ?p ?o } }",
]


async def answer(graph: GraphIndex, query: str, access: Access) -> object:
    """Return all that SPARQL answers, or why it does not."""
    try:
        result = await graph.sparql(query, access)
    except CopilotError as error:
        return error.report()
    return result.rows, sorted(map(str, result.triples)), result.boolean, result.cut


def make_pages(chance: random.Random) -> dict[str, str]:
    """Return pages that say random things, some of them the same ones."""
    pages: dict[str, str] = {}
    for number in range(14):
        lines: list[str] = []
        for _ in range(chance.randrange(1, 9)):
            subject = chance.choice(THINGS)
            match chance.randrange(4):
                case 0:
                    lines.append(f"{subject} a {chance.choice(CLASSES)} .")
                case 1:
                    lines.append(f"{subject} ex:text {chance.choice(TEXTS)} .")
                case _:
                    lines.append(f"{subject} {chance.choice(LINKS)} {chance.choice(THINGS)} .")
        pages[f"m{number}"] = "\n".join(lines)
    return pages


async def describe(graph: GraphIndex, access: Access) -> Mapping[str, Any]:
    """Return every answer of a graph."""
    return {
        **{
            f"find {pattern}": names(await graph.find(pattern, Filter(access=access)))
            for pattern in PATTERNS
        },
        **{
            f"wide {pattern}": names(await graph.find(pattern, Filter(access=access), wide=True))
            for pattern in PATTERNS
        },
        **{
            f"page {pattern}": names(
                await graph.find(pattern, Filter(access=access, limit=2), offset=1)
            )
            for pattern in PATTERNS
        },
        **{
            f"triples {pattern}": await graph.triples(pattern, access, limit=5, offset=1)
            for pattern in PATTERNS
        },
        **{query: await answer(graph, query, access) for query in QUERIES},
        "count": await graph.count(access),
        "subjects": await graph.subjects(access=access),
        "of a type": await graph.subjects("C1", access),
        "shapes": await graph.ontology_turtle(access),
        "picture": draw_ontology(await graph.ontology(access)),
    }


@in_one_test("seed", range(6))
async def test_a_world_with_secrets_looks_like_one_without_them(seed: int) -> None:
    chance = random.Random(seed)
    pages = make_pages(chance)
    visible = [name for name in pages if chance.random() < 0.6]
    world = await build(pages)
    small_world = await build({name: pages[name] for name in visible})

    seen = await describe(world, Only(*visible))
    real = await describe(small_world, FULL_ACCESS)

    assert seen == real
    assert seen["count"] < await world.count()
    await world.aclose()
    await small_world.aclose()


@in_one_test("seed", range(6))
async def test_patterns_find_what_a_search_through_everything_finds(seed: int) -> None:
    chance = random.Random(seed + 100)
    pages = make_pages(chance)
    graph = await build(pages)
    stores = {name: Store() for name in pages}
    for name, text in pages.items():
        stores[name].load(PREFIXES + text, format=RdfFormat.TURTLE)
    parts = [[None, *column] for column in (THINGS[:4], LINKS[:2], [*THINGS[:4], *TEXTS[:1]])]

    for subject, predicate, object in product(*parts):
        nodes = [_term(graph, part) for part in (subject, predicate, object)]
        expected = [
            name
            for name, store in stores.items()
            if any(True for _ in store.quads_for_pattern(*nodes, None))  # pyright: ignore
        ]
        quoted = object + "^^xsd:string" if object and object.startswith('"') else object
        found = await graph.find(Pattern(subject, predicate, quoted))
        assert names(found) == expected, (subject, predicate, object)


def _term(graph: GraphIndex, part: str | None) -> Any:
    if part is None:
        return None
    iri = graph.prefixes.expand(part)
    return NamedNode(iri) if iri else Literal(part.strip('"'))
