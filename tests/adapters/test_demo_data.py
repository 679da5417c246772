"""The demo model asks data: by rules, with the tools of an analyst and the tables of its prompt."""

import json

import pytest

from copilot_runtime.adapters.demo.data_questions import plan_call, suggest_questions
from copilot_runtime.adapters.demo.matching import Call
from copilot_runtime.adapters.demo.schema import read_schema
from copilot_runtime.api import Action
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage
from tests.adapters.test_demo import answer, calls_of, said, text_of
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

SCHEMA = """\
You are an analyst.

<schema>
-- Dataset DuckDB table orders (6,247 rows)
CREATE TABLE orders ( -- 6,247 rows | 2025-01-01 → 2026-06-30
  order_id BIGINT, -- 6,247 unique | range: [10001 .. 16247], avg: 1.3e4
  ordered_at TIMESTAMP, -- 6,100 unique | range: [2025-01-01 .. 2026-06-30] | also: date
  store VARCHAR, -- 3 unique | values: 'Harbour', 'Market Square', 'Online' | also: shop, branch
  product VARCHAR, -- 11 unique | values: Camp stove, Dome tent, …
  revenue DOUBLE, -- range: [9.8 .. 899], avg: 83.6
  returned BOOLEAN, -- 2 unique | values: false, true | also: refunded
  "delivery days" BIGINT -- 7 unique, 44.7% null
);

## Other tables (secondary: only if the question needs them)
- kpi_data(name VARCHAR, month DATE, value DOUBLE)
- eval_data(id VARCHAR, faithfulness_score DOUBLE, price DECIMAL(10, 2), timestamp TIMESTAMP)
</schema>"""

TOOLS = (
    *("run_sql", "plot_data", "download_data", "save_as_dataset"),
    *("compare_data", "summarize_data"),
)


def plan(question: str) -> Call | None:
    return plan_call(question, read_schema([SCHEMA]), TOOLS)


def test_the_tables_are_read_off_the_prompt() -> None:
    orders, _, other = read_schema([SCHEMA])
    assert [column.name for column in orders.columns] == [
        *("order_id", "ordered_at", "store", "product", "revenue", "returned", "delivery days")
    ]
    assert [*orders.columns[2].values] == ["Harbour", "Market Square", "Online"]
    assert [(column.name, column.type) for column in other.columns][2:] == [
        ("price", "DECIMAL(10, 2)"),
        ("timestamp", "TIMESTAMP"),
    ]


def test_a_chart_by_month() -> None:
    assert plan("Show revenue by month as a chart") == Call(
        "plot_data",
        {
            "chart_type": "line",
            "sql": "SELECT date_trunc('month', ordered_at) AS month, SUM(revenue) AS revenue\n"
            "FROM orders\nGROUP BY ALL\nORDER BY month",
            "x_column": "month",
            "y_column": "revenue",
            "title": "Revenue by month",
        },
    )


@in_one_test(
    ("question", "sql"),
    [
        (
            "Which products come back most often?",
            "SELECT product, AVG(CASE WHEN returned THEN 1.0 ELSE 0.0 END) AS returned_share\n"
            "FROM orders\nWHERE product IS NOT NULL\n"
            "GROUP BY ALL\nORDER BY returned_share DESC\nLIMIT 20",
        ),
        ("How many orders are there in Market Square?",
         "SELECT COUNT(*) AS count\nFROM orders\nWHERE store IN ('Market Square')"),
        ("What is the average revenue per branch?",
         "SELECT store, AVG(revenue) AS average_revenue\nFROM orders\nGROUP BY ALL\n"
         "ORDER BY average_revenue DESC\nLIMIT 20"),
        ("Show faithfulness by week",
         "SELECT date_trunc('week', timestamp) AS week, "
         "AVG(faithfulness_score) AS average_faithfulness_score\nFROM eval_data\nGROUP BY ALL\n"
         "ORDER BY week"),
    ],
)  # fmt: skip
def test_a_question_becomes_sql(question: str, sql: str) -> None:
    assert plan(question) == Call("run_sql", {"sql": sql})


