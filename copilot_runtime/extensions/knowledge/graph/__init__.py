"""The graph index: triples of all resources, SPARQL and an ontology."""

from copilot_runtime.extensions.knowledge.graph.index import GraphIndex, GraphItem
from copilot_runtime.extensions.knowledge.graph.ontology import (
    GraphOptions,
    Ontology,
    OntologySettings,
    read_options,
)
from copilot_runtime.extensions.knowledge.graph.sparql import SparqlLimits, SparqlResult
from copilot_runtime.extensions.knowledge.graph.terms import Pattern, parse_pattern

__all__ = [
    "GraphIndex",
    "GraphItem",
    "GraphOptions",
    "Ontology",
    "OntologySettings",
    "Pattern",
    "SparqlLimits",
    "SparqlResult",
    "parse_pattern",
    "read_options",
]
