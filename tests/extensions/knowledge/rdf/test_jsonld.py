"""JSON-LD is read without the network, and written as Copilot-LD did."""

import json

import pytest
from pyoxigraph import Triple

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.rdf.jsonld import write_jsonld
from copilot_runtime.extensions.knowledge.rdf.page import read_page
from copilot_runtime.extensions.knowledge.rdf.terms import read_triples, write_nquads, write_turtle
from tests.extensions.knowledge.rdf.statements import say
from tests.in_one_test import in_one_test

CONTEXT = {
    "@vocab": "https://schema.org/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
}


def script(document: object) -> str:
    return f'<script type="application/ld+json; charset=utf-8">{json.dumps(document)}</script>'


def thing(**fields: object) -> dict[str, object]:
    return {"@context": "https://schema.org", "@id": "https://e/x", "@type": "Thing", **fields}


@in_one_test(
    "context",
    [
        "http://schema.org",
        "https://schema.org/",
        "https://www.schema.org/docs/jsonldcontext.json",
        ["https://schema.org", {"local": "https://v.org/local"}],
        {"@vocab": "http://schema.org/"},
        {"@import": "https://schema.org"},
    ],
)
def test_contexts_of_schema_org_are_built_in(context: object) -> None:
    said = say(script({**thing(name="A"), "@context": context}))
    assert said == {"https://e/x": ["a <Thing>", '<name> "A"']}


@in_one_test(
    ("fields", "said"),
    [
        (
            {"url": "/a", "image": ["b.png"]},
            ["<image> <https://ex.org/b.png>", "<url> <https://ex.org/a>"],
        ),
        ({"availability": "http://schema.org/InStock"}, ["<availability> <InStock>"]),
        ({"datePublished": "2024-05-01"}, ['<datePublished> "2024-05-01"^^<xsd:date>']),
        (
            {"cookTime": "PT30M", "name": "2024"},
            ['<cookTime> "PT30M"^^<xsd:duration>', '<name> "2024"'],
        ),
        ({"price": 3, "ok": True}, ['<ok> "true"^^<xsd:boolean>', '<price> "3"^^<xsd:integer>']),
        ({"p": {"@list": ["a", "b"]}}, ['<p> "a"', '<p> "b"']),
        ({"p": {"@value": "x", "@language": "fr"}}, ['<p> "x"@fr']),
        ({"@reverse": {"q": {"@id": "https://e/y", "name": "untyped"}}}, []),
    ],
)
def test_values_are_the_same_as_in_microdata(fields: dict[str, object], said: list[str]) -> None:
    assert sorted(say(script(thing(**fields)))["https://e/x"][1:]) == said


def test_what_a_page_and_its_scripts_say_is_one() -> None:
    page = (
        """<div itemscope itemtype="http://schema.org/Thing" itemid="https://e/x">
        <i itemprop="name">A</i></div>"""
        + script(thing(name="A", other="B"))
        + script({"@context": "https://schema.org", "@graph": [{"type": "Person", "id": "#p"}]})
    )
    assert say(page) == {
        "https://e/x": ["a <Thing>", '<name> "A"', '<other> "B"'],
        "https://ex.org/page.html#p": ["a <Person>"],
    }


