"""A result that may mislead says so in a sentence."""

from dataclasses import dataclass
from typing import Any

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from copilot_runtime.extensions.analyst.checks import check_result
from copilot_runtime.extensions.analyst.results import Column, Fix, Table
from copilot_runtime.extensions.analyst.sql.repair.context import RepairContext
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

DATA = """
CREATE TABLE orders(id INTEGER, customer INTEGER, amount DOUBLE, note VARCHAR, size VARCHAR);
INSERT INTO orders SELECT i, i % 4, i, NULL, CASE WHEN i = 3 THEN 'big' ELSE i::VARCHAR END
  FROM range(20) t(i);
CREATE TABLE customers(id INTEGER, country VARCHAR);
INSERT INTO customers VALUES (0, 'FR'), (1, 'DE'), (2, 'DE');
CREATE TABLE items(order_id INTEGER, price DOUBLE);
INSERT INTO items SELECT i // 2, i FROM range(40) t(i);
CREATE TABLE probes(ph DOUBLE, n FLOAT);
CREATE TABLE bills(paid VARCHAR);
INSERT INTO bills VALUES ('1.234'), (' 2.500'), ('12.5'), ('3');
INSERT INTO probes VALUES (7.5, 1), ('nan', 2), (6.5, NULL), ('inf', 4);
"""


@dataclass
class Data:
    connection: duckdb.DuckDBPyConnection

    def query(self, sql: str) -> Table:
        cursor = self.connection.execute(sql)
        columns = [Column(it[0], str(it[1])) for it in cursor.description]
        return Table(columns=columns, rows=cursor.fetchall())

    async def run(self, tree: exp.Expr) -> Table:
        return self.query(tree.sql(dialect="duckdb"))

    async def check(self, sql: str, **details: Any) -> list[str]:
        names = ("orders", "customers", "items", "probes", "bills")
        tables = {
            name: [Column(it[0], it[1]) for it in self.query(f"DESCRIBE {name}").rows]
            for name in names
        }
        found = await check_result(
            sqlglot.parse_one(sql, read="duckdb"),
            self.query(sql),
            context=RepairContext(tables=tables),
            run=self.run,
            gaps={"n", "note"},
            totals={"customers": {"country": ["FR"]}},
            **details,
        )
        return [*found]


@pytest.fixture(scope="module")
def data() -> Data:
    connection = duckdb.connect(config={"threads": "1"})
    connection.execute(DATA)
    return Data(connection)


@in_one_test(
    ("sql", "sentences"),
    [
        ("SELECT SUM(amount) FROM orders", []),
        (
            "SELECT count(country) FROM Customers",
            ["Lines of 'Customers' with 'FR' in 'country' are counted, too: 1."],
        ),
        (
            "SELECT count(id) FROM customers WHERE coalesce(country, '') NOT IN ('FR')",
            ["Lines of 'customers' with 'FR' in 'country' are left out."],
        ),
        ("SELECT count(id) FROM customers WHERE country = 'FR'", []),
        ("SELECT country, count(id) FROM customers GROUP BY 1", []),
        ("WITH c AS (SELECT * FROM customers) SELECT country, count(id) FROM c GROUP BY 1", []),
        (
            "SELECT count(c.id) FROM (SELECT id FROM customers WHERE id >= 0) c",
            ["Lines of 'customers' with 'FR' in 'country' are counted, too: 1."],
        ),
        (
            "SELECT SUM(CAST(paid AS DOUBLE)) FROM bills",
            ["2 values of 'paid' may be thousands, such as 1.234, and are read as fractions."],
        ),
        ("SELECT SUM(TRY_CAST(replace(paid, '.', '') AS DOUBLE)) FROM bills", []),
        ("SELECT SUM(n) FROM probes", ["1 of 4 rows have no value of 'n'."]),
        ("SELECT SUM(n) FROM probes WHERE n > 1 GROUP BY n > 2 LIMIT 9", []),
        ("SELECT * FROM probes", ["'ph' has values that are NaN or infinite, shown as empty."]),
        ("SELECT id FROM orders WHERE id > 99", ["The result is empty: none fulfils id > 99."]),
        ("SELECT id, note FROM orders", ["Every value of 'note' is NULL."]),
        ("SELECT id FROM orders ORDER BY id LIMIT 3", ["LIMIT 3 may have cut the result."]),
        (
            "SELECT id FROM orders LIMIT 3",
            ["LIMIT 3 may have cut the result, and without ORDER BY it is any of them."],
        ),
        (
            "SELECT SUM(o.amount) FROM orders o JOIN items i ON o.id = i.order_id",
            [
                "items.order_id is not unique: the join repeats rows of 'orders' up to 2 times, "
                "so counts and sums of 'orders' may be too high."
            ],
        ),
        ("SELECT SUM(i.price) FROM orders o JOIN items i ON o.id = i.order_id", []),
        (
            "SELECT c.country, SUM(o.amount) FROM orders o JOIN customers c ON o.customer = c.id "
            "GROUP BY ALL",
            ["The join leaves out 5 of 20 rows of 'orders': 'customers' has no row for them."],
        ),
        (
            "SELECT c.country, SUM(o.amount) FROM orders o LEFT JOIN customers c "
            "ON o.customer = c.id GROUP BY ALL",
            [],
        ),
        (
            "SELECT COUNT(*) FROM orders o JOIN orders p ON o.customer = p.customer",
            [
                "Neither orders.customer nor orders.customer is unique: the join combines up to 5 "
                "with up to 5 rows, so counts and sums may be too high."
            ],
        ),
        (
            "SELECT AVG(amount) FROM orders WHERE id < 3",
            ["The average is over 3 values only."],
        ),
        (
            "SELECT id // 10, AVG(amount) FROM orders WHERE id < 12 GROUP BY 1",
            ["1 of 2 averages are over fewer than 5 values, the smallest over 2."],
        ),
        (
            "SELECT SUM(TRY_CAST(size AS DOUBLE)) FROM orders",
            ["1 value does not convert by TRY_CAST(size AS DOUBLE) and count as NULL."],
        ),
        (
            "SELECT MAX(size) FROM orders",
            [
                "'size' is text and is compared as text, where '9' is more than '10': most of "
                "its values are numbers."
            ],
        ),
    ],
)
async def test_a_result_that_may_mislead_says_so(
    data: Data, sql: str, sentences: list[str]
) -> None:
    assert await data.check(sql) == sentences


async def test_what_a_repair_made_null_is_said_once(data: Data) -> None:
    fix = Fix(
        kind="type",
        before="size",
        after="TRY_CAST(size AS DOUBLE)",
        description="",
        nulls=1,
    )
    found = await data.check("SELECT SUM(TRY_CAST(size AS DOUBLE)) FROM orders", fixes=[fix])
    assert found == ["1 value of 'size' did not convert and count as NULL."]
