"""SHACL shapes that the graph conforms to, and that a broken graph does not."""

import re
import time
from typing import Any

import pyshacl
import pytest
import rdflib
from pyoxigraph import RdfFormat, parse

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.knowledge.graph import (
    GraphIndex,
    GraphItem,
    GraphOptions,
    Ontology,
    OntologySettings,
)
from copilot_runtime.extensions.knowledge.graph.content import read_content
from copilot_runtime.extensions.knowledge.graph.ontology import OntologyProperty
from copilot_runtime.extensions.knowledge.graph.picture import draw_ontology
from copilot_runtime.extensions.knowledge.rdf.terms import parse_triples
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.storage import MemoryStorage
from tests.extensions.knowledge.graph.scenes import PREFIXES, Only, build, fill, turtle
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

SCHEMA = "https://schema.org/"

COMPANY = """
ex:acme a schema:Organization ; schema:name "Acme" ; schema:member ex:ann, ex:ben, ex:cat ;
    schema:foundingDate "1999-05-01"^^xsd:date ; schema:url <https://acme.example/> ;
    schema:department ex:lab .
ex:lab a schema:Organization ; schema:name "Lab"@en ; schema:member ex:dan ;
    schema:parentOrganization ex:acme ; schema:foundingDate "2005-01-31"^^xsd:date .
ex:ann a schema:Person ; schema:name "Ann" ; schema:memberOf ex:acme ; schema:knows ex:ben ;
    schema:age 41 ; schema:email "ann@acme.example", "a@acme.example" .
ex:ben a schema:Person ; schema:name "Ben" ; schema:memberOf ex:acme ; schema:knows ex:ann ;
    schema:age 38 ; schema:email "ben@acme.example" .
ex:cat a schema:Person, schema:Patient ; schema:name "Cat" ; schema:memberOf ex:acme ;
    schema:age 29 ; schema:email "cat@acme.example" .
ex:dan a schema:Person ; schema:name "Dan" ; schema:memberOf ex:lab ; schema:age 50 ;
    schema:email "dan@acme.example" .
ex:talk a schema:Event ; schema:startDate "2026-03-01T10:00:00Z"^^xsd:dateTime ;
    schema:about ex:ann, ex:ben, ex:acme ; schema:isAccessibleForFree true ;
    schema:note "as text", 7, ex:ann .
"""


def load(text: str) -> rdflib.Graph:
    return rdflib.Graph().parse(data=PREFIXES + text, format="turtle")


def conforms(data: str, shapes: str) -> bool:
    """Return whether data conform to shapes."""
    result: Any = pyshacl.validate(
        load(data), shacl_graph=rdflib.Graph().parse(data=shapes, format="turtle"), inplace=True
    )
    return result[0]


async def shapes_of(text: str) -> str:
    return await (await build({"m1": text})).ontology_turtle()


async def derive(text: str, settings: OntologySettings | None = None) -> Ontology:
    resources = ResourceIndex(MemoryStorage())
    await fill(resources, {"m1": text})
    graph = GraphIndex(MemoryStorage(), GraphOptions(ontology=settings or OntologySettings()))
    await graph.update(resources)
    return await graph.ontology()


def inverses(ontology: Ontology) -> dict[str, str]:
    """Return `Class.predicate` → the predicate of the other direction."""
    return {
        f"{found.name}.{item.name}": item.inverse.removeprefix(SCHEMA)
        for found in ontology.classes
        for item in found.properties
        if item.inverse
    }


def find(ontology: Ontology, class_: str, name: str) -> OntologyProperty:
    (item,) = (
        item
        for found in ontology.classes
        if found.name == class_
        for item in found.properties
        if item.name == name and not item.is_inverse
    )
    return item


async def test_the_data_conform_to_their_shapes() -> None:
    assert conforms(COMPANY, await shapes_of(COMPANY))


@pytest.mark.stalls(reason="The test validates shapes of SHACL.")
async def test_the_shapes_are_valid_shacl_themselves() -> None:
    shapes = rdflib.Graph().parse(data=await shapes_of(COMPANY), format="turtle")
    result: Any = pyshacl.validate(load(COMPANY), shacl_graph=shapes, meta_shacl=True)
    assert result[0]


