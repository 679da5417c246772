"""What a pattern means."""

from typing import Any

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.extensions.knowledge.graph import (
    GraphIndex,
    GraphOptions,
    OntologySettings,
    Pattern,
    SparqlLimits,
    parse_pattern,
    read_options,
)
from copilot_runtime.extensions.knowledge.graph.terms import Prefixes, is_wildcard
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.storage import MemoryStorage
from tests.extensions.knowledge.graph.scenes import PEOPLE, build, names
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

XSD = "http://www.w3.org/2001/XMLSchema#"


@in_one_test("term", [None, "", "?", "*", "_", "null", "NULL"])
def test_a_wildcard_is_anything(term: str | None) -> None:
    assert is_wildcard(term)


@in_one_test("term", ["Null", "??", "x", '"_"', "<_>"])
def test_anything_else_is_what_it_says(term: str) -> None:
    assert not is_wildcard(term)


@in_one_test(
    ("line", "parts"),
    [
        ("person:john ? ?", ("person:john", "?", "?")),
        ('? foaf:name "John Doe"', ("?", "foaf:name", '"John Doe"')),
        ('  ?\tschema:name   "a \\" b"@en ', ("?", "schema:name", '"a \\" b"@en')),
        ('? ? "5"^^xsd:integer', ("?", "?", '"5"^^xsd:integer')),
    ],
)
def test_a_line_has_three_parts(line: str, parts: tuple[str, str, str]) -> None:
    assert parse_pattern(line) == Pattern(*parts)


@in_one_test(
    ("line", "message"),
    [
        (None, "line must be a string"),
        (5, "line must be a string"),
        ("", "line cannot be empty"),
        ("  \n", "line cannot be empty"),
        ('a b "c', "Unterminated quoted string"),
        ("a b", "Expected 3 parts (subject predicate object), got 2"),
        ("a b c d", "Expected 3 parts (subject predicate object), got 4"),
    ],
)
def test_a_line_of_another_form_is_refused(line: object, message: str) -> None:
    with pytest.raises(Misuse) as caught:
        parse_pattern(line)
    assert caught.value.message == message


@in_one_test(
    ("pattern", "found"),
    [
        ("? ? ?", ["m1", "m2", "m3"]),
        ("? schema:knows ex:bob", ["m1"]),
        ("? a schema:Person", ["m1"]),
        ("? rdf:type <https://schema.org/Individual>", ["m2"]),
        ("https://example.invalid/alice ? ?", ["m1", "m3"]),
        ('? ? "Alice Smith"', ["m1"]),
        ('? schema:name "Bob"', ["m2"]),
        ('? ? "Bob"@en', ["m2"]),
        ('? ? "Bob"@EN', ["m2"]),
        ('? ? "Bob"@de', []),
        ("? ? 42", ["m2"]),
        ('? ? "42"', ["m2"]),
        ('? ? "42"^^xsd:integer', ["m2"]),
        (f'? ? "42"^^<{XSD}integer>', ["m2"]),
        (f'? ? "42"^^{XSD}integer', ["m2"]),
        ('? ? "42"^^xsd:string', []),
        ("? schema:name schema:Nobody", []),
        ("ex:alice schema:name 42", []),
        ("ex:nobody ? ?", []),
        ("urn:nobody ? ?", []),
    ],
)
async def test_a_pattern_finds_the_holders_of_its_triples(pattern: str, found: list[str]) -> None:
    graph = await build(PEOPLE)
    assert names(await graph.find(pattern)) == found


async def test_all_that_says_anything_about_a_subject_can_be_found_as_well() -> None:
    graph = await build(PEOPLE)
    pattern = Pattern(predicate="schema:name")

    assert names(await graph.find(pattern)) == ["m1", "m2"]
    assert names(await graph.find(pattern, wide=True)) == ["m1", "m2", "m3"]
    assert names(await graph.find("? schema:name 7", wide=True)) == []


async def test_an_unquoted_object_may_be_a_text_with_spaces() -> None:
    graph = await build(PEOPLE)
    assert names(await graph.find(Pattern(object="Alice Smith"))) == ["m1"]


@in_one_test(
    ("stored", "pattern"),
    [
        ('"C:\\\\temp"', '"C:\\\\temp"'),
        ('"C:\\\\temp"', '"C:\\temp"'),
        ('"say \\"yes\\""', '"say \\"yes\\""'),
        ('"say \\"yes\\""', '"say "yes""'),
        ('"é"', '"\\u00e9"'),
        ('"😀"', '"\\U0001F600"'),
        ('"a\\tb"', '"a\\tb"'),
        ('"_"', '"_"'),
        ("<urn:isbn:1>", "urn:isbn:1"),
        ("<mailto:a@x>", "mailto:a@x"),
        ('"mailto:a@x"', "mailto:a@x"),
        ("<https://example.invalid/a:b>", "ex:a:b"),
        ("ex:bob", "ex:bob"),
        ('"a b: c"', "a b: c"),
        ('"true"^^xsd:boolean', "true"),
        ('"2026-01-01"^^xsd:date', '"2026-01-01"^^xsd:date'),
        ('"Grüße"@de-CH', '"Grüße"@de-ch'),
    ],
)
async def test_every_kind_of_object_can_be_asked_for(stored: str, pattern: str) -> None:
    graph = await build({"m1": f"ex:a schema:x {stored} .", "m2": 'ex:b schema:x "other" .'})
    assert names(await graph.find(Pattern(object=pattern))) == ["m1"]


