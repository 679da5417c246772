"""Policies in Cedar."""

import json
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.extensions.knowledge.access import Actor
from copilot_runtime.extensions.knowledge.policies import Policy, build_actor, load_policy
from copilot_runtime.extensions.knowledge.policies.policy import PolicyUnreadable
from tests.extensions.knowledge.policies.places import (
    ANN,
    BOB,
    HANDBOOK,
    NOBODY,
    OF_BOB,
    OF_NOBODY,
    PAGE,
    allows,
    load,
    problems,
    write,
)
from tests.in_one_test import in_one_test

pytest.importorskip("cedarpy")

RULES = f"""
    // ; is no end in a comment, nor in a "text;"
    @id("handbook")
    permit (principal, action in [Action::"read", Action::"list"],
            resource in Resource::"{HANDBOOK}");

    @id("staff")
    permit (principal in Group::"staff", action == Action::"read", resource)
    when {{ resource.type == "common.Message" && context.agent != "robot;" }};

    @id("signed in") permit (principal, action == Action::"list", resource)
    when {{ principal.signedIn && resource.name like "n*" }};

    @id("salaries")
    forbid (principal, action, resource) when {{ resource.type == "hr.Salary" }};
    permit (principal == User::"ann", action, resource == Resource::"a.B.c");
"""
MESSAGE = "common.Message.m"


def test_policies_judge_users_groups_agents_and_resources(tmp_path: Path) -> None:
    policy = load(tmp_path, RULES, "p.cedar")
    staff = frozenset({"staff"})

    assert allows(policy, NOBODY, "read", PAGE)
    assert not allows(policy, NOBODY, "write", PAGE)
    assert not allows(policy, ANN, "read", MESSAGE)
    assert allows(policy, Actor("ann", staff), "read", MESSAGE)
    assert not allows(policy, Actor("ann", staff, agent="robot;"), "read", MESSAGE)
    assert allows(policy, ANN, "list", "a.B.n1")
    assert not allows(policy, NOBODY, "list", "a.B.n1")
    assert not allows(policy, ANN, "read", f"{HANDBOOK}/hr.Salary.s")
    assert not allows(policy, ANN, "read", "not/../well.Formed.x")


def test_what_belongs_to_a_person_is_theirs_whatever_cedar_permits(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        'permit(principal, action, resource); forbid(principal, action == Action::"delete", '
        "resource) when { resource has owner && resource.owner == principal };",
        "p.cedar",
    )

    assert allows(policy, BOB, "write", OF_BOB)
    assert not allows(policy, BOB, "delete", OF_BOB)
    assert not allows(policy, ANN, "read", OF_BOB)
    assert allows(policy, NOBODY, "read", OF_NOBODY)
    assert not allows(policy, build_actor(None, "t2"), "read", OF_NOBODY)
    assert allows(load(tmp_path, "forbid(principal, action, resource) when {false};", "q.cedar"),
                  BOB, "write", OF_BOB)  # fmt: skip


def test_a_decision_names_the_policies_that_made_it(tmp_path: Path) -> None:
    policy = load(tmp_path, RULES, "p.cedar")

    def decide(actor: Actor, uri: str) -> tuple[str, str]:
        decision = policy.decide(actor, "read", uri)
        return decision.rule, decision.reason

    assert decide(ANN, PAGE) == ("handbook", "A policy permits it: handbook.")
    assert decide(ANN, "hr.Salary.s") == ("salaries", "A policy forbids it: salaries.")
    assert decide(ANN, "a.B.c") == ("policy4", "A policy permits it: policy4.")
    assert decide(ANN, "x.Y.z") == ("", "No policy permits it.")
    assert decide(BOB, OF_BOB)[0] == decide(ANN, OF_BOB)[0] == "ownership"
    assert "no URI" in decide(ANN, "/")[1]


def test_an_explanation_says_what_would_turn_a_decision(tmp_path: Path) -> None:
    policy = load(tmp_path, RULES, "p.cedar")
    broken = load(tmp_path, "permit(principal, action, resource) when { 1 < resource };", "q.cedar")

    def explain(uri: str, of: Policy = policy) -> str:
        return of.explain(ANN, "read", uri).changes[0]

    assert explain(PAGE) == "A policy that forbids read of it wins over all that permit it."
    assert explain("hr.Salary.s") == "Remove or narrow what forbids it: salaries."
    assert explain("x.Y.z") == "A policy that permits read of it to this actor would allow it."
    assert "a rule in YAML that names it does" in explain(OF_BOB)
    assert "Write the URI as" in explain("x//y")
    assert explain(PAGE, broken) == "Correct the policy: whatever fails denies."