BROKEN = {
    "a name is missing": (
        'ex:ann a schema:Person ; schema:name "Ann" ;',
        "ex:ann a schema:Person ;",
    ),
    "two names": ('schema:name "Ben"', 'schema:name "Ben", "Benjamin"'),
    "an age in words": ("schema:age 41", 'schema:age "forty-one"'),
    "an age that is a decimal": ("schema:age 41", "schema:age 41.5"),
    "two ages": ("schema:age 38", "schema:age 38, 39"),
    "a member that is a text": ("schema:memberOf ex:lab", 'schema:memberOf "Lab"'),
    "a member of a person": ("schema:memberOf ex:lab", "schema:memberOf ex:ben"),
    "a friend of no class": ("schema:knows ex:ann", "schema:knows ex:nobody"),
    "one side of an inverse is missing": ("schema:member ex:dan ;", ""),
    "one side of a symmetric predicate is missing": ("schema:knows ex:ben ;", ""),
    "a date without a day": ('"2005-01-31"^^xsd:date', '"2005-01"^^xsd:gYearMonth'),
    "a date that does not exist": ('"2005-01-31"^^xsd:date', '"2005-02-31"^^xsd:date'),
    "a flag in words": ("isAccessibleForFree true", 'isAccessibleForFree "yes"'),
    "about an event": ("schema:about ex:ann,", "schema:about ex:talk,"),
    "an address that is a text": ("<https://acme.example/>", '"https://acme.example/"'),
    "a renamed property": ("schema:startDate", "schema:beginDate"),
}


@in_one_test("change", BROKEN.values(), ids=[*BROKEN])
async def test_broken_data_do_not_conform(change: tuple[str, str]) -> None:
    before, after = change
    assert before in COMPANY
    assert not conforms(COMPANY.replace(before, after), await shapes_of(COMPANY))


async def test_the_shapes_do_not_depend_on_the_order_of_what_they_are_made_from() -> None:
    statements = [part + " ." for part in re.split(r"\s\.\n", COMPANY) if part.strip()]
    forward = {f"m{number}": text for number, text in enumerate(statements)}
    backward = {f"m{number}": text for number, text in enumerate(reversed(statements))}

    whole = await shapes_of(COMPANY)

    assert await (await build(forward)).ontology_turtle() == whole
    assert await (await build(backward)).ontology_turtle() == whole


async def test_properties_count_that_came_before_their_type() -> None:
    graph = await build({"m1": "ex:a schema:knows ex:b .", "m2": "ex:a a ex:P . ex:b a ex:P ."})
    item = find(await graph.ontology(), "P", "knows")

    assert (item.instances, item.dominant) == (1, "https://example.invalid/P")


async def test_an_update_of_a_part_leaves_the_ontology_of_the_whole() -> None:
    storage = MemoryStorage()
    graph = await build({"m1": COMPANY, "m2": "ex:x a schema:Place ."}, storage)
    resources = ResourceIndex(storage)
    await fill(resources, {"m2": 'ex:x a schema:Place ; schema:name "X" .'})

    await graph.update(resources)

    stored = await GraphIndex(storage).stored_ontology()
    assert stored == await graph.ontology_turtle()
    assert "schema:PersonShape" in stored
    assert find(await graph.ontology(), "Place", "name").instances == 1


async def test_classes_come_by_their_instances_and_properties_by_their_use() -> None:
    ontology = await derive(COMPANY)

    assert [(item.name, item.instances) for item in ontology.classes] == [
        ("Person", 4),
        ("Organization", 2),
        ("Event", 1),
        ("Patient", 1),
    ]
    assert [item.name for item in ontology.classes[0].properties] == [
        "name",
        "email",
        "age",
        "memberOf",
        "knows",
        "member",
        "knows",
    ]
    assert ontology.triples == len(load(COMPANY))


async def test_cardinalities_kinds_and_datatypes_are_those_of_the_data() -> None:
    ontology = await derive(COMPANY)

    email = find(ontology, "Person", "email")
    assert (email.min_count, email.max_count) == (1, 2)
    assert email.datatypes == ("http://www.w3.org/2001/XMLSchema#string",)
    assert find(ontology, "Person", "knows").min_count == 0
    assert find(ontology, "Event", "note").nodes == "any"
    assert [
        name.rpartition("#")[2] for name in find(ontology, "Organization", "name").datatypes
    ] == [
        "string",
        "langString",
    ]
    about = find(ontology, "Event", "about")
    assert about.dominant == f"{SCHEMA}Person"
    assert about.classes == ((f"{SCHEMA}Person", 2), (f"{SCHEMA}Organization", 1))


