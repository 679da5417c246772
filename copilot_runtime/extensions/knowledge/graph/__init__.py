"""The graph index: triples of all resources, SPARQL and an ontology."""

from copilot_runtime.extensions.knowledge.graph.index import GraphIndex, GraphItem
from copilot_runtime.extensions.knowledge.graph.ontology import Ontology, OntologySettings
from copilot_runtime.extensions.knowledge.graph.options import GraphOptions, read_options
from copilot_runtime.extensions.knowledge.graph.patterns import Pattern, parse_pattern
from copilot_runtime.extensions.knowledge.graph.sparql import SparqlLimits, SparqlResult

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
