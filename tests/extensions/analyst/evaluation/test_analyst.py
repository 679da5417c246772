"""An analyst over real data is asked, with the script of a model in the file of questions."""

from contextlib import aclosing
from pathlib import Path

import pytest

from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.extensions.analyst.evaluation.definition import parse_questions
from copilot_runtime.extensions.analyst.evaluation.runner import evaluate_analyst
from tests.extensions.analyst.analysts import build_analyst

pytestmark = pytest.mark.anyio

QUESTIONS = """
questions:
  - question: What did each city order?
    user: bob
    sql: SELECT city, SUM(amount) FROM orders GROUP BY city
    script:
      - call: run_sql
        arguments: {sql: "SELECT citty, SUM(amount) AS total FROM orders GROUP BY 1"}
      - Oslo ordered most.
    contains: oslo
  - question: How much did ann order?
    user: ann
    sql: SELECT SUM(amount) FROM orders
    script:
      - call: run_sql
        arguments: {sql: SELECT SUM(amount) FROM orders}
      - There it is.
  - question: What did Rome order?
    user: bob
    sql: SELECT SUM(amount) FROM orders WHERE city = 'Rome'
    trust: verified
    script:
      - call: run_sql
        arguments: {sql: "SELECT SUM(amount) FROM orders WHERE city = 'Rome'"}
      - Thirty.
  - question: What did nobody order?
    sql: SELECT city FROM orders
    script: ["You have no orders."]
  - question: How is the weather?
    expect: refusal
    script: ["The data does not have the weather."]
  - question: How much was it?
    expect: clarification
    script: ["Do you mean the amount, or the latency?"]
"""
CATALOG = """
shop:
  ordered: {description: Sum of orders., table: orders, sql: SUM(amount), dimensions: [city]}
"""


async def test_an_analyst_is_asked_with_the_scripts_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "metric_catalog.yaml").write_text(CATALOG)
    analyst = build_analyst(tmp_path, row_filters={"orders": "owner = $user"})
    async with aclosing(analyst):
        report = await evaluate_analyst(
            analyst, ScriptedAdapter(), parse_questions(QUESTIONS, "questions.yaml")
        )
    assert [(one.verdict, one.reason) for one in report.results] == [("correct", "")] * 6