@in_one_test(
    ("objects", "dominant"),
    [("ex:p", "Person"), ("ex:p, ex:o", ""), ("ex:p, ex:q, ex:o", "Person"), ("ex:none", "")],
)
async def test_a_class_is_dominant_if_more_than_half_have_it(objects: str, dominant: str) -> None:
    text = f"""ex:p a schema:Person . ex:q a schema:Person . ex:o a schema:Organization .
        ex:e a schema:Event ; schema:about2 {objects} ."""
    item = find(await derive(text), "Event", "about2")

    assert item.dominant == (f"{SCHEMA}{dominant}" if dominant else "")
    assert conforms(text, await shapes_of(text))


def links(forward: int, backward: int, names: tuple[str, str] = ("member", "memberOf")) -> str:
    """Return an organisation with so many members, and so many that say so themselves."""
    people = [f"ex:p{number}" for number in range(max(forward, backward))]
    return "\n".join(
        [
            "ex:o a schema:Organization .",
            *(f"{person} a schema:Person ." for person in people),
            *(f"ex:o schema:{names[0]} {person} ." for person in people[:forward]),
            *(f"{person} schema:{names[1]} ex:o ." for person in people[:backward]),
        ]
    )


@in_one_test(
    ("forward", "backward", "are_inverse"),
    [(5, 4, True), (4, 5, True), (10, 8, True), (5, 6, True), (5, 3, False), (10, 7, False)],
)
async def test_inverses_are_as_frequent_as_each_other(
    forward: int, backward: int, are_inverse: bool
) -> None:
    text = links(forward, backward)
    pair = {"Organization.member": "memberOf", "Person.memberOf": "member"}

    assert inverses(await derive(text)) == (pair if are_inverse else {})
    assert conforms(text, await shapes_of(text))


async def test_the_ratios_of_inverses_are_settings() -> None:
    generous = OntologySettings(min_inverse_ratio=0.5, max_inverse_ratio=2)
    assert inverses(await derive(links(10, 7), generous)) != {}
    strict = OntologySettings(min_inverse_ratio=1, max_inverse_ratio=1)
    assert inverses(await derive(links(5, 4), strict)) == {}


@in_one_test("names", [("citation", "isCitedBy"), ("isCitedBy", "citation")])
async def test_a_one_way_predicate_is_no_inverse_in_either_direction(
    names: tuple[str, str],
) -> None:
    text = links(2, 2, names)
    assert inverses(await derive(text)) == {}
    assert inverses(await derive(text, OntologySettings(one_way=frozenset()))) != {}


async def test_a_symmetric_predicate_is_its_own_inverse() -> None:
    text = links(3, 3, ("knows", "knows"))
    shapes = await shapes_of(text)

    assert inverses(await derive(text)) == {"Organization.knows": "knows", "Person.knows": "knows"}
    assert conforms(text, shapes)
    assert not conforms(text + "ex:p9 a schema:Person ; schema:knows ex:o .", shapes)


async def test_predicates_that_are_only_as_frequent_are_no_inverses() -> None:
    """Copilot-LD compares the counts alone, which is a setting here."""
    text = """
        ex:a a ex:A ; schema:likes ex:x . ex:b a ex:A ; schema:likes ex:x .
        ex:x a ex:B . ex:y a ex:B ; schema:owns ex:a, ex:b ."""
    assert inverses(await derive(text)) == {}
    assert inverses(await derive(text, OntologySettings(min_mirrored=0))) == {
        "A.likes": "owns",
        "B.owns": "likes",
    }


async def test_a_predicate_between_things_of_one_class_is_its_own_inverse_only_if_it_says_so() -> (
    None
):
    chain = "ex:a a ex:N ; ex:next ex:b . ex:b a ex:N ; ex:next ex:c . ex:c a ex:N ."
    pairs = "ex:a a ex:N ; ex:near ex:b . ex:b a ex:N ; ex:near ex:a ."

    assert inverses(await derive(chain, OntologySettings(min_mirrored=0))) == {}
    assert inverses(await derive(pairs)) == {"N.near": "https://example.invalid/near"}


async def test_of_several_candidates_the_one_that_says_the_same_is_the_inverse() -> None:
    text = links(4, 4) + "".join(f"\nex:p{n} schema:admires ex:o ." for n in range(3))
    assert inverses(await derive(text)) == {
        "Organization.member": "memberOf",
        "Person.memberOf": "member",
    }


