"""What is expected of a conversation, and what is said where it is not so."""

import json
import subprocess
import sys

from tests.extensions.scenarios.conftest import Play
from tests.in_one_test import in_one_test

SCRIPT = [
    {"call": "get_weather", "arguments": {"city": "Oslo", "unit": "F"}},
    {"call": "fail"},
    {"text": "It is cold in Oslo.", "usage": {"input": 30, "output": 5}},
]
TWICE = "[?attributes.\"gen_ai.tool.name\" == 'get_weather']"


def write(expect: object, **fields: object) -> str:
    """Return a file with a scenario, as JSON, which is YAML."""
    scenario = {"name": "one", "say": "How cold is it?", "script": SCRIPT, "expect": expect}
    return json.dumps({"scenarios": [{**scenario, **fields}]})


@in_one_test(
    "expect",
    [
        {},
        {"text": "cold"},
        {"text": ["cold", "Oslo"]},
        {"text": {"equals": "It is cold in Oslo.", "matches": "(?i)OSLO", "not_contains": "warm"}},
        {"text": {"not_matches": ["warm", "hot"]}},
        {"calls": ["get_weather", "fail"], "other_calls": False, "in_order": True},
        {"calls": ["get_*"]},
        {"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]},
        {"calls": [{"name": "get_weather", "matches": {"city": "^O"}, "result": "4 degrees"}]},
        {"calls": [{"name": "get_weather", "where": "arguments.city == 'Oslo'"}]},
        {"calls": [{"name": "get_weather", "count": 1}, {"name": "fail", "at_most": 1}]},
        {"calls": [{"name": "nothing", "count": 0}, {"name": "other", "at_most": 0}]},
        {"not_called": ["nothing", "other"]},
        {"answered_by": "default"},
        {"asks": []},
        {"trace": TWICE},
        {"trace": [TWICE, {"query": f"length({TWICE})", "equals": 1}]},
        {"limits": {"requests": 3, "calls": 2, "tokens": 35, "input_tokens": 30, "seconds": 60}},
        {"judge": {"criteria": "It says so.", "script": [True]}},
    ],
)
def test_an_expectation_holds(play: Play, expect: object) -> None:
    outcome = play(write(expect), "--offline")

    assert outcome.status == 0, outcome.output
    assert outcome.attempt["outcome"] == "passed"


@in_one_test(
    ("expect", "name", "expected", "actual"),
    [
        ({"text": "warm"}, "text", "contains 'warm'", "It is cold in Oslo."),
        ({"text": {"equals": "No"}}, "text", "equals 'No'", "It is cold in Oslo."),
        ({"text": {"matches": "^No"}}, "text", "matches '^No'", "It is cold in Oslo."),
        ({"text": {"not_contains": "cold"}}, "text", "does not contain 'cold'", None),
        ({"text": {"not_matches": "c.ld"}}, "text", "does not match 'c.ld'", None),
        ({"calls": []}, "calls", "no calls", None),
        ({"calls": ["nothing"]}, "calls", "at least 1 call of nothing", None),
        (
            {"calls": [{"name": "get_weather", "arguments": {"city": "Rome"}}]},
            "calls",
            'at least 1 call of get_weather {"arguments":{"city":"Rome"}}',
            '0 among get_weather({"city":"Oslo","unit":"F"}), fail({})',
        ),
        ({"calls": [{"name": "fail", "result": "done"}]}, "calls", None, None),
        ({"calls": [{"name": "fail", "matches": {"a.0.b": "x"}}]}, "calls", None, None),
        ({"calls": [{"name": "fail", "where": "length(result.x)"}]}, "calls", None, None),
        ({"calls": [{"name": "fail", "count": 2}]}, "calls", "2 calls of fail", None),
        ({"calls": [{"name": "fail", "at_least": 2}]}, "calls", "at least 2 calls of fail", None),
        ({"calls": [{"name": "fail", "at_most": 0}]}, "calls", "at most 0 calls of fail", None),
        ({"calls": ["fail", "get_weather"], "in_order": True}, "in_order", None, None),
        ({"calls": ["fail"], "other_calls": False}, "other_calls", "no other calls", None),
        ({"not_called": "get_*"}, "not_called", "no call of get_*", None),
        ({"answered_by": "desk"}, "answered_by", "desk", "default"),
        ({"asks": ["Sure?"]}, "asks", "a question that contains 'Sure?'", "no questions"),
        ({"state": {"a": 1}}, "state", 'has {"a":1}', "null"),
        ({"trace": "[?name == 'nothing']"}, "trace", "[?name == 'nothing']", None),
        (
            {"trace": {"query": f"length({TWICE})", "equals": 2}},
            "trace",
            f"length({TWICE}) is 2",
            "1",
        ),
        ({"trace": "length(`1`)"}, "trace", "length(`1`)", None),
        ({"plan": "finished"}, "plan", "a plan", "no plan"),
        ({"recalls": "ship"}, "recalls", "1 of ship; missing: ship", "no resources"),
        ({"limits": {"requests": 2}}, "limits.requests", "at most 2", "3"),
        ({"limits": {"output_tokens": 4}}, "limits.output_tokens", "at most 4", "5"),
        ({"limits": {"dollars": 1}}, "limits.dollars", "at most 1", None),
        ({"fails": {}}, "fails", "an error", "an answer: It is cold in Oslo."),
        (
            {"judge": {"criteria": ["It is short.", "It rhymes."], "script": ["no"]}},
            None,
            None,
            None,
        ),
    ],
)
def test_an_expectation_that_does_not_hold_says_what_came(
    play: Play, expect: object, name: str | None, expected: str | None, actual: str | None
) -> None:
    outcome = play(write(expect), "--offline")

    assert outcome.status == 1
    if name is None:
        return
    failure = outcome.attempt["failures"][0]
    assert failure["name"] == name
    assert expected in (None, failure["expected"])
    assert actual in (None, failure["actual"])
    assert f"expected: {failure['expected']}" in outcome.output
    assert "> How cold is it?" in outcome.output


def test_a_resource_is_recalled_when_a_result_names_it_as_a_whole(play: Play) -> None:
    script = [{"call": "get_weather", "arguments": {"city": "ship/gannet2 and port/harl"}}, "Well."]
    two = play(write({"recalls": ["port/harl"]}, script=script))
    part = play(write({"recalls": ["ship/gannet"]}, script=script))

    assert (two.status, part.status) == (0, 1)


def test_an_error_is_expected_by_its_code_and_words(play: Play) -> None:
    text = """
    scenarios:
      - name: refused
        say: What of politics?
        script: []
        expect: {fails: {code: GUARDRAILS_VALIDATION_FAILED, message: the weather}}
      - name: other words
        say: What of politics?
        expect: {fails: {code: UNKNOWN, message: {equals: never}}}
      - name: not expected
        say: What of politics?
    """
    outcome = play(text)
    refused, other, third = (it["attempts"][0] for it in outcome.report["scenarios"])

    assert refused["outcome"] == "passed"
    assert [it["name"] for it in other["failures"]] == ["fails.code", "fails.message"]
    assert third["outcome"] == "error"
    assert third["error"] == (
        "Turn 1 failed: Let us talk about the weather. [GUARDRAILS_VALIDATION_FAILED]"
    )


def test_expectations_of_turns_are_of_that_turn_and_others_of_all(play: Play) -> None:
    text = """
    scenarios:
      - name: two turns
        turns:
          - say: How cold is it?
            script: [{call: get_weather, arguments: {city: Oslo}}, Cold.]
            expect: {calls: [get_weather], limits: {requests: 2}, text: {equals: Cold.}}
          - say: And now?
            script: [Colder.]
            expect: {calls: [], text: {equals: Cold.}, trace: "[?kind == `9`]"}
        expect: {calls: [get_weather], text: [Cold., Colder.], limits: {requests: 3}}
    """
    outcome = play(text)

    assert [(it["turn"], it["name"]) for it in outcome.attempt["failures"]] == [
        (2, "text"),
        (2, "trace"),
    ]
    assert "text (turn 2)" in outcome.output


def test_the_state_that_a_page_shares_is_expected(play: Play) -> None:
    app = """
from copilot_runtime import CopilotRuntime
from copilot_runtime.testing import ScriptedAgent, say, set_state

def answer(run):
    return [*set_state({"seats": run.agent_input.state["seats"] + 1}), *say("Done.")]

runtime = CopilotRuntime(agents={"booker": ScriptedAgent(answer)})
"""
    scenario = "scenarios: [{name: a, agent: booker, say: More, state: {seats: 1, x: 2}, "
    right = play(f"{scenario} expect: {{state: {{seats: 2}}}}}}]", app=app)
    wrong = play(f"{scenario} expect: {{state: {{seats: 3}}}}}}]", app=app)

    assert right.status == 0, right.output
    assert wrong.attempt["failures"][0]["actual"] == '{"seats":2}'


_PROGRAM = """
from copilot_runtime.extensions.scenarios import values
from copilot_runtime.extensions.scenarios.definition import TextCheck
values.SECONDS = 0.05
text = "a" * 60 + "!"
print(TextCheck(matches=("(a+)+$",)).find_violation(text))
print(TextCheck(not_matches=("(a+)+$",)).find_violation(text))
print(TextCheck(matches=("a!",)).find_violation(text))
"""


def test_a_search_that_takes_years_is_a_failure_that_says_so() -> None:
    """In a process of its own: the test runner may use the timer of this one."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert [line.partition(" (the search took")[0] for line in lines] == [
        "matches '(a+)+$'",
        "does not match '(a+)+$'",
        "None",
    ], done.stderr
    assert "took more than 2 s" in lines[0]
