"""Policies in Rego, judged in a process of their own."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from copilot_runtime.extensions.knowledge.access import Actor
from copilot_runtime.extensions.knowledge.policies import (
    Policy,
    PolicyFile,
    build_actor,
    load_policy,
    rego,
)
from copilot_runtime.extensions.knowledge.policies.policy import PolicyUnreadable
from copilot_runtime.extensions.knowledge.policies.rego import RegoPolicy
from tests.extensions.knowledge.policies.places import (
    ANN,
    BOB,
    HANDBOOK,
    NOBODY,
    OF_BOB,
    OF_NOBODY,
    PAGE,
    allows,
    problems,
    write,
)
from tests.in_one_test import in_one_test

pytest.importorskip("regopy")

RULES = f"""
    package copilot
    import rego.v1

    default allow := false
    allow if {{
        input.action in {{"read", "list"}}
        startswith(input.resource.uri, "{HANDBOOK}/")
    }}
    allow if {{
        input.resource.type == "common.Message"
        "staff" in input.actor.groups
        input.actor.agent != "robot"
    }}
    allow if input.resource.name == input.actor.name
    deny if input.resource.type == "hr.Salary"
"""
MESSAGE = "common.Message.m"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for policy in opened:
        policy.close()
    opened.clear()


opened: list[Policy] = []


def load(folder: Path, text: str, name: str = "p.rego") -> Policy:
    opened.append(load_policy(write(folder, text, name)))
    return opened[-1]


def test_policies_judge_users_groups_agents_and_resources(folder: Path) -> None:
    policy = load(folder, RULES)
    staff = frozenset({"staff"})

    assert allows(policy, NOBODY, "read", PAGE)
    assert not allows(policy, NOBODY, "write", PAGE)
    assert not allows(policy, ANN, "read", MESSAGE)
    assert allows(policy, Actor("ann", staff), "read", MESSAGE)
    assert not allows(policy, Actor("ann", staff, agent="robot"), "read", MESSAGE)
    assert allows(policy, Actor("a.b"), "write", "home.Page.a%2Eb")
    assert not allows(policy, ANN, "read", f"{HANDBOOK}/hr.Salary.s")
    assert policy.find_warnings() == ()


def test_what_belongs_to_a_person_is_theirs_whatever_rego_allows(folder: Path) -> None:
    policy = load(
        folder,
        """
        package copilot
        import rego.v1
        allow := true
        deny if {
            input.action == "delete"
            input.resource.owner == input.actor.name
        }
        """,
    )

    assert allows(policy, BOB, "write", OF_BOB)
    assert not allows(policy, BOB, "delete", OF_BOB)
    assert not allows(policy, ANN, "read", OF_BOB)
    assert allows(policy, NOBODY, "read", OF_NOBODY)
    assert not allows(policy, build_actor(None, "t2"), "read", OF_NOBODY)


def test_a_decision_names_the_rule_that_made_it(folder: Path) -> None:
    policy = load(folder, RULES)

    assert policy.decide(ANN, "read", PAGE).rule == "data.copilot.allow"
    assert policy.decide(ANN, "read", f"{HANDBOOK}/hr.Salary.s").rule == "data.copilot.deny"
    assert policy.decide(ANN, "read", "a.B.c").reason == "No policy permits it."
    assert policy.decide(BOB, "read", OF_BOB).rule == "ownership"


def test_a_folder_may_have_several_files_and_data(folder: Path) -> None:
    write(folder, '{"readers": ["ann"]}', "data.json")
    write(folder, "package people\nimport rego.v1\nmay_read(x) if x in data.readers", "b.rego")
    write(
        folder,
        "package copilot\nimport rego.v1\nallow if data.people.may_read(input.actor.name)",
        "a.rego",
    )
    opened.append(load_policy(folder))

    assert allows(opened[0], ANN, "read", PAGE)
    assert not allows(opened[0], BOB, "read", PAGE)


@in_one_test(
    ("text", "problem"),
    [
        ("package copilot\nimport rego.v1\nallow if {\n  input.x == \n}",
         "line 4, column 11: not Rego: Invalid boolean operator"),
        ("package copilot\nimport rego.v1\nallow if missing(input)\n",
         "not Rego: Function not found: missing"),
        ("package other\nallow = true",
         "nothing is in 'package copilot', where the rule 'allow' has to be"),
        ("package copilot\nimport rego.v1\nallow := 1 / 0 == 1 if { some x in ",
         "not Rego:"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_compiled_is_refused(folder: Path, text: str, problem: str) -> None:
    assert problem in problems(folder, text, "p.rego")[0]


def test_data_of_another_form_are_refused(folder: Path) -> None:
    write(folder, RULES, "a.rego")
    write(folder, "[]", "data.json")

    with pytest.raises(PolicyUnreadable, match=r"data\.json: expected an object"):
        load_policy(folder)


def test_a_policy_without_the_rule_allow_is_pointed_out(folder: Path) -> None:
    policy = load(folder, "package copilot\nimport rego.v1\ndefault permit := true")

    assert not allows(policy, ANN, "read", PAGE)
    assert allows(policy, BOB, "read", OF_BOB)
    assert "no rule 'allow'" in policy.find_warnings()[0].message


@in_one_test(
    "rules",
    [
        'allow := "yes"',
        "allow := 1",
        "allow contains input.action",
        'allow := true\ndeny contains input.action if input.action == "none"',
        'allow if input.action == "read"\nallow := false if input.resource.name == "p1"',
    ],
)
def test_what_is_no_boolean_denies_and_is_logged_once(
    folder: Path, rules: str, caplog: pytest.LogCaptureFixture
) -> None:
    policy = load(folder, f"package copilot\nimport rego.v1\n{rules}")

    assert not allows(policy, ANN, "read", PAGE)
    assert policy.access(ANN, "read").judge([PAGE, "a.B.c/x.Y.p1"]) == [False, False]
    assert len(caplog.messages) == 1
    assert "denies, because a policy failed" in caplog.messages[0]


CRASHING = """
    package copilot
    import rego.v1
    allow if inner with input as {"a": input.action}
    inner if input.a == "read"