@in_one_test(
    "settings",
    [
        {"min_inverse_ratio": 0},
        {"min_inverse_ratio": 1.1},
        {"max_inverse_ratio": 0.9},
        {"min_mirrored": 2},
        {"dominance": 1},
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigurationFailed):
        OntologySettings(**settings)  # pyright: ignore[reportArgumentType]


@in_one_test(
    ("value", "is_checked"),
    [
        ('"x"^^xsd:integer', False),
        ('"2026-02-30"^^xsd:date', False),
        ('"25:00:00"^^xsd:time', False),
        ('"2026-01-01T00:00:00"^^xsd:dateTime', True),
        ('"12:30:00Z"^^xsd:time', True),
        ('"P1Y2M3DT4H"^^xsd:duration', True),
        ('"P"^^xsd:duration', False),
        ('"2026"^^xsd:gYear', True),
        ('"2026-13"^^xsd:gYearMonth', False),
        ('"1e5"^^xsd:double', True),
        ('"maybe"^^xsd:boolean', False),
        ('"anything"^^ex:type', True),
    ],
)
async def test_malformed_values_are_described_by_no_datatype(value: str, is_checked: bool) -> None:
    text = f"ex:a a ex:T ; schema:x {value} ."
    assert bool(find(await derive(text), "T", "x").datatypes) == is_checked
    assert conforms(text, await shapes_of(text))


async def test_names_that_turtle_cannot_shorten_stay_whole() -> None:
    text = """
        <urn:x> a <https://schema.org/1st> ; <https://example.invalid/a/b> "1" ;
            <https://example.invalid/ünïcode> "2" ; <urn:> <urn:x> ."""
    shapes = await shapes_of(text)

    assert "<https://schema.org/1stShape> a sh:NodeShape" in shapes
    assert conforms(text, shapes)


async def test_the_first_line_of_each_class_says_what_it_is() -> None:
    shapes = await shapes_of('ex:a schema:name "A" . ex:a a schema:Person .')

    assert shapes == (
        """@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>.
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#>.
@prefix sh: <http://www.w3.org/ns/shacl#>.
@prefix dct: <http://purl.org/dc/terms/>.
@prefix schema: <https://schema.org/>.
@prefix foaf: <http://xmlns.com/foaf/0.1/>.
@prefix xsd: <http://www.w3.org/2001/XMLSchema#>.

schema:PersonShape a sh:NodeShape;
    sh:targetClass schema:Person;
    dct:source schema:Person;
    dct:description "Shape for Person instances";
    sh:name "Person";
    rdfs:comment "Instances: 1";
    sh:property [
  a sh:PropertyShape;
  sh:path schema:name;
  sh:name "name";
  rdfs:comment "Instances: 1";
  sh:minCount 1;
  sh:maxCount 1;
  sh:nodeKind sh:Literal;
  sh:datatype xsd:string
].
"""
    )


async def test_an_inverse_is_a_shape_of_its_own() -> None:
    shapes = rdflib.Graph().parse(data=await shapes_of(links(2, 2)), format="turtle")
    shacl = rdflib.Namespace("http://www.w3.org/ns/shacl#")
    paths = [*shapes.objects(None, shacl.path)]

    assert [*shapes.subject_objects(shacl.inversePath)] == [
        (path, next(shapes.objects(path, shacl.inversePath)))
        for path in paths
        if isinstance(path, rdflib.BNode)
    ]
    assert len([path for path in paths if isinstance(path, rdflib.BNode)]) == 2


async def test_an_empty_graph_has_an_empty_ontology() -> None:
    graph = GraphIndex(MemoryStorage())

    assert (await graph.ontology()).classes == ()
    assert [*parse(await graph.ontology_turtle(), format=RdfFormat.TURTLE)] == []


async def test_an_ontology_shows_what_its_asker_may_read() -> None:
    texts = {"m1": COMPANY, "m2": "ex:s a ex:Secret ; ex:plan ex:ann . ex:ann ex:salary 5 ."}
    graph = await build(texts)

    whole = await graph.ontology_turtle()
    part = await graph.ontology_turtle(Only("m1"))

    assert "ex:Secret" in whole
    assert "salary" in whole
    assert part == await shapes_of(COMPANY)


async def test_what_two_resources_say_counts_once() -> None:
    graph = await build({"m1": COMPANY, "m2": COMPANY})
    assert await graph.ontology_turtle() == await shapes_of(COMPANY)


async def test_other_names_of_a_class_stand_in_its_shape() -> None:
    graph = await build({"m1": COMPANY}, vocabulary='schema:Person skos:altLabel "Human", "Man" .')
    turtle = await graph.ontology_turtle()

    assert 'skos:altLabel "Human";\n    skos:altLabel "Man";' in turtle
    assert conforms(COMPANY, turtle)


def invent(count: int) -> dict[str, str]:
    """Return pages that invent so many predicates, classes, datatypes and languages."""
    things = range(count)
    shared = " ".join(f"ex:x a ex:C{n} ; ex:p{n} ex:x ." for n in range(20))
    return {
        "predicates": "".join(
            f"ex:x{n % 40} a ex:A ; ex:p{n} ex:x{(n * 7 + 1) % 40} ." for n in things
        ),
        "both ways": "ex:x a ex:A . ex:y a ex:A . "
        + "".join(f"ex:x ex:p{n} ex:y . ex:y ex:q{n} ex:x ." for n in things),
        "classes of one thing": "".join(f"ex:x a ex:C{n} ; ex:p{n} ex:x ." for n in things),
        "things of many classes": shared
        + "".join(f"ex:x ex:p{n % 9} ex:x{n} . ex:x{n} a ex:C{n % 20} ." for n in things),
        "classes of values": "".join(f"ex:x{n} a ex:C{n} . ex:x ex:p ex:x{n} ." for n in things)
        + "ex:x a ex:A .",
        "datatypes": "ex:x a ex:A . " + "".join(f'ex:x ex:p "{n}"^^ex:d{n} .' for n in things),
        "languages": "ex:x a ex:A . " + "".join(f'ex:x ex:p "{n}"@en-x-p{n} .' for n in things),
    }


@in_one_test("kind", invent(1))
async def test_four_times_as_much_that_is_invented_takes_hardly_more_than_four_times_as_long(
    kind: str,
) -> None:
    async def measure(count: int) -> float:
        graph = await build({})
        resource = turtle("m1", invent(count)[kind])
        texts = read_content(resource.content, "turtle", resource.uri)
        await graph.add(GraphItem(resource.id, parse_triples(f"{' '.join(it)} ." for it in texts)))
        start = time.process_time()
        ontology = await graph.ontology()
        draw_ontology(ontology)
        return time.process_time() - start

    await measure(1)
    small, large = await measure(150), await measure(600)

    assert large < 8 * small + 0.1


async def test_a_thing_of_very_many_classes_counts_for_none_of_them() -> None:
    many = " ".join(f"ex:x a ex:C{n} ." for n in range(40))
    ontology = await derive(f"{many} ex:y a ex:C1 ; ex:p ex:x .")

    assert [(item.name, item.instances) for item in ontology.classes] == [("C1", 1)]
    assert find(ontology, "C1", "p").classes == ()


async def test_of_more_properties_than_anybody_reads_those_with_the_most_triples_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.graph.derivation._MOST_PROPERTIES", 3)
    text = "ex:a a ex:A ; ex:p1 1, 2 ; ex:p2 1 ; ex:p3 1, 2 . ex:b a ex:B ; ex:p1 1 ; ex:p4 1, 2 ."

    ontology = await derive(text)

    assert {item.name: [it.name for it in item.properties] for item in ontology.classes} == {
        "A": ["p1", "p3"],
        "B": ["p4"],
    }
    assert conforms(text, await shapes_of(text))


async def test_the_most_frequent_predicates_may_be_inverses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.graph.derivation._MOST_CANDIDATES", 1)
    text = links(3, 3) + " ex:o schema:owns ex:p0 . ex:p0 schema:ownedBy ex:o ."

    assert inverses(await derive(text)) == {
        "Organization.member": "memberOf",
        "Person.memberOf": "member",
    }


async def test_things_of_many_classes_say_nothing_of_inverses_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "ex:a a ex:A, ex:B ; ex:p ex:c . ex:c a ex:C, ex:D ; ex:q ex:a ."
    assert len(inverses(await derive(text))) == 4

    monkeypatch.setattr(
        "copilot_runtime.extensions.knowledge.graph.derivation._MOST_CLASS_LINKS", 4
    )

    assert inverses(await derive(text)) == {}
    assert conforms(text, await shapes_of(text))


async def test_values_of_very_many_classes_are_of_any() -> None:
    text = "ex:x a ex:A . " + "".join(f"ex:x{n} a ex:C{n} . ex:x ex:p ex:x{n} ." for n in range(40))

    assert find(await derive(text), "A", "p").classes == ()
    assert conforms(text, await shapes_of(text))
