"""Our copy of the cases holds, and every one that we do better than it is told."""

from pathlib import Path

import pytest

from tests.conformance.copilot_ld.__main__ import main
from tests.conformance.copilot_ld.cases import OUR_COPY, Case, equal, read_cases, run_case
from tests.conformance.copilot_ld.handlers import HANDLERS
from tests.conformance.divergences import (
    COPILOT_LD,
    COPILOT_LD_ACCESS,
    COPILOT_LD_AGENTS,
    COPILOT_LD_TELEMETRY,
    reasons,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

CASES = [case for case in read_cases(OUR_COPY) if case.system in HANDLERS]


@pytest.mark.parametrize(
    "system", sorted({case.system for case in CASES if case.stance == "match"})
)
async def test_the_cases_of_a_system_of_copilot_ld_hold(system: str) -> None:
    cases = [case for case in CASES if case.stance == "match" and case.system == system]
    results = [(case.id, await run_case(case)) for case in cases]
    assert [(name, it.actual) for name, it in results if it.outcome != "passed"] == []


TOOLS = {"llm_calls": 2, "streamed": []}
LEAD = {
    "agents": [
        {"name": "common.Agent.researcher", "description": "Researches."},
        {"name": "secret", "infer": False},
    ],
    "handoffs": [{"label": "research", "agent": "researcher"}, "figures"],
}


@in_one_test(
    ("system", "feature", "given", "output", "holds"),
    [
        ("agent-service", "ListSubAgents", LEAD, ["common.Agent.researcher"], True),
        ("agent-service", "ListSubAgents", LEAD, {"agents": [{"agent_id": "secret"}]}, False),
        ("agent-service", "ListHandoffs: labels", LEAD, {"labels": ["research", "figures"]}, True),
        ("agent-service", "ListHandoffs", {"handoffs": []}, {"labels": []}, True),
        ("agent-service", "ListHandoffs", "two", {"content": '["research"]'}, True),
        ("agent-service", "ListHandoffs", LEAD, {"labels": ["research"]}, False),
        (
            "agent-service",
            "RunSubAgent in a child conversation",
            {**LEAD, "agent": "researcher", "prompt": "Find it."},
            {"parent": "common.Conversation.c", "result": {"content": "It is here."}},
            True,
        ),
        (
            "agent-service",
            "RunSubAgent refuses infer=false",
            {**LEAD, "agent_id": "common.Agent.secret"},
            {"error": "Agent cannot be run"},
            True,
        ),
        ("agent-service", "RunSubAgent", {"agent": "x"}, {"result": {"error": "No."}}, True),
        ("agent-service", "RunSubAgent", LEAD, {"error": "No."}, False),
        ("agent-service", "RunHandoff", {"label": "none"}, {"error": "No such label"}, True),
        ("agent-service", "RunNothing", {}, {}, False),
        (
            "agent",
            "tools that fail",
            "tools a(throws) b(neither) c(empty identifiers) then 'done'",
            {
                **TOOLS,
                "saved": [
                    [
                        {"role": "assistant", "content": ""},
                        {
                            "role": "tool",
                            "content": '{"error": {"message": "boom", "code": "X"}}',
                            "tool_call_id": "1",
                        },
                        {
                            "role": "tool",
                            "content": '{"error":{"type":"tool_execution_error","message":'
                            '"Invalid tool call result: no content or identifiers"}}',
                            "tool_call_id": "2",
                        },
                        {"role": "tool", "content": "No results found.", "tool_call_id": "3"},
                    ],
                    [{"role": "assistant", "content": "done"}],
                ],
            },
            True,
        ),
    ],
)
async def test_cases_of_other_forms_are_judged_too(
    system: str, feature: str, given: object, output: object, holds: bool
) -> None:
    result = await run_case(Case("1", system, feature, given, output))
    assert (result.outcome, result.actual) == ("passed" if holds else "failed", result.actual)


def test_every_quirk_is_listed_with_what_is_done_instead() -> None:
    quirks = {case.id for case in CASES if case.stance == "quirk"}
    titles = (COPILOT_LD, COPILOT_LD_TELEMETRY, COPILOT_LD_AGENTS, COPILOT_LD_ACCESS)
    told = {name for title in titles for name in reasons(title)}
    assert quirks - told == set()


def test_a_file_is_run_by_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.json"
    file.write_text(
        """{"cases": [
        {"id": "1", "system": "hash", "feature": "", "input": ["a"], "output": "x", "part": "G"},
        {"id": "2", "system": "tokenizer", "feature": "", "input": "Hi", "output": 1, "part": "G"},
        {"id": "3", "system": "tokenizer", "feature": "", "input": "Hi", "output": 2, "part": "H"},
        {"id": "4", "system": "x", "feature": "", "input": 0, "output": 1, "stance": "quirk"},
        {"id": "5", "system": "x", "feature": "", "input": 0, "output": 1, "part": "I"},
        {"id": "6", "system": "x", "feature": "", "input": 0, "output": 1, "part": "H",
         "stance": "skip"}
        ]}"""
    )

    assert main([str(file), "--parts", "G,H"]) == 1
    output = capsys.readouterr().out
    assert "FAILED    1 hash" in output
    assert 'expected "x"\n    actual   "ca978112"' in output
    assert output.endswith("1 passed, 2 failed, 0 quirk, 1 skipped\n")
    assert main([str(file), "--parts", "I"]) == 1
    assert "no handler of the system 'x'" in capsys.readouterr().out


def test_a_file_without_cases_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.json")])
    assert "has no cases that can be read" in capsys.readouterr().err


@in_one_test(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1, True, False),
        (True, True, True),
        ("1", 1, False),
        ([1, {"a": None}], [1, {"a": None}], True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1], [1, 2], False),
    ],
)
def test_values_are_the_same_json_or_not(one: object, other: object, same: bool) -> None:
    assert equal(one, other) is same