"""


def test_a_policy_that_makes_the_engine_crash_is_refused_or_denies(folder: Path) -> None:
    path = write(folder, CRASHING, "p.rego")
    try:
        opened.append(load_policy(path))
    except PolicyUnreadable as error:
        assert "The process that judges ended" in error.message
    else:  # a later version of regopy may not crash
        assert opened[0].access(ANN, "read").judge([PAGE]) in ([True], [False])


def test_a_process_that_ends_denies_until_another_is_begun(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policy = load(folder, RULES)
    access = policy.access(ANN, "read")
    key = access.key
    assert access.allows(PAGE)
    os.kill(process_of(policy), signal.SIGKILL)

    assert access.allows(PAGE)  # it is remembered
    assert not access.allows(f"{PAGE}1")
    assert not access.allows(f"{PAGE}2")  # for some seconds, nothing is begun
    assert access.key != key
    assert "failed and denies" in caplog.messages[0]
    assert "ended with status -9" in caplog.messages[0]
    assert len(caplog.messages) == 1

    monkeypatch.setattr(rego, "monotonic", lambda: float("1e12"))
    assert access.judge([f"{PAGE}1", f"{PAGE}2"]) == [True, True]


def test_an_answer_that_does_not_come_denies(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RegoPolicy({"a.rego": "package copilot\nimport rego.v1\nallow := true"}, timeout=0.5)
    opened.append(policy)
    os.kill(policy.process_id, signal.SIGSTOP)

    assert not policy.access(ANN, "read").allows(PAGE)
    assert "did not answer within 0.5 s" in caplog.text


def test_a_closed_policy_denies(folder: Path) -> None:
    policy = load(folder, RULES)
    policy.close()
    policy.close()

    assert not policy.access(ANN, "read").allows(PAGE)


def process_of(policy: Policy) -> int:
    assert isinstance(policy, PolicyFile)
    inner = policy.refresh()
    assert isinstance(inner, RegoPolicy)
    return inner.process_id
