"""The questions of `examples/analyst` are answered right by the demo model."""

from pathlib import Path

import pytest

from copilot_runtime.extensions.analyst.cli import evaluate
from tests.test_examples import EXAMPLES


def test_copilot_yml_says_which_data_and_questions_are_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLES / "analyst")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("COPILOT_ANALYST_STORE", str(tmp_path))

    assert evaluate.run_tests(evaluate.TestOptions()) == 0
    assert capsys.readouterr().out.endswith("5 correct\n")
