"""Questions with reference SQL: rows are compared, and honest refusals count."""

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
import pytest

from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.api import Adapter, Agent, ChatRequest, RunInput
from copilot_runtime.api.events import Activity, Events, TextMessageContent
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.extensions.analyst.cli.evaluate import (
    encode_json,
    encode_junit,
    encode_text,
)
from copilot_runtime.extensions.analyst.evaluation.questions import (
    EvaluationQuestion,
    compare_tables,
    load_questions,
    parse_questions,
)
from copilot_runtime.extensions.analyst.evaluation.runner import (
    EvaluationReport,
    build_ask,
    evaluate_analyst,
    evaluate_questions,
)
from copilot_runtime.extensions.analyst.results import Column, Table
from tests.extensions.analyst.analysts import build_analyst
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


class SmallAnalyst(Agent):
    """Shows the rows of the SQL that its model answers with, or its text."""

    def __init__(self, model: Adapter | None) -> None:
        self._model = model

    async def run(self, run: RunInput) -> Events:
        assert self._model is not None
        request = ChatRequest(messages=run.messages, thread_id=run.thread_id)
        text = ""
        async for event in self._model.stream(request):
            text += event.content if isinstance(event, TextMessageContent) else ""
        if text.startswith("SELECT"):
            table = query(text)
            content: dict[str, Any] = {
                "columns": [{"name": it.name, "type": it.type} for it in table.columns],
                "rows": [[*row] for row in table.rows],
                "is_truncated": False,
            }
            yield activity("table", content)
            yield activity("answer", {"trust": "free_sql", "lineage": [{"sql": text}]})
            text = "Here it is."
        elif text.endswith("?"):
            yield activity("question", {"question": text, "options": []})
        yield TextMessageContent(message_id="m", content=text)


def activity(kind: str, content: dict[str, Any]) -> Activity:
    return Activity(message_id=kind, activity_type=f"analyst-{kind}", content=content)


def query(sql: str) -> Table:
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT i AS id, i % 3 AS kind FROM range(9) t(i)"
        )
        try:
            cursor = connection.execute(sql)
        except duckdb.Error as error:
            raise CopilotError(str(error)) from None
        return Table(
            columns=[Column(it[0], str(it[1])) for it in cursor.description], rows=cursor.fetchall()
        )


async def run_reference(question: EvaluationQuestion) -> Table:
    return query(question.sql)


async def evaluate(text: str) -> EvaluationReport:
    return await evaluate_questions(
        parse_questions(text, "tests/questions.yaml"),
        ask=build_ask(SmallAnalyst),
        run_reference=run_reference,
    )


QUESTIONS = """
questions:
  - question: How many of each kind?
    sql: SELECT kind, COUNT(*) AS n FROM orders GROUP BY kind
    script: ["SELECT COUNT(*) + 1e-5 AS total, kind FROM orders GROUP BY 2 ORDER BY 2 DESC"]
  - question: How many?
    sql: SELECT COUNT(*) FROM orders
    script: ["SELECT COUNT(*) + 1 FROM orders"]
  - question: How many, roughly?
    sql: SELECT COUNT(*) FROM orders
    script: ["I cannot tell you that."]
  - question: How many of those?
    sql: SELECT COUNT(*) FROM orders
    script: ["Of which kind?"]
  - question: What is the weather?
    expect: refusal
    script: ["The data does not contain the weather."]
  - question: How cold is it?
    expect: refusal
    script: ["It is 12 degrees."]
  - question: What about it?
    expect: clarification
    script: ["Do you mean all orders?"]
  - question: Is it trusted?
    sql: SELECT 1
    trust: verified
    script: ["SELECT 1"]
  - question: Is the reference right?
    sql: SELECT nothing
    script: ["SELECT 1"]
  - question: Not now
    sql: SELECT 1
    skip: later
"""


async def test_each_question_has_its_verdict() -> None:
    report = await evaluate(QUESTIONS)
    assert [(one.verdict, one.reason.partition(":")[0]) for one in report.results] == [
        ("correct", ""),
        ("wrong", "expected [9], found [10]"),
        ("refused", "said that the data cannot tell"),
        ("clarified", "asked back"),
        ("correct", ""),
        ("wrong", "expected that it says that the data cannot tell, found an answer"),
        ("correct", ""),
        ("wrong", "expected an answer that is verified, found free_sql"),
        ("error", "The reference SQL failed"),
        ("skipped", "later"),
    ]
    assert not report.is_passed


