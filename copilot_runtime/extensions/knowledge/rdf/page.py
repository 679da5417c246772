"""Read the annotations of a page in all supported syntaxes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyoxigraph import NamedNode, Triple

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.knowledge.namespaces import RDF_TYPE, SCHEMA
from copilot_runtime.extensions.knowledge.rdf.canonical import LONG, name_blank_nodes
from copilot_runtime.extensions.knowledge.rdf.html import parse_html
from copilot_runtime.extensions.knowledge.rdf.jsonld import read_jsonld
from copilot_runtime.extensions.knowledge.rdf.microdata import read_microdata
from copilot_runtime.extensions.knowledge.rdf.rdfa import read_rdfa
from copilot_runtime.extensions.knowledge.rdf.terms import Statements, make_iri
from copilot_runtime.extensions.knowledge.rdf.triples import order_types_first

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_JSON_LD = "application/ld+json"


@dataclass(frozen=True)
class Page:
    """The annotations of one page."""

    items: Mapping[str, list[Triple]]
    """The triples of each thing that has a type of schema.org, by its IRI, types first."""
    annotated: bool = False
    """Whether the text itself is annotated (microdata or RDFa), not only a script."""
    warnings: list[str] = field(default_factory=list[str])
    """Annotations that could not be read."""
    root: "Element | None" = None


def read_page(data: bytes, base: str, digits: int = LONG) -> Page:
    """Read microdata, RDFa and JSON-LD of an HTML page. Nothing is loaded from elsewhere.

    `base` is the address of the page, unless the page names another one; `digits` are those of
    the names of things without a name. Raises `LimitExceeded` for a page that is an attack.
    """
    root = parse_html(data)
    if root is None:
        return Page({})
    base = _find_base(root, base)
    statements = Statements()
    warnings: list[str] = []
    if root.find(".//*[@itemscope]") is not None:
        read_microdata(root, base, statements)
    if root.find(".//*[@typeof]") is not None:
        read_rdfa(root, base, statements)
    annotated = len(statements)
    for script in root.iter("script"):
        if script.get("type", "").partition(";")[0].strip().lower() == _JSON_LD:
            try:
                read_jsonld(script.text or "", base, statements)
            except CopilotError as error:
                warnings.append(error.message)
    items = group_items(name_blank_nodes(statements, digits))
    return Page(items, annotated > 0 and bool(items), warnings, root)


def group_items(triples: Iterable[Triple]) -> dict[str, list[Triple]]:
    """Return the triples of each thing with a schema.org type, in order of appearance."""
    things: dict[str, list[Triple]] = {}
    typed: set[str] = set()
    for triple in triples:
        if isinstance(triple.subject, NamedNode):
            iri = triple.subject.value
            things.setdefault(iri, []).append(triple)
            if triple.predicate == RDF_TYPE and _is_schema(triple.object):
                typed.add(iri)
    return {iri: order_types_first(triples) for iri, triples in things.items() if iri in typed}


def merge_triples(*parts: Iterable[Triple]) -> list[Triple]:
    """Return the distinct triples of several sources, the first sources first.

    Two triples are one if they have the same subject, predicate and object, and the same kind,
    datatype and language of object.
    """
    return [*dict.fromkeys(triple for part in parts for triple in part)]


def _is_schema(term: object) -> bool:
    return isinstance(term, NamedNode) and term.value.startswith(SCHEMA)


def _find_base(root: "Element", base: str) -> str:
    element = root.find(".//base[@href]")
    named = make_iri(element.get("href") or "", base) if element is not None else None
    return named.value if named else base