@in_one_test(
    ("text", "reason"),
    [
        ("{", "The JSON-LD cannot be read: "),
        ('{"@context": "https://other.org/c", "a": 1}', "needs the context 'https://other.org/c'"),
        ('{"@context": {"t": {"@id": "x:y", "@context": "https://o/"}}}', "needs the context"),
        ("[" * 5000 + "]" * 5000, "nested too deeply"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested too deeply"),
        ("[" + '{"@context": "https://schema.org"},' * 1001 + "{}]", "more than 1000 contexts"),
        ('{"@context": {"@vocab": 5}, "a": 1}', "The JSON-LD cannot be read: "),
    ],
)
def test_a_script_that_cannot_be_read_is_a_warning(text: str, reason: str) -> None:
    good = script(thing(name="A"))
    page = read_page(
        f'<script type="application/ld+json">{text}</script>{good}'.encode(), "https://ex.org/"
    )
    assert [*page.items] == ["https://e/x"]
    assert len(page.warnings) == 1
    assert reason in page.warnings[0]


def test_wrappings_and_line_breaks_in_texts_are_forgiven() -> None:
    inside = '//<![CDATA[\n{"@context":"https://schema.org","@type":"Thing","name":"a\nb"}\n//]]>'
    assert [*say(f'<script type="application/ld+json">{inside}</script>').values()] == [
        ["a <Thing>", '<name> "a\\nb"']
    ]


def triples(text: str) -> list[Triple]:
    return read_triples(text, "nquads")


X = "<https://e/x> "
EXAMPLE = (
    f"{X}<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <https://schema.org/Drug> .\n"
    f'{X}<https://schema.org/name> "D"@en .\n'
    f'{X}<https://schema.org/weight> "3"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
    f"{X}<https://other.org/p> <https://e/y> .\n"
    f'{X}<http://www.w3.org/2000/01/rdf-schema#label> "a" .\n'
    f'{X}<http://www.w3.org/2000/01/rdf-schema#label> "b" .\n'
    f'{X}<https://schema.org/a:b> "c" .\n'
    f'{X}<https://schema.org/rdf> "d" .\n'
)


def test_one_thing_as_compacted_json_ld() -> None:
    assert json.loads(write_jsonld(triples(EXAMPLE), "https://e/x")) == {
        "@context": CONTEXT,
        "@id": "https://e/x",
        "@type": "Drug",
        "name": {"@language": "en", "@value": "D"},
        "weight": {"@type": "http://www.w3.org/2001/XMLSchema#integer", "@value": "3"},
        "https://other.org/p": {"@id": "https://e/y"},
        "rdfs:label": ["a", "b"],
        "https://schema.org/a:b": "c",
        "https://schema.org/rdf": "d",
    }


def test_a_language_of_all_texts_is_said_once() -> None:
    text = f'{X}<https://schema.org/name> "D"@en .\n{X}<https://schema.org/title> "E"@en .\n'
    assert json.loads(write_jsonld(triples(text), "https://e/x")) == {
        "@context": {**CONTEXT, "@language": "en"},
        "@id": "https://e/x",
        "name": "D",
        "title": "E",
    }


def test_without_the_thing_the_first_one_is_written() -> None:
    assert json.loads(write_jsonld(triples(EXAMPLE), "https://e/other"))["@id"] == "https://e/x"
    assert json.loads(write_jsonld([], "https://e/x")) == {
        "@context": CONTEXT,
        "@id": "https://e/x",
    }


@in_one_test("language", ["", "@en"])
def test_each_form_says_the_same_when_it_is_read_again(language: str) -> None:
    text = EXAMPLE + f'{X}<https://schema.org/title> "q\\"\\\\\\n\\t\\u0001é"{language} .\n'
    said = triples(text)
    assert {*read_triples(write_jsonld(said, "https://e/x"), "jsonld")} == {*said}
    assert {*read_triples(write_turtle(said), "turtle")} == {*said}
    assert {*read_triples(write_nquads(said), "nquads")} == {*said}


def test_turtle_has_types_first_and_bare_numbers() -> None:
    said = triples(
        f'{X}<https://p/n> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
        f'{X}<https://p/n> "x"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
        f'{X}<https://p/n> "1.0E1"^^<http://www.w3.org/2001/XMLSchema#double> .\n'
        f"{X}<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <https://schema.org/Drug> .\n"
        f'<https://e/y> <https://p/b> "true"^^<http://www.w3.org/2001/XMLSchema#boolean> .\n'
    )
    assert write_turtle(said) == (
        "<https://e/x> a <https://schema.org/Drug>;\n"
        '    <https://p/n> 1, "x"^^<http://www.w3.org/2001/XMLSchema#integer>, 1.0E1.\n'
        "<https://e/y> <https://p/b> true.\n"
    )
    assert write_turtle([]) == ""


def test_a_text_has_no_triples_and_a_broken_content_says_so() -> None:
    assert read_triples("anything", "text") == []
    with pytest.raises(Misuse, match="The content is no turtle"):
        read_triples("<a", "turtle")
    with pytest.raises(Misuse, match="'xml' is no format"):
        read_triples("", "xml")
