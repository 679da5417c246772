"""Why a policy decides as it does, what would turn it, and which of its rules are idle."""

from pathlib import Path

from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies import ALLOW_ALL
from tests.extensions.knowledge.policies.places import ANN, BOB, NOBODY, OF_BOB, load
from tests.in_one_test import in_one_test

RULES = """
    groups: {staff: ann}
    rules:
      - {name: handbook, allow: read, groups: staff, resources: common.Folder.handbook/**}
      - {name: drafts, deny: read, types: common.Draft, except: {users: ann}}
      - {allow: write, resources: "home.Page.{user}"}
      - {name: wide, allow: read, agents: robot}
      - {name: some, allow: read, resources: a.*, except: {resources: a.B.*}}
"""


@in_one_test(
    ("actor", "action", "uri", "rule", "change"),
    [
        (ANN, "read", "common.Folder.handbook", "handbook",
         "Without the rule 'handbook' (line 3) it would be denied."),
        (BOB, "read", "common.Folder.handbook", "",
         "The rule 'handbook' (line 3) would allow it, but it is for group staff."),
        (ANN, "write", "common.Folder.handbook", "",
         "The rule 'handbook' (line 3) would allow it, but it is about list, read, not write."),
        (BOB, "read", "common.Draft.d", "drafts",
         "Remove or narrow the rule 'drafts' (line 4), and add one that allows it."),
        (BOB, "read", "common.User.bob/common.Draft.d", "drafts",
         "Remove or narrow the rule 'drafts' (line 4)."),
        (BOB, "read", OF_BOB, "ownership",
         "A rule with 'deny: read' for it wins over all that allow it."),
        (Actor("ann", agent="robot"), "read", OF_BOB, "ownership",
         "The rule 'wide' (line 6) would allow it, but wildcards give away nothing that belongs "
         "to the user 'bob'."),
        (ANN, "read", OF_BOB, "ownership",
         "A rule with 'allow: read' and 'resources: common.User.bob/**' would allow it."),
        (ANN, "read", "x.Y.z", "",
         "A rule with 'allow: read' and 'resources: x.Y.z' would allow it."),
        (ANN, "read", "x..Y//z", "",
         "Write the URI as type.name, with those of its parents before it and slashes between."),
        (ANN, "write", "home.Page.ann", "line 5",
         "Without the rule on line 5 it would be denied."),
    ],
)  # fmt: skip
def test_a_decision_names_its_rule_and_what_would_turn_it(
    tmp_path: Path, actor: Actor, action: AccessAction, uri: str, rule: str, change: str
) -> None:
    explanation = load(tmp_path, RULES).explain(actor, action, uri)

    assert explanation.decision.rule == rule
    assert change in explanation.changes


def test_each_rule_says_why_it_applies_or_does_not(tmp_path: Path) -> None:
    explanation = load(tmp_path, RULES).explain(NOBODY, "write", "a.B.c")

    assert [(step.rule, step.line, step.applies, step.reason) for step in explanation.steps] == [
        ("handbook", 3, False, "it is about list, read, not write; it is for group staff; "
         "it is about common.Folder.handbook/**"),
        ("drafts", 4, False, "it is about list, read, not write; "
         "it is about everything of type common.Draft"),
        ("", 5, False, "there is no user for the {user} of home.Page.{user}"),
        ("wide", 6, False, "it is about list, read, not write; "
         "it is for everybody through agent robot"),
        ("some", 7, False, "it is about list, read, not write; it leaves out everybody with a.B.*"),
    ]  # fmt: skip


def test_with_an_open_default_only_a_rule_that_denies_counts(tmp_path: Path) -> None:
    policy = load(tmp_path, "default: allow\nrules: [{name: no, deny: read, resources: a.B.c}]")

    assert policy.explain(ANN, "read", "a.B.c").changes == [
        "Remove or narrow the rule 'no' (line 2)."
    ]
    assert policy.explain(ANN, "write", "a.B.c").decision.reason == (
        "No rule is about write of it by this actor, and the default is allow."
    )