async def test_an_anonymous_item_can_be_asked_for_by_its_name() -> None:
    graph = await build({"m1": 'ex:a schema:address [ schema:street "Elm" ] .'})
    address = (await graph.triples("? schema:street ?"))[0].subject

    assert names(await graph.find(Pattern(subject=str(address)))) == ["m1"]
    assert str(address).startswith("<urn:skolem:")


@in_one_test(
    ("pattern", "message"),
    [
        (Pattern("alice"), "The subject of a pattern is an IRI, and 'alice' is none."),
        (Pattern("?s"), "The subject of a pattern is an IRI, and '?s' is none."),
        (Pattern('"alice"'), "The subject of a pattern is an IRI, and '\"alice\"' is none."),
        (Pattern(None, "name"), "The predicate of a pattern is an IRI, and 'name' is none."),
        (Pattern("<no iri>"), "'no iri' is no IRI: Invalid IRI code point ' '."),
        (Pattern(object='"open'), "Unterminated quoted string"),
        (Pattern(object='"a"@'), "'\"a\"@' is no literal."),
        (Pattern(object='"a"^^integer'), "'integer' is no datatype."),
    ],
)
async def test_what_cannot_be_is_refused_with_a_reason(pattern: Pattern, message: str) -> None:
    graph = GraphIndex(MemoryStorage())
    with pytest.raises(Misuse) as caught:
        await graph.find(pattern)
    assert caught.value.message == message


async def test_half_a_character_breaks_nothing() -> None:
    graph = await build(PEOPLE)

    assert await graph.find(Pattern(object="\ud83d")) == []
    with pytest.raises(Misuse, match="is no IRI"):
        await graph.find(Pattern(subject="ex:\ud83d"))


async def test_an_operator_has_prefixes_of_their_own() -> None:
    graph = GraphIndex(MemoryStorage(), GraphOptions(prefixes={"our": "https://our.example/"}))
    assert await graph.find("our:thing ? ?") == []
    assert len(graph.prefixes) == len(Prefixes()) + 1


def test_a_vocabulary_that_is_no_turtle_is_refused() -> None:
    with pytest.raises(ConfigurationFailed, match="The vocabulary of the graph is no Turtle"):
        GraphIndex(MemoryStorage(), GraphOptions(vocabulary="schema:Person is a person"))


async def test_a_filter_cuts_what_was_found() -> None:
    graph = await build(PEOPLE)

    async def find(filter: Filter, offset: int = 0) -> list[str]:
        return names(await graph.find("? ? ?", filter, offset=offset))

    assert await find(Filter(limit=2)) == ["m1", "m2"]
    assert await find(Filter(limit=2), offset=1) == ["m2", "m3"]
    assert await find(Filter(prefix="common.Message.m2")) == ["m2"]
    assert await find(Filter(type="common.Message", limit=1)) == ["m1"]
    assert await find(Filter(type="common.Document")) == []
    assert await find(Filter(max_tokens=1)) == []
    assert await find(Filter(), offset=9) == []


async def test_triples_are_returned_each_once_page_by_page() -> None:
    graph = await build({**PEOPLE, "m4": PEOPLE["m1"]})
    pages = [
        *await graph.triples("ex:alice ? ?", limit=2),
        *await graph.triples("ex:alice ? ?", limit=2, offset=2),
    ]

    assert pages == await graph.triples("ex:alice ? ?", limit=0)
    assert [triple.predicate.value.rpartition("/")[2] for triple in pages[1:]] == [
        "name",
        "knows",
        "email",
    ]


def test_all_options_can_be_left_out() -> None:
    assert read_options({}) == GraphOptions()


def test_options_are_read_with_their_sections() -> None:
    options = read_options(
        {
            "prefixes": {"our": "https://our.example/"},
            "vocabulary": "",
            "sparql_store": "disk",
            "sparql": {"seconds": 2, "rows": 10},
            "ontology": {"min_inverse_ratio": 0.5, "one_way": ["our:link", "https://x.example/y"]},
        }
    )

    assert options == GraphOptions(
        prefixes={"our": "https://our.example/"},
        sparql_store="disk",
        sparql=SparqlLimits(seconds=2, rows=10),
        ontology=OntologySettings(
            min_inverse_ratio=0.5,
            one_way=frozenset({"https://our.example/link", "https://x.example/y"}),
        ),
    )


@in_one_test(
    ("options", "message"),
    [
        ({"prefix": {}}, "No option of graph named 'prefix'."),
        ({"sparql": {"second": 1}}, "No option of graph.sparql named 'second'."),
        ({"sparql": []}, "graph.sparql must be an object."),
        ({"sparql": {"rows": "many"}}, "graph.sparql.rows must be of the type int, not 'many'."),
        ({"sparql": {"rows": True}}, "graph.sparql.rows must be of the type int, not True."),
        ({"sparql": {"seconds": -1}}, "graph.sparql.seconds must be of the type float, not -1."),
        ({"sparql_store": "tape"}, "graph.sparql_store must be 'memory' or 'disk'."),
        ({"prefixes": ["a"]}, "The prefixes of a graph must be names with their namespaces."),
        ({"vocabulary": 5}, "graph.vocabulary must be of the type str, not 5."),
        ({"ontology": {"one_way": "x"}}, "graph.ontology.one_way must be a list of predicates."),
        ({"ontology": {"one_way": ["no iri"]}}, "'no iri' is no IRI"),
        ({"ontology": {"max_inverse_ratio": 0.5}}, "The ratios of inverse predicates"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options: Any, message: str) -> None:
    with pytest.raises(CopilotError) as caught:
        read_options(options)
    assert caught.value.message.startswith(message)
    assert isinstance(caught.value, ConfigurationFailed) or "IRI" in message
