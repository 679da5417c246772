"""Spans of queries to databases say no value of them."""

import pytest

from copilot_runtime.base.errors import Refused
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.storage import MemoryStorage
from copilot_runtime.telemetry import NO_SPAN, LocalTelemetry, semconv, work_under
from copilot_runtime.telemetry.database import mask_query, start_database_span
from tests.in_one_test import in_one_test
from tests.telemetry.recorded import Spans, find_violations

pytestmark = pytest.mark.anyio

SECRET = "canary-4711"


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def telemetry(spans: Spans) -> LocalTelemetry:
    return LocalTelemetry(spans)


def test_a_query_has_its_form_and_no_value(spans: Spans, telemetry: LocalTelemetry) -> None:
    span = start_database_span(
        telemetry.start_span("root"),
        system="duckdb",
        operation="SELECT",
        collection="orders",
        namespace="shop",
        query="SELECT *\n  FROM orders -- mine\n WHERE total > 10.5 AND name = 'Ann'",
    )
    span.end()
    assert (span.name, span.kind, find_violations(span)) == ("SELECT orders", "client", [])
    assert span.attributes == {
        semconv.DB_SYSTEM_NAME: "duckdb",
        semconv.DB_OPERATION_NAME: "SELECT",
        semconv.DB_COLLECTION_NAME: "orders",
        semconv.DB_NAMESPACE: "shop",
        semconv.DB_QUERY_SUMMARY: "SELECT orders",
        semconv.DB_QUERY_TEXT: "SELECT * FROM orders WHERE total > ? AND name = ?",
    }


def test_a_query_that_nobody_traces_has_no_span() -> None:
    assert start_database_span(NO_SPAN, system="duckdb", operation="SELECT") is NO_SPAN


@in_one_test(
    ("query", "form"),
    [
        (
            "SELECT col1, t2.x FROM t2 WHERE a=-5e3 OR b=0xFF",
            "SELECT col1, t2.x FROM t2 WHERE a=-? OR b=?",
        ),
        ("SELECT 'it''s', x'00ff', E'a' FROM t", "SELECT ?, ?, ? FROM t"),
        ('SELECT "a""b" FROM `c d`', "SELECT ? FROM ?"),
        ("SELECT 'a\\\\' || b", "SELECT ? || b"),
        (f"SELECT 'C:\\' || b, '{SECRET}'", "SELECT ?"),
        (f'SELECT "C:\\" || b, "{SECRET}"', "SELECT ?"),
        (f"SELECT 'it\\'s {SECRET}'", "SELECT ?"),
        (f"SELECT '{SECRET}", "SELECT ?"),
        (f"SELECT '{SECRET}\\", "SELECT ?"),
        (f"SELECT $${SECRET}$$, $q$ $$ {SECRET} $q$ FROM t", "SELECT ?, ? FROM t"),
        (f"SELECT $q$ {SECRET}", "SELECT ?"),
        ("SELECT a FROM t WHERE b = $1 AND c = ?", "SELECT a FROM t WHERE b = $1 AND c = ?"),
        (f"SELECT 1 # {SECRET}\nFROM t", "SELECT ? FROM t"),
        (f"SELECT /* a /* b */ {SECRET} */ 1", "SELECT ?"),
        (f"SELECT 1 /* {SECRET}", "SELECT ?"),
        ("", ""),
    ],
)
def test_values_comments_and_quoted_names_are_masked(query: str, form: str) -> None:
    assert mask_query(query) == form


def test_a_long_query_is_cut() -> None:
    assert len(mask_query("SELECT " + "a, " * 100_000)) == 2001


async def test_a_query_of_the_graph_is_a_query_to_a_database(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    knowledge = Knowledge(MemoryStorage(), embedder="hashing:64")
    with work_under(telemetry.start_span("root")):
        await knowledge.sparql(f'SELECT ?s WHERE {{ ?s ?p "{SECRET}" }}')
        with pytest.raises(Refused):
            await knowledge.sparql("DELETE WHERE { ?s ?p ?o }")
    await knowledge.aclose()
    found, refused = spans.spans
    assert [find_violations(span) for span in spans.spans] == [[], []]
    assert found.name == "SELECT"
    assert found.attributes[semconv.DB_RESPONSE_RETURNED_ROWS] == 0
    assert SECRET not in repr(found.attributes)
    assert (refused.name, refused.status) == ("SPARQL", "error")
