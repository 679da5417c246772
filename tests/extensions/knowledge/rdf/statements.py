"""What pages say, written short."""

from pyoxigraph import Literal, Triple

from copilot_runtime.extensions.knowledge.rdf.page import read_page
from copilot_runtime.extensions.knowledge.rdf.terms import RDF, SCHEMA, XSD

BASE = "https://ex.org/page.html"


def say(page: str, base: str = BASE) -> dict[str, list[str]]:
    """Return the statements about each thing of a page, as `predicate object`."""
    return {
        iri: [write(triple) for triple in triples]
        for iri, triples in read_page(page.encode(), base).items.items()
    }


def write(triple: Triple) -> str:
    """Return predicate and object of a triple; known vocabularies have prefixes."""
    value = triple.object
    text = f"<{value.value}>" if not isinstance(value, Literal | Triple) else str(value)
    return (
        f"<{triple.predicate.value}> {text}".replace(f"<{SCHEMA}", "<")
        .replace(f"<{RDF}type>", "a")
        .replace(f"<{XSD}", "<xsd:")
    )