async def test_a_report_is_text_json_and_junit() -> None:
    report = await evaluate(QUESTIONS)
    text = encode_text(report)
    assert text.splitlines()[-1] == (
        "3 correct, 3 wrong, 1 refused honestly, 1 asked back, 1 with errors, 1 skipped"
    )
    assert "    at tests/questions.yaml:6" in text
    values = json.loads(encode_json(report))
    assert (values["correct"], values["questions"][1]["verdict"]) == (3, "wrong")
    suite = ElementTree.fromstring(encode_junit(report))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("10", "5", "1")
    assert encode_json(await evaluate(QUESTIONS)) == encode_json(report)


async def test_a_script_that_is_too_short_is_an_error() -> None:
    places = parse_questions(QUESTIONS, "q.yaml")[:1]

    class AskTwice(SmallAnalyst):
        async def run(self, run: RunInput) -> Events:
            async for event in super().run(run):
                yield event
            async for event in super().run(run):
                yield event

    report = await evaluate_questions(places, ask=build_ask(AskTwice), run_reference=run_reference)
    assert report.results[0].reason.startswith("The script has no answer for request 2")


@in_one_test(
    ("expected", "found", "options", "difference"),
    [
        ([[1, "a"]], [["a", 1]], {}, None),
        ([[1, 2], [2, 1]], [[2, 1], [1, 2]], {}, None),
        ([[1, 2], [2, 1]], [[2, 1], [1, 2]], {"is_ordered": True}, None),  # the columns fit so
        ([[1], [2]], [[2], [1]], {"is_ordered": True}, "the rows are the same, in another order"),
        ([[0.33333]], [[1 / 3]], {}, None),
        ([[0.33]], [[1 / 3]], {}, "expected [0.33], found [0.3333333333333333]"),
        ([[0.333, 2], [0.333, 1]], [[0.33301, 1], [0.33299, 2]], {"tolerance": 0.01}, None),
        ([[1], [1], [2]], [[1], [2], [2]], {}, "expected [1], found [2]"),
        ([[1]], [[1, 5]], {}, None),
        ([[1]], [[1, 5]], {"may_have_more": False}, "expected 1 column, found 2"),
        ([[1]], [[1], [2]], {}, "expected 1 row, found 2"),
        ([["2026-01-01"]], [["2026-01-01T00:00:00"]], {}, None),
        ([[True]], [[1]], {}, "expected [true], found [1]"),
        ([[None]], [[0]], {}, "expected [null], found [0]"),
        ([["1"]], [[1]], {}, 'expected ["1"], found [1]'),
        ([], [], {}, None),
    ],
)
def test_rows_are_compared_as_sets_with_a_tolerance(
    expected: list[list[Any]], found: list[list[Any]], options: Any, difference: str | None
) -> None:
    names = [f"c{at}" for at in range(len(expected[0]) if expected else 0)]
    others = [f"d{at}" for at in range(len(found[0]) if found else 0)]
    assert compare_tables(names, expected, others, found, **options) == difference


def test_a_thousand_rows_with_many_columns_are_compared_at_once() -> None:
    rows = [[at % 2] * 8 for at in range(500)]
    names = [str(at) for at in range(8)]
    assert compare_tables(names, rows, names, rows[::-1]) is None


@in_one_test(
    ("text", "message"),
    [
        ("questions:\n  - question: a\n", ":2: .*'sql' is missing"),
        ("questions:\n  - question: a\n    expects: rows\n", ":3: .*did you mean"),
        ("questions:\n  - question: a\n    expect: refusal\n    sql: SELECT 1\n", "no use"),
        ("questions: [", "not YAML"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "questions.yaml").write_text(text)
    with pytest.raises(ConfigurationFailed, match=message):
        load_questions([tmp_path])


def test_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.txt"):
        (tmp_path / name).write_text(f"questions: [{{question: {name}, sql: SELECT 1}}]")
    assert [place.question.title for place in load_questions([tmp_path])] == ["a.yml", "b.yaml"]


SCRIPTED = """
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
            analyst, ScriptedAdapter(), parse_questions(SCRIPTED, "questions.yaml")
        )
    assert [(one.verdict, one.reason) for one in report.results] == [("correct", "")] * 6
