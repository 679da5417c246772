"""What pages say, written short."""

from pyoxigraph import Literal

from copilot_runtime.extensions.knowledge.rdf.page import read_page
from copilot_runtime.extensions.knowledge.rdf.terms import RDF, SCHEMA, XSD, Statement

BASE = "https://ex.org/page.html"


def say(page: str, base: str = BASE) -> dict[str, list[str]]:
    """Return the statements about each thing of a page, as `predicate object`."""
    return {
        iri: [write(statement) for statement in statements]
        for iri, statements in read_page(page.encode(), base).items.items()
    }


def write(statement: Statement) -> str:
    """Return predicate and object of a statement; known vocabularies have prefixes."""
    _, predicate, value = statement
    text = f"<{value.value}>" if not isinstance(value, Literal) else str(value)
    return (
        f"<{predicate.value}> {text}".replace(f"<{SCHEMA}", "<")
        .replace(f"<{RDF}type>", "a")
        .replace(f"<{XSD}", "<xsd:")
    )
