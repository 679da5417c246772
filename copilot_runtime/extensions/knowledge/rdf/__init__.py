"""Annotations of pages as RDF: microdata, RDFa and JSON-LD, in one canonical form."""

from copilot_runtime.extensions.knowledge.rdf.canonical import name_blank_nodes
from copilot_runtime.extensions.knowledge.rdf.html import clean_text
from copilot_runtime.extensions.knowledge.rdf.jsonld import write_jsonld
from copilot_runtime.extensions.knowledge.rdf.page import (
    Page,
    group_items,
    merge_triples,
    read_page,
)
from copilot_runtime.extensions.knowledge.rdf.triples import (
    read_triples,
    write_nquads,
    write_turtle,
)

__all__ = [
    "Page",
    "clean_text",
    "group_items",
    "merge_triples",
    "name_blank_nodes",
    "read_page",
    "read_triples",
    "write_jsonld",
    "write_nquads",
    "write_turtle",
]