def test_rows_of_a_month_become_a_file() -> None:
    call = plan("Export the orders of June 2026 as CSV")
    assert call is not None
    assert call.tool == "download_data"
    assert "ordered_at >= DATE '2026-06-01'" in call.arguments["sql"]
    assert call.arguments["filename"] == "orders"


def test_two_values_are_compared() -> None:
    assert plan("Compare the revenue of Online and Harbour") == Call(
        "compare_data",
        {
            "group_column": "store",
            "group_a": "Online",
            "group_b": "Harbour",
            "metrics": ["revenue"],
            "table": "orders",
        },
    )


@in_one_test("question", ["Hello!", "Tell me a long story", "", "Show me an error"])
def test_what_is_no_question_about_data_is_answered_as_ever(question: str) -> None:
    assert plan(question) is None


async def test_a_chat_with_an_analyst_calls_its_tools_and_says_what_came_of_it() -> None:
    tools = [Action(name=name) for name in TOOLS]
    system, question = said(SCHEMA, "system"), said("Show revenue by store as a chart")

    called = calls_of(await answer(system, question, actions=tools))
    assert [name for name, _ in called] == ["plot_data"]

    call = ActionExecutionMessage(id="c", name="plot_data", arguments="{}", parent_id=None)
    result = ResultMessage(
        id="r", call_id="c", name="plot_data", result=json.dumps({"result": "The person sees it."})
    )
    said_then = text_of(await answer(system, question, call, result, actions=tools))
    assert said_then.startswith("Here is the chart.")


def test_a_question_cannot_put_sql_into_a_value() -> None:
    schema = SCHEMA.replace("Market Square", "O''Hare")
    call = plan_call("How many in O'Hare?", read_schema([schema]), TOOLS)
    assert call is not None
    assert call.arguments["sql"].endswith("store IN ('O''Hare')")


@in_one_test(
    ("question", "source"),
    [
        ("How many rows are there?", "orders"),
        ("What is the average price?", None),
        ("What is the average price in eval_data.csv?", "eval_data"),
        ("How many rows does the table kpi_data have?", "kpi_data"),
    ],
)
def test_a_chosen_table_is_left_only_for_one_that_is_named(
    question: str, source: str | None
) -> None:
    tables = read_schema([SCHEMA.replace("Dataset DuckDB", "Dataset shop: DuckDB")])
    call = plan_call(question, tables, TOOLS)
    assert (call and call.arguments["sql"].partition("FROM ")[2]) == source


def test_what_sells_most_is_a_sum_and_no_count() -> None:
    tables = read_schema(
        ["<schema>\nCREATE TABLE sales (\n  city VARCHAR,\n  total BIGINT\n);\n</schema>"]
    )
    asked = plan_call("Which cities sell most?", tables, TOOLS)
    assert asked is not None
    assert "SELECT city, SUM(total) AS total" in asked.arguments["sql"]
    counted = plan_call("Which city has most rows?", tables, TOOLS)
    assert counted is not None
    assert "COUNT(*)" in counted.arguments["sql"]


def test_the_questions_that_it_suggests_are_understood() -> None:
    questions = suggest_questions(read_schema([SCHEMA])).splitlines()
    assert len(questions) == 5
    assert [question for question in questions if plan(question.removeprefix("- ")) is None] == []


@in_one_test(
    "question",
    [
        "What did we sell last month?",
        "Revenue without Online",
        "How many orders above 100?",
        "Sum of revenue and delivery days",
        "Which store has the most products?",
        "What are the top 3 products by store?",
        "Which order has the highest revenue?",
        "How much is Online?",
    ],
)
def test_a_question_with_a_word_that_is_not_understood_is_not_answered(question: str) -> None:
    assert plan(question) is None


async def test_where_no_row_matches_there_is_no_number() -> None:
    call = ActionExecutionMessage(id="c", name="run_sql", arguments="{}")
    result = ResultMessage(
        id="r", call_id="c", name="run_sql", result='{"rows": [{"average_price": null}]}'
    )
    assert text_of(await answer(said("q"), call, result)).startswith("No rows match")
