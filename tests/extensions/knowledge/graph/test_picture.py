"""A picture that can be read: nothing lies over anything else, and nothing is left out unsaid."""

from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest

from copilot_runtime.extensions.knowledge.graph import Ontology
from copilot_runtime.extensions.knowledge.graph.picture import draw_ontology
from tests.extensions.knowledge.graph.scenes import build
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

SVG = "{http://www.w3.org/2000/svg}"


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    found = parse(svg).iter(f"{SVG}rect")
    return [
        (
            float(box.get("x", 0)),
            float(box.get("y", 0)),
            float(box.get("width", 0)),
            float(box.get("height", 0)),
        )
        for box in found
        if box.get("class") == "box"
    ]


def texts(svg: str, class_: str) -> list[str]:
    return [
        text.text or "" for text in parse(svg).iter(f"{SVG}text") if text.get("class") == class_
    ]


async def draw(*statements: str) -> str:
    graph = await build({"m1": " ".join(statements)})
    return draw_ontology(await graph.ontology())


def ring(count: int) -> list[str]:
    """Return classes of which each has a link to the next one and to the third one."""
    return [
        f"ex:s{n} a ex:Class{n} ; ex:name 'x' ; ex:next ex:s{(n + 1) % count} ;"
        f" ex:third ex:s{(n + 3) % count} ."
        for n in range(count)
    ]


async def test_every_class_is_a_box_with_its_properties() -> None:
    svg = await draw(
        "ex:a a schema:Person ; schema:name 'A' ; schema:age 5 ; schema:memberOf ex:o .",
        "ex:b a schema:Person ; schema:name 'B', 'C' ; schema:site <urn:x> .",
        "ex:o a schema:Organization ; schema:member ex:a .",
    )

    assert texts(svg, "name") == ["Person", "Organization"]
    assert texts(svg, "type") == [
        "string  1..*",
        "integer  0..1",
        "Organization  0..1",
        "IRI  0..1",
        "Person  1",
    ]
    assert texts(svg, "label") == ["memberOf / member"]
    assert svg.count('marker-start="') == 1


@in_one_test("count", [2, 9, 27])
async def test_no_box_lies_over_another(count: int) -> None:
    svg = await draw(*ring(count))
    found = boxes(svg)

    assert len(found) == count
    for (x, y, width, height), (left, top, wide, high) in combinations(found, 2):
        assert x + width < left or left + wide < x or y + height < top or top + high < y


async def test_no_label_lies_over_another() -> None:
    svg = await draw(*ring(12))
    places = sorted(
        (float(text.get("y", 0)), float(text.get("x", 0)), len(text.text or "") * 5.5)
        for text in parse(svg).iter(f"{SVG}text")
        if text.get("class") == "label"
    )

    assert len(places) == 24
    for (y, x, width), (lower, other, wide) in pairwise(places):
        assert lower - y > 8 or abs(x - other) > (width + wide) / 2


async def test_the_same_ontology_gives_the_same_picture() -> None:
    assert await draw(*ring(9)) == await draw(*reversed(ring(9)))


async def test_a_class_may_have_links_to_itself_or_none() -> None:
    svg = await draw(
        "ex:a a ex:Node ; ex:child ex:b . ex:b a ex:Node .",
        "ex:c a ex:Alone . ex:d a ex:Lonely ; ex:name 'd' .",
    )

    assert sorted(texts(svg, "name")) == ["Alone", "Lonely", "Node"]
    assert texts(svg, "label") == ["child"]


async def test_classes_without_any_links_stand_in_columns() -> None:
    found = boxes(await draw(*(f"ex:s{n} a ex:Class{n} ; ex:name 'x' ." for n in range(30))))
    assert 2 < len({x for x, *_ in found}) < 10


async def test_long_lists_and_names_are_cut_or_squeezed() -> None:
    many = " ; ".join(f"ex:property{n} {n}" for n in range(20))
    name = "AVeryLongNameOfAClassThatNobodyWouldEverWantToReadInFull"
    svg = await draw(f"ex:a a ex:{name} ; {many} .")

    assert "and 7 more" in svg
    assert 'lengthAdjust="spacingAndGlyphs"' in svg
    assert boxes(svg)[0][2] == 300


async def test_a_property_that_stands_in_no_box_has_no_line() -> None:
    many = " ; ".join(f"ex:p{n:02} ex:s1" for n in range(20))
    svg = await draw(f"ex:s0 a ex:A ; {many} . ex:s1 a ex:B .")

    assert texts(svg, "label") == [f"p{n:02}" for n in range(13)]
    assert "and 7 more" in svg


async def test_links_that_the_eye_cannot_follow_are_counted() -> None:
    nodes = range(30)
    links = " ".join(
        f"ex:s{n} a ex:C{n} ; " + " ; ".join(f"ex:p{k} ex:s{(n + k) % 30}" for k in range(7)) + " ."
        for n in nodes
    )
    svg = await draw(links)

    assert len(texts(svg, "label")) == 150
    assert "and 60 more links" in svg


async def test_what_is_too_much_for_a_picture_is_said() -> None:
    svg = await draw(*(f"ex:s{n} a ex:Class{n} ." for n in range(63)))
    assert len(boxes(svg)) == 60
    assert "and 3 more classes" in svg


def test_an_empty_ontology_says_so() -> None:
    assert "No resource has a type yet." in draw_ontology(Ontology())


async def test_nothing_in_a_name_becomes_a_part_of_the_page() -> None:
    graph = await build({"m1": "<urn:x> a <urn:a&b'c> ."})
    svg = draw_ontology(await graph.ontology(), '"><script>alert(1)</script>\x00')

    root = parse(svg)
    assert [*root.iter(f"{SVG}script")] == []
    assert root.get("aria-label") == '"><script>alert(1)</script>\ufffd'
    assert texts(svg, "name") == ["a&b'c"]
