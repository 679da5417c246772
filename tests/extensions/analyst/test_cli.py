"""`copilot-runtime analyst`, in this process, with the demo model."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.cli.main import cli
from tests.in_one_test import in_one_test

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a function that runs a command where `copilot.yml` names data."""
    (tmp_path / "sales.csv").write_text("region,total\nnorth,20\nsouth,12\nnorth,8\n")
    (tmp_path / "copilot.yml").write_text(
        "analyst: {name: analyst, data: [sales.csv], folder: config, threads: 1}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["analyst", *arguments])

    return invoke


def test_an_answer_as_json_has_its_table_and_its_sql(run: Run) -> None:
    result = run("ask", "Which region sells most?", "--data", "sales.csv", "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert answer["tables"][-1]["rows"] == [["north", 28], ["south", 12]]
    assert "SUM(total)" in json.dumps(answer)


def test_a_column_of_a_table_has_as_many_decimals_and_days_without_a_time(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "days.csv").write_text("day,total\n2026-01-05,1020.5\n2026-02-02,3.25\n")
    text = run("ask", "total by month", "--data", "days.csv").stdout
    assert "  2026-01-01  1,020.50\n  2026-02-01  3.25\n" in text


def test_a_refusal_is_no_success_and_has_its_suggestions_once(run: Run) -> None:
    result = run("ask", "Tell me a joke", "--data", "sales.csv")
    assert "· Replied without data." in result.stderr and "✓" not in result.stderr
    assert result.output.count("How many rows are in sales?") == 1


def test_data_sets_are_listed_once_they_are_loaded(run: Run) -> None:
    result = run("datasets", "--json")
    (found,) = json.loads(result.stdout)["datasets"]
    assert (found["name"], found["row_count"], len(found["columns"])) == ("sales", 3, 2)


def test_all_files_of_a_glob_that_the_shell_expands_are_data(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n")
    found = json.loads(run("datasets", "--data", "a.csv", "b.csv", "sales.csv", "--json").stdout)
    assert [one["name"] for one in found["datasets"]] == ["a", "b", "sales"]


def test_a_memory_that_is_empty_says_so(run: Run) -> None:
    result = run("memory", "list")
    assert (result.exit_code, result.output) == (0, "Nothing is remembered.\n")


def test_questions_of_a_file_pass_or_fail_by_their_rows(run: Run, tmp_path: Path) -> None:
    question = "questions:\n- question: Which region sells most?\n  sql: SELECT region, {} AS t"
    (tmp_path / "good.yaml").write_text(f"{question.format('sum(total)')} FROM sales GROUP BY 1\n")
    (tmp_path / "wrong.yaml").write_text(f"{question.format('count(*)')} FROM sales GROUP BY 1\n")
    assert run("test", "good.yaml").exit_code == 0
    assert run("test", "wrong.yaml").exit_code == 1


@in_one_test("words", ["ask how", "datasets", "test questions.yaml", "memory list"])
def test_a_command_without_a_package_says_how_to_install_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert str(run(*words.split()).exception) == (
        "The analyst needs the package 'duckdb'. "
        "Install it with: pip install 'copilot-runtime[analyst]'"
    )


def test_an_approved_file_is_saved_here(run: Run, tmp_path: Path) -> None:
    (tmp_path / "copilot.yml").write_text(
        "analyst: {name: analyst, data: [sales.csv], approval_rows: 1, threads: 1}\n"
    )
    (tmp_path / "sales_2.csv").write_text("mine")
    question = ("ask", "Export sales as CSV.")
    refusal, result = run(*question), run(*question, "-y")
    assert (refusal.exit_code, result.exit_code) == (3, 0), result.output
    assert "3 rows are in sales_3.csv." in result.output and "http" not in result.stdout
    lines = (tmp_path / "sales_3.csv").read_text().splitlines()
    assert lines == ["region,total", "north,20", "south,12", "north,8"]
    assert run(*question, "-y", "--csv").stdout.splitlines() == lines