def test_a_policy_of_another_kind_gives_the_decision_alone() -> None:
    explanation = ALLOW_ALL.explain(ANN, "read", "a.B.c")

    assert explanation.decision.reason == "Everything is allowed."
    assert (explanation.steps, explanation.changes) == ((), ())
    assert ALLOW_ALL.find_warnings() == ()


@in_one_test(
    ("rules", "warning"),
    [
        ("{allow: read, groups: stff}",
         "names the group 'stff', which the file does not define: only actors whom the application "
         "puts into it are meant; did you mean 'staff'?"),
        ("{allow: read, groups: zzz}",
         "names the group 'zzz', which the file does not define: only actors whom the application "
         "puts into it are meant"),
        ("{allow: read, resources: a.B.c/d.E.*, types: a.B}",
         "can never match: nothing that a.B.c/d.E.* matches is of that type"),
        ("{allow: read, resources: a.B.*, except: {resources: a.*}}",
         "can never match: its exception leaves out all that it is about"),
        ("{allow: read, resources: a.B.c, users: ann}, {deny: all, resources: a.B.*}",
         "can never matter: the rule on line 3 denies all that it is about"),
        ("{allow: read, resources: a.B.c/**}, {allow: list, users: ann, resources: a.B.c}",
         "changes nothing: the rule on line 3 allows all that it is about"),
        ("{deny: read, groups: staff}, {deny: read, groups: staff}",
         "changes nothing: the rule on line 3 denies all that it is about"),
        ("{allow: read, users: 'a*'}, {allow: read, users: [ann, 'ab*']}",
         "changes nothing: the rule on line 3 allows all that it is about"),
        ("{allow: read, agents: x, types: a.B}, {deny: all, types: 'a.*'}",
         "can never matter: the rule on line 3 denies all that it is about"),
    ],
)  # fmt: skip
def test_a_rule_that_never_matters_is_pointed_out(tmp_path: Path, rules: str, warning: str) -> None:
    policy = load(tmp_path, f"groups: {{staff: ann}}\nrules:\n  [{rules}]")

    warnings = [problem.describe("policy.yml") for problem in policy.find_warnings()]

    assert [line.partition("the rule on line 3 ")[2] for line in warnings] == [warning]
    assert warnings[0].startswith("policy.yml, line 3, column ")


@in_one_test(
    "rules",
    [
        "{allow: read, resources: a.B.c}, {deny: read, resources: a.B.c, users: ann}",
        "{allow: read}, {allow: read, resources: common.User.*/**, users: ann}",
        "{allow: read, resources: a.B.c}, {deny: all, except: {users: ann}}",
        "{allow: read, resources: a.B.*}, {deny: all, resources: a.B.*/*}",
        "{allow: read, resources: a.B.x*}, {deny: read, resources: a.B.y*}",
        "{allow: read, resources: a.B.*, types: 'a.*'}",
        "{allow: read, resources: '{user}.x.y', types: a.B}",
        "{allow: read, resources: '**', types: a.B}, {deny: read, types: c.D}",
        "{allow: read, users: ann}, {deny: read, groups: staff}",
        "{allow: read, groups: staff}, {deny: read, users: ann}",
        "{allow: read, resources: a.B.c/**}, {deny: read, resources: a.B.c}",
        "{allow: read, resources: a.B.c}, {deny: read, resources: a.B.c/d.E.f}",
    ],
)
def test_a_rule_that_may_matter_is_left_alone(tmp_path: Path, rules: str) -> None:
    policy = load(tmp_path, f"groups: {{staff: ann}}\nrules:\n  [{rules}]")

    assert policy.find_warnings() == []


def test_an_open_default_makes_rules_that_allow_idle(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        "default: allow\nrules: [{allow: read}, {allow: read, resources: common.User.*}]",
    )

    assert [problem.message for problem in policy.find_warnings()] == [
        "the rule on line 2 changes nothing: the default allows what belongs to nobody"
    ]