def test_a_folder_may_have_entities_with_groups(tmp_path: Path) -> None:
    write(tmp_path, 'permit(principal in Group::"all", action, resource);', "a.cedar")
    write(
        tmp_path, "forbid(principal, action, resource) unless { principal.level > 3 };", "b.cedar"
    )
    entities: list[dict[str, Any]] = [
        {"uid": {"type": "Group", "id": "all"}, "attrs": {}, "parents": []},
        {
            "uid": {"type": "Group", "id": "staff"},
            "attrs": {},
            "parents": [{"type": "Group", "id": "all"}],
        },
        {
            "uid": {"type": "User", "id": "ann"},
            "attrs": {"level": 5, "name": "somebody else"},
            "parents": [{"type": "Group", "id": "staff"}],
        },
    ]
    write(tmp_path, json.dumps(entities), "entities.json")
    policy = load_policy(tmp_path)

    assert allows(policy, ANN, "read", PAGE)
    assert not allows(policy, BOB, "read", PAGE)


@in_one_test("text", ['{"uid": 1}', '[{"uid": "ann"}]', "[1]", "{", "3"])
def test_entities_of_another_form_are_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, "permit(principal, action, resource);", "a.cedar")
    write(tmp_path, text, "entities.json")

    with pytest.raises(PolicyUnreadable, match=r"entities\.json: (expected a list|not JSON)"):
        load_policy(tmp_path)


def test_each_policy_that_cannot_be_parsed_is_named_with_its_place(tmp_path: Path) -> None:
    text = """
        permit(principal, action, resource);
          // a comment
          permit(principal, action resource);
        forbid(
    """

    assert problems(tmp_path, text, "p.cedar") == [
        "line 3, column 3: this policy is not Cedar: unexpected token `resource`",
        "line 4, column 1: this policy is not Cedar: unexpected end of input",
    ]
    assert problems(tmp_path, "// none", "q.cedar")[0].endswith(": there is no policy in it")


def test_names_that_the_schema_does_not_have_are_pointed_out(tmp_path: Path) -> None:
    fine = load(tmp_path, RULES, "fine.cedar")
    odd = load(
        tmp_path,
        """
        permit(principal, action, resource) when { resource.size == 1 };
        permit(principal in Gruop::"x", action, resource);
        """,
        "odd.cedar",
    )

    assert fine.find_warnings() == []
    assert [problem.describe("odd") for problem in odd.find_warnings()][:2] == [
        "odd, line 1, column 1: for policy `policy0`, attribute `size` on entity type `Resource` "
        "not found",
        "odd, line 2, column 1: for policy `policy1`, unrecognized entity type `Gruop`",
    ]


def test_a_policy_that_fails_denies_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = load(
        tmp_path,
        "permit(principal, action, resource);"
        'forbid(principal, action, resource) when { resource.secret == "yes" };',
        "p.cedar",
    )

    assert not allows(policy, ANN, "read", PAGE)
    assert not allows(policy, BOB, "read", OF_BOB)
    assert len(caplog.messages) == 1
    assert "denies, because a policy failed" in caplog.messages[0]
    assert "The policy failed" in policy.decide(ANN, "read", PAGE).reason


class Panic(BaseException):
    """What a panic of Rust is in Python."""


def test_an_engine_that_panics_denies_until_it_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import cedarpy

    def panic(*_: object) -> None:
        raise Panic("the engine broke")

    def answer_nothing(*_: object) -> list[object]:
        return []

    policy = load(tmp_path, RULES, "p.cedar")
    access = policy.access(ANN, "read")
    key = access.key
    with monkeypatch.context() as patch:
        patch.setattr(cedarpy, "is_authorized_batch", panic)
        assert access.judge([PAGE, OF_BOB]) == [False, False]
        assert "did not answer" in policy.decide(ANN, "read", PAGE).reason
        patch.setattr(cedarpy, "is_authorized_batch", answer_nothing)
        assert not access.allows(PAGE)

    assert access.key != key
    assert access.judge([PAGE, OF_BOB]) == [True, False]
    assert caplog.messages == ["CedarPolicy failed and denies: Panic('the engine broke')"]


def test_an_interrupted_program_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cedarpy

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    policy = load(tmp_path, RULES, "p.cedar")
    monkeypatch.setattr(cedarpy, "is_authorized_batch", interrupt)

    with pytest.raises(KeyboardInterrupt):
        policy.access(ANN, "read").allows(PAGE)


def test_an_answer_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cedarpy

    policy = load(tmp_path, RULES, "p.cedar")
    real, batches = cedarpy.is_authorized_batch, list[int]()

    def count(requests: list[dict[str, Any]], *rest: Any) -> Any:
        batches.append(len(requests))
        return real(requests, *rest)

    monkeypatch.setattr(cedarpy, "is_authorized_batch", count)
    uris = [f"{HANDBOOK}/a.B.{n}" for n in range(2500)]
    access = policy.access(ANN, "read")

    assert all(access.judge([*uris, *uris]))
    assert all(policy.access(ANN, "read").judge(uris))
    assert batches == [1000, 1000, 500]

    monkeypatch.setattr(
        "copilot_runtime.extensions.knowledge.policies.engine.REMEMBERED_ANSWERS", 3000
    )
    assert all(policy.access(BOB, "read").judge(uris))  # those of ann had to go
    assert all(access.judge(uris))
    assert batches[3:] == [1000, 1000, 500] * 2
