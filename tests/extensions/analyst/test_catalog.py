"""Metrics of an operator: compiled to SQL that can be trusted, and known again in a model's."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.semantic.catalog import MetricCatalog
from copilot_runtime.extensions.analyst.semantic.compile import DimensionFilter
from tests.in_one_test import in_one_test

CATALOG = """
metric_catalog:
  shop:
    revenue:
      description: What customers paid, without what was sent back.
      table: orders
      sql: SUM(amount)
      filters: ["status <> 'returned'"]
      dimensions: [status, customers.country]
      time: paid_at
    return_rate:
      description: Part of the orders that were sent back.
      table: orders
      ratio:
        numerator: COUNT(*) FILTER (WHERE status = 'returned')
        denominator: COUNT(*)
      dimensions: {status: status}
  quality:
    amount:
      description: Of one order.
      score_range: [0, 100]
      threshold: 0.7
      signals: {payload_kind: number, group_fields: [status], note: In euros.}
relations:
  - {column: orders.customer, references: customers.id}
"""
ORDERS = [
    Column("customer", "INTEGER"),
    Column("amount", "DOUBLE"),
    Column("status", "VARCHAR"),
    Column("paid_at", "TIMESTAMP"),
]
CUSTOMERS = [Column("id", "INTEGER"), Column("country", "VARCHAR")]
DATA = """
CREATE TABLE orders(customer INTEGER, amount DOUBLE, status VARCHAR, paid_at TIMESTAMP);
INSERT INTO orders VALUES
  (1, 10, 'paid', '2026-01-05'), (1, 20, 'paid', '2026-02-05'), (2, 5, 'returned', '2026-02-06'),
  (3, 7, 'open', '2026-02-07');
