"""The demo model answers a hundred questions about two data sets, or says that it cannot.

A text is the SQL of somebody who knows the data, a list its rows; `None` means that the demo asks
the data nothing, and says what it can answer.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from copilot_runtime import CopilotRuntime, DemoAdapter
from copilot_runtime.api.events import ActionExecutionResult
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.testing import Client
from tests.test_examples import EXAMPLES

pytestmark = pytest.mark.anyio

Row = Sequence[Any]

SALES = """\
order_id,date,region,product,quantity,unit_price,total
1,2026-01-05,North,Kettle,2,20.00,40.00
2,2026-01-12,South,Toaster,1,35.50,35.50
3,2026-01-20,North,Mixer,1,80.00,80.00
4,2026-02-02,East,Kettle,3,20.00,60.00
5,2026-02-14,South,Kettle,5,19.00,95.00
6,2026-02-20,West,Toaster,2,35.50,71.00
7,2026-03-01,East,Mixer,1,82.00,82.00
8,2026-03-09,South,Mixer,2,80.00,160.00
9,2026-03-15,North,Toaster,1,34.00,34.00
10,2026-03-28,West,Kettle,1,20.00,20.00
"""

OF_SALES: Sequence[tuple[str, Sequence[Row] | None]] = [
    ("How many rows are there?", [(10,)]),
    ("What is the total number of orders?", [(10,)]),
    ("How many products are there?", [(3,)]),
    ("How many different regions do we have?", [(4,)]),
    ("What is the total?", [(677.5,)]),
    ("What are the total sales?", [(677.5,)]),
    ("What is the average price?", [(42.6,)]),
    ("What is the average order value?", [(67.75,)]),
    ("How much did we sell in February 2026?", [(226,)]),
    (
        "Which region sells most?",
        [("South", 290.5), ("North", 154), ("East", 142), ("West", 91)],
    ),
    (
        "Which region sells least?",
        [("West", 91), ("East", 142), ("North", 154), ("South", 290.5)],
    ),
    (
        "Which product sold the most?",
        [("Mixer", 322), ("Kettle", 215), ("Toaster", 140.5)],
    ),
    ("Top 2 products by sales", [("Mixer", 322), ("Kettle", 215)]),
    ("What are the 3 best regions?", [("South", 290.5), ("North", 154), ("East", 142)]),
    ("Show sales by month", [("2026-01-01", 155.5), ("2026-02-01", 226), ("2026-03-01", 296)]),
    (
        "Which month had the highest sales?",
        [("2026-03-01", 296), ("2026-02-01", 226), ("2026-01-01", 155.5)],
    ),
    ("Total by region", [("South", 290.5), ("North", 154), ("East", 142), ("West", 91)]),
    ("How many orders per month?", [("2026-01-01", 3), ("2026-02-01", 3), ("2026-03-01", 4)]),
    ("How many Kettles were sold?", [(11,)]),
    (
        "Average quantity by region",
        [("South", 2.667), ("East", 2), ("West", 1.5), ("North", 1.333)],
    ),
    ("What is the highest price?", [(82,)]),
    ("What is the smallest total?", [(20,)]),
    ("What is the median total?", [(65.5,)]),
    ("What share of sales comes from the South?", [(0.429,)]),
    (
        "What share of revenue does each region have?",
        [("South", 0.429), ("North", 0.227), ("East", 0.21), ("West", 0.134)],
    ),
    ("Kettle sales in March 2026", [(20,)]),
    ("Monthly revenue of Mixers", [("2026-01-01", 80), ("2026-03-01", 242)]),
    ("What is the average number of orders per region?", [(2.5,)]),
    ("Mean orders per product", [(3.333,)]),
    ("How many orders on average per month?", [(3.333,)]),
    ("Average orders per day in January 2026", None),
    ("Average number of Kettle orders per region", None),
    ("How many orders in total?", [(10,)]),
    ("Average number of orders by region and month", None),
    ("Median orders per region", None),
    ("What is the typical number of orders per month?", None),
    ("Average of total per region per month", None),
    ("Average monthly sales", None),
    ("What is the maximum number of orders?", None),
    ("How many orders since 2026-02-14?", [(6,)]),
    ("Total sales before March 2026", [(381.5,)]),
    ("Total sales after February 2026", [(296,)]),
    ("Sales on 2026-02-02", [(60,)]),
    ("Sales in 2026-03", [(296,)]),
    ("Sales on 2026-02-31", None),
    ("Sales between 2026-01-01 and 2026-01-31", None),
    ("Quantity over 2", None),
    ("How many orders above 100?", None),
    ("Why did sales drop in February 2026?", None),
    ("Who wrote Hamlet?", None),
    ("Which customer spends most?", None),
    ("What is the sum of the order ids?", None),
    ("Which products sell better than kettles?", None),
]

ORDERS = """\
date,city,product,quantity,price,tax_amount
2026-01-05,Paris,Croissant,10,1.20,0.66
2026-01-06,Lyon,Baguette,5,1.10,0.30
2026-02-01,Paris,Brioche,3,4.50,0.74
"""

OF_ORDERS: Sequence[tuple[str, Sequence[Row] | None]] = [
    ("revenue by product", None),
    ("What is the total revenue per city?", None),
    ("Top products by turnover", None),
    ("profit by product", None),
    ("What is the margin of each product?", None),
    ("cost by city", None),
    ("weight by product", None),
    ("How many customers are there?", None),
    ("What is the income per month?", None),
    ("Which product earns most?", None),
    ("total sales by city", None),
    ("What share of revenue does each city have?", None),
    ("Average order value", None),
    ("Compare the revenue of Paris and Lyon", None),
    ("How many croissants were sold?", [(10,)]),
    ("Which city sells most?", [("Paris", 13), ("Lyon", 5)]),
    ("Sum the quantity by city", [("Paris", 13), ("Lyon", 5)]),
]

UNITS = """\
Region,Month,Units,Revenue (EUR)
North,2026-01-01,10,1000.5
South,2026-01-01,5,n/a
North,2026-02-01,7,700
,2026-02-01,30,50
South,2026-02-01,9,900
Total,,61,2650.5
"""

OF_UNITS: Sequence[tuple[str, Sequence[Row] | None]] = [
    ("Sum revenue by region", None),
    ("What is the average revenue?", None),
    ("Show revenue by month as a chart", None),
    ("Sum units and revenue by region", None),
    ("Compare the revenue of North and South", None),
    ("What is the revenue of the North?", None),
    ("How many different revenues are there?", None),
    ("Sum profit by region", None),
    ("Which region sells most?", [("North", 17), ("South", 14)]),
    ("Sum units by month", [("2026-01-01", 15), ("2026-02-01", 46)]),
    ("What are the total units?", [(61,)]),
    ("What is the total of the North?", [(17,)]),
    ("How many rows are there?", [(5,)]),
    ("How many rows of units are there by region?", [("North", 2), ("South", 2), (None, 1)]),
    ("How many rows are in units?", [(5,)]),
    ("What is the highest units?", [(30,)]),
]

OF_THE_SHOP: Sequence[tuple[str, str | None]] = [
    ("How many customers are there?", "SELECT count(*) FROM customers"),
    (
        "How many orders were there in June 2026?",
        "SELECT count(*) FROM orders WHERE ordered_at >= '2026-06-01'",
    ),
    ("How many orders came back?", "SELECT count(*) FROM orders WHERE returned"),
    ("What share of orders was returned?", "SELECT avg(returned::INT) FROM orders"),
    (
        "What is the return rate by store?",
        "SELECT store, avg(returned::INT) AS r FROM orders GROUP BY store ORDER BY r DESC",
    ),
    (
        "Which products come back most often?",
        "SELECT product, avg(returned::INT) AS r FROM orders GROUP BY product ORDER BY r DESC",
    ),
    (
        "What is the total revenue of each store?",
        "SELECT store, sum(revenue) AS r FROM orders WHERE NOT returned "
        "GROUP BY store ORDER BY r DESC",
    ),
    ("What is the average revenue per order?", "SELECT avg(revenue) FROM orders"),
    (
        "Which region sells most?",
        "SELECT region, sum(revenue) AS r FROM orders JOIN customers USING (customer_id) "
        "WHERE NOT returned GROUP BY region ORDER BY r DESC",
    ),
    (
        "Which segment spends the most?",
        "SELECT segment, sum(revenue) AS r FROM orders JOIN customers USING (customer_id) "
        "WHERE NOT returned GROUP BY segment ORDER BY r DESC",
    ),
    (
        "Which store has the most orders?",
        "SELECT store, count(*) AS n FROM orders GROUP BY store ORDER BY n DESC",
    ),
    (
        "Which manager has the lowest revenue?",
        "SELECT manager, sum(revenue) AS r FROM orders WHERE NOT returned "
        "GROUP BY manager ORDER BY r",
    ),
    (
        "Top 5 products by revenue",
        "SELECT product, sum(revenue) AS r FROM orders WHERE NOT returned "
        "GROUP BY product ORDER BY r DESC LIMIT 5",
    ),
    (
        "The top 3 categories by quantity",
        "SELECT category, sum(quantity) AS q FROM orders GROUP BY category ORDER BY q DESC LIMIT 3",
    ),
    (
        "Revenue by quarter in 2025",
        "SELECT date_trunc('quarter', ordered_at) AS q, sum(revenue) FROM orders "
        "WHERE NOT returned AND year(ordered_at) = 2025 GROUP BY q ORDER BY q",
    ),
    (
        "Revenue of the Online store in 2026",
        "SELECT sum(revenue) FROM orders "
        "WHERE NOT returned AND store = 'Online' AND year(ordered_at) = 2026",
    ),
    (
        "How many orders did the Harbour have in May 2026?",
        "SELECT count(*) FROM orders WHERE store = 'Harbour' "
        "AND date_trunc('month', ordered_at) = '2026-05-01'",
    ),
    (
        "What is the average delivery time by month?",
        "SELECT date_trunc('month', ordered_at) AS m, avg(delivery_days) FROM orders "
        "GROUP BY m ORDER BY m",
    ),
    (
        "Average discount by category",
        "SELECT category, avg(discount) AS d FROM orders GROUP BY category ORDER BY d DESC",
    ),
    (
        "What is the average faithfulness by model?",
        "SELECT model, avg(faithfulness_score) AS f FROM eval_data GROUP BY model ORDER BY f DESC",
    ),
    (
        "Which bot has the lowest faithfulness?",
        "SELECT source_name, avg(faithfulness_score) AS f FROM eval_data "
        "GROUP BY source_name ORDER BY f",
    ),
    ("Average number of orders per customer", "SELECT count(*) / 400 FROM orders"),
    ("Average orders per day", "SELECT count(*) / 546 FROM orders"),
    (
        "How many customers are in each region?",
        "SELECT region, count(*) AS n FROM customers GROUP BY region ORDER BY n DESC, region",
    ),
    (
        "How many school customers are there?",
        "SELECT count(*) FROM customers WHERE segment = 'school'",
    ),
    ("How many products do we sell?", "SELECT count(DISTINCT product) FROM orders"),
    (
        "Gross revenue by store",
        "SELECT store, sum(revenue) AS r FROM orders GROUP BY store ORDER BY r DESC",
    ),
    ("Revenue of returned orders", "SELECT sum(revenue) FROM orders WHERE returned"),
    (
        "Which store has the highest margin?",
        "SELECT store, 1 - sum(cost) / sum(revenue) AS m FROM orders WHERE NOT returned "
        "GROUP BY store ORDER BY m DESC",
    ),
    ("What is the average return rate?", "SELECT avg(returned::INT) FROM orders"),
    ("What is the average gross revenue?", None),
    ("What is the profit margin?", None),
    ("Why do lanterns come back?", None),
    ("Delete all orders", None),
    ("What is the average customer id?", None),
]


async def ask(client: Client, question: str) -> tuple[Sequence[Row] | None, str]:
    """Return the rows that the demo read for a question, or `None`, and what it said."""
    reply = await client.say(question)
    results = [event.result for event in reply.events if isinstance(event, ActionExecutionResult)]
    rows = json.loads(results[-1]).get("rows") if results else None
    return None if rows is None else [_round(row.values()) for row in rows], reply.text


def _round(values: Any) -> Row:
    """Return values as JSON and literals have them: floats of three places, days as text."""
    return tuple(
        round(value, 3)
        if isinstance(value, float)
        else str(value)[:10]
        if "-01" in str(value)
        else value
        for value in values
    )


def serve(data: str, folder: str, store: Path) -> Client:
    environ = {"NAME": "analyst", "DATA": data, "FOLDER": folder, "STORE": str(store)}
    settings = load_settings(
        os.devnull, {f"COPILOT_ANALYST_{name}": value for name, value in environ.items()}
    )
    return Client(CopilotRuntime(DemoAdapter(pace=0), settings=settings), agent="analyst")


async def answer_all(client: Client, questions: Sequence[str]) -> Mapping[str, Any]:
    """Return the rows of each question, or `None` if the demo read none and said why."""
    answers: dict[str, Any] = {}
    async with client:
        for question in questions:
            rows, text = await ask(client, question)
            is_refusal = rows is None and "I am the demo model" in text and "such as" in text
            answers[question] = rows if rows is not None else None if is_refusal else text
    return answers


async def test_thirty_questions_about_sales_have_right_answers(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text(SALES, encoding="utf-8")
    client = serve(str(tmp_path / "sales.csv"), "", tmp_path / "store")

    answers = await answer_all(client, [question for question, _ in OF_SALES])

    assert answers == {question: rows and [*rows] for question, rows in OF_SALES}


async def test_a_number_of_units_is_no_answer_to_a_question_about_money(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(ORDERS, encoding="utf-8")
    client = serve(str(tmp_path / "orders.csv"), "", tmp_path / "store")

    answers = await answer_all(client, [question for question, _ in OF_ORDERS])

    assert answers == {question: rows and [*rows] for question, rows in OF_ORDERS}


async def test_questions_about_a_file_with_a_text_of_numbers_and_a_total_have_right_answers(
    tmp_path: Path,
) -> None:
    (tmp_path / "units.csv").write_text(UNITS, encoding="utf-8")
    client = serve(str(tmp_path / "units.csv"), "", tmp_path / "store")

    answers = await answer_all(client, [question for question, _ in OF_UNITS])

    assert answers == {question: rows and [*rows] for question, rows in OF_UNITS}
    async with client:
        _, refusal = await ask(client, "Sum units by customer")
        _, text = await ask(client, "Sum revenue by region")
        _, other = await ask(client, "Summe von Revenue und Region")
    assert "I do not understand “customer” here." in refusal
    assert "is a text, which" not in other
    assert "'Revenue (EUR)' is a text: 1 of its 6 values are not of the type DOUBLE." in text


async def test_a_question_about_two_tables_that_are_not_joined_is_refused_by_their_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "products.csv").write_text("id,category\n1,Tents\n2,Shoes\n", encoding="utf-8")
    (tmp_path / "orders.csv").write_text(
        "order_id,product_id,quantity,day\n1,1,3,01/02/2026\n2,2,4,02/03/2026\n"
    )

    async with serve(f"{tmp_path}/*.csv", "", tmp_path / "store") as client:
        _, refusal = await ask(client, "total quantity by category")
        _, of_months = await ask(client, "total quantity by month")
        _, of_products = await ask(client, "Which of the products is nicest?")

    assert (
        "I do not understand “category” here. 'category' is a column of products, which I cannot "
        "join with orders; for a real model, set `OPENAI_API_KEY`. I can count" in refusal
    )
    assert "- How many rows are in products?" in of_products
    assert "“month” here. 'day' is a text: its dates may begin with the day or" in of_months


@pytest.mark.stalls(reason="The test asks DuckDB for the right answers.")
async def test_thirty_questions_about_a_shop_have_right_answers(tmp_path: Path) -> None:
    shop = EXAMPLES / "analyst"
    files = f"{shop}/data/*.csv,{shop}/data/*.parquet"
    client = serve(files, str(shop / "config"), tmp_path)

    answers = await answer_all(client, [question for question, _ in OF_THE_SHOP])

    assert answers == {question: sql and read(sql) for question, sql in OF_THE_SHOP}


def read(sql: str) -> Sequence[Row]:
    """Return the rows of a query about the shop."""
    with duckdb.connect() as connection:
        for file in (EXAMPLES / "analyst" / "data").iterdir():
            connection.execute(f"CREATE VIEW {file.stem} AS FROM '{file}'")
        return [_round(row) for row in connection.execute(sql).fetchall()]
