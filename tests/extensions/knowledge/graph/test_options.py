"""Options of a graph from a file of settings."""

from typing import Any

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.extensions.knowledge.graph import (
    GraphOptions,
    OntologySettings,
    SparqlLimits,
    read_options,
)
from tests.in_one_test import in_one_test


def test_all_options_can_be_left_out() -> None:
    assert read_options({}) == GraphOptions()


def test_options_are_read_with_their_sections() -> None:
    options = read_options(
        {
            "prefixes": {"our": "https://our.example/"},
            "vocabulary": "",
            "sparql_store": "disk",
            "sparql": {"seconds": 2, "rows": 10},
            "ontology": {"min_inverse_ratio": 0.5, "one_way": ["our:link", "https://x.example/y"]},
        }
    )

    assert options == GraphOptions(
        prefixes={"our": "https://our.example/"},
        sparql_store="disk",
        sparql=SparqlLimits(seconds=2, rows=10),
        ontology=OntologySettings(
            min_inverse_ratio=0.5,
            one_way=frozenset({"https://our.example/link", "https://x.example/y"}),
        ),
    )


@in_one_test(
    ("options", "message"),
    [
        ({"prefix": {}}, "No option of graph named 'prefix'."),
        ({"sparql": {"second": 1}}, "No option of graph.sparql named 'second'."),
        ({"sparql": []}, "graph.sparql must be an object."),
        ({"sparql": {"rows": "many"}}, "graph.sparql.rows must be of the type int, not 'many'."),
        ({"sparql": {"rows": True}}, "graph.sparql.rows must be of the type int, not True."),
        ({"sparql": {"seconds": -1}}, "graph.sparql.seconds must be of the type float, not -1."),
        ({"sparql_store": "tape"}, "graph.sparql_store must be 'memory' or 'disk'."),
        ({"prefixes": ["a"]}, "The prefixes of a graph must be names with their namespaces."),
        ({"vocabulary": 5}, "graph.vocabulary must be of the type str, not 5."),
        ({"ontology": {"one_way": "x"}}, "graph.ontology.one_way must be a list of predicates."),
        ({"ontology": {"one_way": ["no iri"]}}, "'no iri' is no IRI"),
        ({"ontology": {"max_inverse_ratio": 0.5}}, "The ratios of inverse predicates"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options: Any, message: str) -> None:
    with pytest.raises(CopilotError) as caught:
        read_options(options)
    assert caught.value.message.startswith(message)
    assert isinstance(caught.value, ConfigurationFailed) or "IRI" in message