CREATE TABLE customers(id INTEGER, country VARCHAR);
INSERT INTO customers VALUES (1, 'FR'), (1, 'FR'), (2, 'DE');
"""


@pytest.fixture(scope="module")
def catalog() -> MetricCatalog:
    return MetricCatalog.parse(CATALOG)


def run(sql: str) -> list[Any]:
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.execute(DATA)
        return connection.execute(sql).fetchall()


def test_a_metric_has_its_filters(catalog: MetricCatalog) -> None:
    assert run(catalog.compile("Revenue").sql) == [(37.0,)]


def test_a_join_repeats_no_rows_even_where_keys_are_twice(catalog: MetricCatalog) -> None:
    compiled = catalog.compile("revenue", group_by=["country"])
    assert run(compiled.sql) == [("FR", 30.0), (None, 7.0)]


def test_a_metric_is_grouped_by_periods_and_filtered_by_dimensions(catalog: MetricCatalog) -> None:
    compiled = catalog.compile(
        "revenue", grain="month", filters=[DimensionFilter("status", "in", ["paid", "x' OR 1=1"])]
    )
    assert [(str(month)[:7], value) for month, value in run(compiled.sql)] == [
        *(("2026-01", 10.0), ("2026-02", 20.0))
    ]


def test_a_ratio_without_rows_is_null(catalog: MetricCatalog) -> None:
    filters = [DimensionFilter("status", "=", "lost")]
    assert run(catalog.compile("return_rate").sql) == [(0.25,)]
    assert run(catalog.compile("return_rate", filters=filters).sql) == [(None,)]


@in_one_test(
    ("arguments", "message"),
    [
        ({"name": "revenu"}, "Did you mean 'revenue'?"),
        ({"name": "revenue", "group_by": ["amount"]}, "Dimensions: status, country."),
        ({"name": "return_rate", "grain": "month"}, "has no time column"),
        ({"name": "revenue", "grain": "century"}, "is no period"),
        ({"name": "amount"}, "has no SQL"),
    ],
)
def test_what_a_metric_lacks_is_named(
    catalog: MetricCatalog, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationFailed, match=message.replace("?", r"\?")):
        catalog.compile(**arguments)


@in_one_test(
    ("sql", "metrics"),
    [
        ("SELECT SUM(amount) FROM orders WHERE status <> 'returned'", ["revenue"]),
        (
            "select o.status, sum(o.amount) as total from orders o where o.status <> 'returned' "
            "group by all order by total desc limit 3",
            ["revenue"],
        ),
        (
            "SELECT date_trunc('month', paid_at) m, SUM(amount) FROM orders "
            "WHERE paid_at >= '2026-01-01' AND status <> 'returned' GROUP BY 1",
            ["revenue"],
        ),
        ("SELECT SUM(amount) FROM orders", []),
        ("SELECT SUM(amount) FROM orders WHERE status <> 'paid'", []),
        ("SELECT SUM(amount) FROM orders WHERE status <> 'returned' OR TRUE", []),
        ("SELECT SUM(amount) FROM orders WHERE status <> 'returned' AND amount > 5", []),
        ("SELECT customer, SUM(amount) FROM orders WHERE status <> 'returned' GROUP BY 1", []),
        ("SELECT SUM(amount) FROM other WHERE status <> 'returned'", []),
        (
            "SELECT (COUNT(*) FILTER (WHERE status = 'returned')) / NULLIF(COUNT(*), 0) "
            "FROM orders",
            ["return_rate"],
        ),
    ],
)
def test_sql_that_is_a_metric_is_known_again(
    catalog: MetricCatalog, sql: str, metrics: list[str]
) -> None:
    assert catalog.match(sqlglot.parse_one(sql, read="duckdb")) == metrics


def test_a_prompt_gets_the_metrics_that_the_data_has(catalog: MetricCatalog) -> None:
    assert catalog.render_metrics([Column("amount", "DOUBLE")]) == (
        "- amount (quality): Of one order.; range 0 to 100; threshold 0.7"
    )
    assert catalog.render_metrics(ORDERS, "orders").splitlines()[0] == (
        "- revenue (shop): What customers paid, without what was sent back.; "
        "SQL SUM(amount) FROM orders; WHERE status <> 'returned'"
    )
    assert "In euros." in catalog.describe_metrics(ORDERS, "amount")


def test_a_prompt_gets_3000_characters_of_metrics_at_most() -> None:
    metrics = "".join(f"    m{at}: {{description: {'x' * 500}}}\n" for at in range(100))
    catalog = MetricCatalog.parse(f"metric_catalog:\n  all:\n{metrics}")
    text = catalog.render_metrics([Column(f"m{at}", "DOUBLE") for at in range(100)])
    assert len(text) <= 3_000
    assert max(map(len, text.splitlines())) < 150


def test_a_metric_of_a_column_that_is_gone_is_stale(catalog: MetricCatalog) -> None:
    tables = {"orders": [one for one in ORDERS if one.name != "amount"], "customers": CUSTOMERS}
    stale = [(one.name, one.reason) for one in catalog.list_stale(tables)]
    assert stale == [("revenue", "'orders' has no column 'amount'")]
    assert catalog.list_stale({"orders": ORDERS, "customers": CUSTOMERS}) == []


@in_one_test(
    ("text", "message"),
    [
        ("metric_catalog:\n  a:\n    m:\n      table: t\n      sql: amount\n", ":5: .*aggregate"),
        ("metric_catalog:\n  a:\n    m:\n      sql: SUM(x)\n", ":3: .*'table' is missing"),
        ("metric_catalog:\n  a:\n    m:\n      tabel: t\n", ":4: .*did you mean 'table'"),
        ("a:\n  m:\n    table: t\n    sql: SUM((SELECT 1))\n", ":4: .*more than columns"),
        ("a:\n  m:\n    table: t\n    sql: 'SUM(x) FROM y'\n", ":4: .*not one SQL"),
        ("a:\n  m: 7\n", ":2: "),
        ("metric_catalog: [", ":1: not YAML"),
        ("relations:\n  - {column: a, references: b.c}\n", ":2: "),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigurationFailed, match=message):
        MetricCatalog.parse(text)


def test_both_files_are_read_and_neither_has_to_be_there(tmp_path: Path) -> None:
    assert len(MetricCatalog.load(tmp_path)) == 0
    (tmp_path / "metric_catalog.yaml").write_text("shop:\n  one: {description: One.}\n")
    (tmp_path / "metric_definitions.yaml").write_text(
        "other: 1\nmetric_catalog:\n  shop:\n    two: {score_range: 0-1}\n"
    )
    assert len(MetricCatalog.load(tmp_path)) == 2
    (tmp_path / "metric_catalog.yml").write_text("shop:\n  one: {}\n")
    with pytest.raises(ConfigurationFailed, match="'one' is there twice"):
        MetricCatalog.load(tmp_path)
