"""The example: its invented data, and the questions that the demo model answers."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.api.events import Activity
from copilot_runtime.extensions.analyst.cli import evaluate
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.testing import Client
from tests.documents import ROOT
from tests.in_one_test import in_one_test
from tests.test_examples import EXAMPLES, load_example

DATA = EXAMPLES / "analyst" / "data"


def query(sql: str) -> list[tuple[Any, ...]]:
    return duckdb.connect().execute(sql.format(data=DATA)).fetchall()


def test_its_script_makes_the_files_that_are_here(tmp_path: Path) -> None:
    load_example("analyst", "make_data").write_data(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in DATA.iterdir()
    )
    for name in ("customers.csv", "eval_data.csv", "kpi_data.csv"):
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes()
    difference = f"FROM '{tmp_path / 'orders.parquet'}' EXCEPT FROM '{DATA / 'orders.parquet'}'"
    assert query(difference) == []


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 300_000


@in_one_test(
    ("sql", "expected"),
    [
        (
            "SELECT product FROM '{data}/orders.parquet' WHERE ordered_at >= '2026-02-01' "
            "GROUP BY product ORDER BY avg(returned::INT) DESC LIMIT 1",
            "Trail lantern",
        ),
        (
            "SELECT source_name FROM '{data}/eval_data.csv' WHERE model = 'lark-2' "
            "GROUP BY source_name ORDER BY avg(faithfulness_score) LIMIT 1",
            "returns_bot",
        ),
        ("SELECT count(*) FROM '{data}/eval_data.csv' WHERE latency = 'n/a'", 39),
        (
            "SELECT string_agg(DISTINCT manager, ', ' ORDER BY manager) "
            "FROM '{data}/orders.parquet'",
            "ann, ben",
        ),
    ],
)
def test_there_is_something_to_find(sql: str, expected: object) -> None:
    assert query(sql) == [(expected,)]


def test_copilot_yml_says_which_data_and_questions_are_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLES / "analyst")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("COPILOT_ANALYST_STORE", str(tmp_path))

    assert evaluate.run_tests(evaluate.TestOptions()) == 0
    assert capsys.readouterr().out.endswith("5 correct\n")


pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What `make run` serves where there is no copilot.yml, without its pages and its planner."""
    monkeypatch.chdir(ROOT)
    environ = {
        "COPILOT_ANALYST_STORE": str(tmp_path),
        "COPILOT_THREADS": "memory",
        "COPILOT_KNOWLEDGE_SOURCES": "",
        "COPILOT_PLANNER_NAME": "",
    }
    return load_settings("examples/demo.yml", environ)


async def test_the_demo_model_draws_a_chart_and_finds_what_is_wrong(settings: Settings) -> None:
    runtime = CopilotRuntime(DemoAdapter(pace=0), settings=settings)
    async with Client(runtime, agent="analyst") as client:
        reply = await client.say("Show revenue by month as a chart")
        charts = [
            event.content
            for event in reply.events
            if isinstance(event, Activity) and event.activity_type == "analyst-chart"
        ]
        assert [chart["title"] for chart in charts] == ["Revenue by month"]
        assert len(charts[0]["vega_lite"]["data"]["values"]) == 18
        assert "defined otherwise" not in reply.text  # it is the metric

        reply = await client.say("Which region sells most?")  # with a join
        assert "revenue **131,484.65**" in reply.text  # without what was returned
        assert "defined otherwise" not in reply.text

        reply = await client.say("Which products come back most often?")
        assert "**Trail lantern**" in reply.text

        reply = await client.say("Compare the faithfulness of lark-1 and lark-2")
        assert "Here is what I found." in reply.text
