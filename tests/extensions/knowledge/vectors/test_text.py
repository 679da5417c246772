"""What is embedded of a resource."""

from copilot_runtime.extensions.knowledge.rdf.text import render_text
from tests.in_one_test import in_one_test

PEOPLE = """
@prefix schema: <https://schema.org/> .
@prefix id: <https://acme.example/id/> .
id:ada a schema:Person ; schema:name "Ada  Lovelace" ; schema:jobTitle "Analyst", "Poet" ;
  schema:worksFor id:the-mill ; schema:birthDate "1815-12-10"^^schema:Date ;
  schema:knows id:charles ; schema:address [ schema:addressLocality "London" ] .
id:charles a schema:Person ; schema:name "Charles Babbage" .
"""


def test_text_stays_as_it_is():
    assert render_text("<urn:a> <urn:b> <urn:c> .", "text") == "<urn:a> <urn:b> <urn:c> ."


def test_triples_are_names_and_values():
    assert render_text(PEOPLE, "turtle") == (
        "Ada Lovelace, person\n"
        "job title: Analyst, Poet\n"
        "works for: the mill\n"
        "birth date: 1815-12-10\n"
        "knows: Charles Babbage\n"
        "\n"
        "address locality: London\n"
        "\n"
        "Charles Babbage, person"
    )


@in_one_test(
    ("content", "format"),
    [
        ('<urn:x:1> <https://schema.org/name> "Ada" <urn:g:1> .', "nquads"),
        ('{"@context":{"@vocab":"https://schema.org/"},"name":"Ada"}', "jsonld"),
        ('<urn:x:1> <https://schema.org/name> "Ada"@en .', "turtle"),
    ],
)
def test_every_format_of_triples_is_read(content: str, format: str):
    assert render_text(content, format) == "Ada"


@in_one_test(
    "content", ["no turtle", "", "# nothing but a comment", '{"@context":"https://schema.org/"}']
)
def test_what_has_no_triples_is_embedded_as_it_is(content: str):
    assert render_text(content, "turtle") == content
    assert render_text(content, "jsonld") == content


@in_one_test(
    ("iri", "words"),
    [
        ("https://schema.org/MedicalTrial", "medical trial"),
        ("https://acme.example/id/XMLHttpRequest", "xml http request"),
        ("https://acme.example/ns#has_part", "has part"),
        ("https://acme.example/caf%C3%A9/", "café"),
        ("urn:isbn:the-book", "the book"),
        ("https://acme.example/.../the-mill", "the mill"),
        ("https://acme.example/page.html#the-mill", "the mill"),
        ("https://acme.example/id/3f79bb7b435b05321651daefd374cdc6", ""),
        ("https://acme.example/id/17", ""),
    ],
)
def test_an_iri_is_the_words_in_its_name(iri: str, words: str):
    text = render_text(f"<urn:x:1> <https://schema.org/about> <{iri}> .", "nquads")
    assert text == (f"about: {words}" if words else "")


@in_one_test(
    ("property", "iri", "text"),
    [
        ("email", "mailto:jo.meier@hopfen.example", "jo.meier@hopfen.example"),
        ("email", "MAILTO:jo%2Bme@hopfen.example?subject=Beer", "jo+me@hopfen.example"),
        ("telephone", "tel:+49-951-123.45", "+49-951-123.45"),
        ("contact", "sip:jo_meier@hopfen.example", "sip:jo_meier@hopfen.example"),
        ("location", "geo:49.89,10.88", "geo:49.89,10.88"),
        ("url", "https://jo.hopfen.example/profile_page.html", None),
        ("sameAs", "https://www.linkedin.example/in/jo-meier", None),
        ("mainEntityOfPage", "https://hopfen.example/a_b/17", None),
        ("image", "https://hopfen.example/a_b/Jo-Meier.JPG", None),
        ("about", "https://acme.example", None),
        ("about", "https://acme.example/find?q=a-b", None),
        ("identifier", "https://doi.example/10.1000/182", None),
        ("image", "data:image/png;base64,AAAA-BBBB", ""),
    ],
)
def test_an_address_stays_as_it_is(property: str, iri: str, text: str | None):
    found = render_text(f"<urn:x:1> <https://schema.org/{property}> <{iri}> .", "nquads")
    assert found.partition(": ")[2] == (iri if text is None else text)


def test_the_address_of_a_page_is_shown_though_a_thing_is_called_by_it():
    shop = "https://hopfen.example/the-shop"
    content = f'<{shop}> schema:name "Hopfen"; schema:url <{shop}>; schema:seeAlso <{shop}> .'
    assert render_text(f"@prefix schema: <https://schema.org/> . {content}", "turtle") == (
        f"Hopfen\nurl: {shop}\nsee also: {shop}"
    )


@in_one_test(
    ("literal", "text"),
    [
        ('"4.8E0"^^xsd:double', "4.8"),
        ('"1.5E3"^^xsd:float', "1500"),
        ('"-2.5E-1"^^xsd:double', "-0.25"),
        ('"6.02E23"^^xsd:double', "6.02e+23"),
        ('"INF"^^xsd:double', "INF"),
        ('"many"^^xsd:double', "many"),
        ('"4.80"^^xsd:decimal', "4.80"),
        ('"4.8E0"', "4.8E0"),
    ],
)
def test_a_number_is_as_people_write_it(literal: str, text: str):
    prefix = "@prefix xsd: <http://www.w3.org/2001/XMLSchema#> ."
    rating = f"{prefix} <urn:x:1> <https://schema.org/ratingValue> {literal} ."
    assert render_text(rating, "turtle") == f"rating value: {text}"
