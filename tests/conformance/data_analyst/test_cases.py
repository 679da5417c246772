"""The cases of the analyst's contract hold: those that were decided, and those that we added."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.data_analyst.__main__ import main
from tests.conformance.data_analyst.cases import FILES, Case, read_suite, run_suite
from tests.conformance.data_analyst.facts import Prose, Text, judge
from tests.conformance.divergences import DATA_ANALYST, reasons

pytestmark = pytest.mark.anyio


@pytest.mark.stalls(reason="Hundreds of cases of plain functions run in the test itself.")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_the_cases_of_the_contract_hold(file: Path) -> None:
    suite = read_suite(file)
    results = await run_suite(
        replace(suite, cases=[_allow_busy_machine(one) for one in suite.cases])
    )

    problems = {one.case.id: one.problems for one in results if not one.has_passed}
    assert problems.keys() == {id for id in reasons(DATA_ANALYST) if _has_case(file, id)}, problems


def _allow_busy_machine(case: Case) -> Case:
    """Return a case with ten times as many seconds: other tests run on the same cores."""
    most = case.expect.get("elapsed_s_max")
    if most is None:
        return case
    return replace(case, expect={**case.expect, "elapsed_s_max": 10 * most})


def _has_case(file: Path, id: str) -> bool:
    return any(case.id == id for case in read_suite(file).cases)


@pytest.mark.parametrize(
    ("expect", "facts", "problem"),
    [
        ({"n": 1}, {"n": 1.00001}, ""),
        ({"n": 1}, {"n": 1.1}, "n: expected 1, got 1.1"),
        ({"n": 1}, {"n": True}, "n: expected 1, got true"),
        ({"n": 3}, {"n": ["a", "b", "c"]}, ""),
        ({"a.b[0]": {"x": 1}}, {"a": {"b": [{"x": 1, "y": 2}]}}, ""),
        ({"a.b[1]": 1}, {"a": {"b": [1]}}, "a.b[1]: expected 1, got null"),
        ({"contains": ["x"]}, {"text": "axb"}, ""),
        ({"not_contains": ["x"]}, {"text": Text("axb")}, "text must not contain"),
        ({"n_max": 2}, {"n": 3}, "n must be at most 2: it is 3"),
        ({"n_min": 2}, {"n": 2}, ""),
        ({"id_matches": "^[a-z]+$"}, {"id": "a1"}, "id must match"),
        ({"id_not": "a"}, {"id": "a"}, "id must not be"),
        ({"via": "in words"}, {"via": Prose(True)}, ""),
        ({"via": "in words"}, {"via": Prose(False, "seen")}, "via: expected in words, got seen"),
        ({"words": ["a", "b"]}, {"words": Text("a b")}, ""),
        ({"n": 1}, {"n": lambda: 1}, ""),
        ({"mood": "good"}, {"n": 1}, "No handler knows what 'mood' expects."),
    ],
)
async def test_facts_are_compared_with_what_is_expected(
    expect: dict[str, object], facts: dict[str, object], problem: str
) -> None:
    found = await judge(expect, facts, 1e-4)

    assert [one[: len(problem)] for one in found] == ([problem] if problem else [])


def test_what_nobody_understands_fails_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cases.json"
    file.write_text(
        """{"cases": [
        {"id": "XX-1", "area": "cooking", "given": {}, "expect": {}},
        {"id": "SF-1", "area": "schema_fingerprint", "given": {"columns": [], "salt": 1},
         "expect": {}},
        {"id": "SF-2", "area": "schema_fingerprint", "given": {"columns": []},
         "expect": {"taste": "good"}},
        {"id": "SF-3", "area": "schema_fingerprint", "given": {}, "expect": {"fingerprint": ""}},
        {"id": "SF-4", "area": "schema_fingerprint", "given": {"columns": [["a", "INTEGER"]]},
         "expect": {"fingerprint_matches": "^[0-9a-f]{12}$"}}
        ]}"""
    )

    assert main([str(file)]) == 1
    output = capsys.readouterr().out
    assert "There is no area 'cooking'. Known: cache, " in output
    assert "Nothing here reads 'salt' of what is given." in output
    assert "No handler knows what 'taste' expects." in output
    assert "KeyError: 'columns'" in output
    assert output.endswith("1 passed, 4 failed\n")
    assert main([str(file), "--areas", "XX"]) == 0
    assert capsys.readouterr().out.endswith("0 passed, 0 failed\n")


def test_a_file_without_cases_is_an_error_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.json")])
    assert "has no cases that can be read" in capsys.readouterr().err
