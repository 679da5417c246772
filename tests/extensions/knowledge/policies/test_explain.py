"""Why a policy decides as it does, what would turn it, and which of its rules are idle."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies import ALLOW_ALL, build_actor, load_policy
from tests.documents import DOCS, blocks
from tests.extensions.knowledge.policies.places import ANN, BOB, NOBODY, OF_BOB, load, write
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
         "it is for all users through agent robot"),
        ("some", 7, False, "it is about list, read, not write; it leaves out a.B.*"),
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
        ("{deny: read, files: '*', types: hr.Salary}",
         "can never match: nothing that * matches is of that type"),
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
        "the rule on line 2 changes nothing: the default allows resources without an owner"
    ]


PAGE = "knowledge/policies"
TEXT = (DOCS / f"{PAGE}.md").read_text(encoding="utf-8")
PAGE_RULES = next(block.code for block in blocks("yml", PAGE) if "groups:" in block.code)
ROWS = re.findall(
    r"^\| (\S+(?: through \S+)?) \| (read|write|delete) \| `(\S+)` \| (\w+) \| ([\w ]*?) ?\|$",
    TEXT,
    re.MULTILINE,
)


def test_the_table_of_decisions_is_read() -> None:
    assert len(ROWS) == 14


@in_one_test(("who", "action", "uri", "decision", "rule"), ROWS)
def test_the_rules_of_the_page_decide_as_it_says(
    tmp_path: Path, who: str, action: AccessAction, uri: str, decision: str, rule: str
) -> None:
    (tmp_path / "policy.yml").write_text(PAGE_RULES)
    name, _, agent = who.partition(" through ")
    actor = build_actor(None if name == "nobody" else name, agent=agent)

    found = load_policy(tmp_path).decide(actor, action, uri)

    assert ("allowed" if found.allowed else "denied", found.rule) == (decision, rule)


def test_nothing_is_odd_about_the_rules_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "policy.yml").write_text(PAGE_RULES)

    assert load_policy(tmp_path).find_warnings() == []


@in_one_test(("kind", "package"), [("cedar", "cedarpy"), ("rego", "regopy")])
def test_policies_of_the_page_in_other_languages_agree(
    tmp_path: Path, kind: str, package: str
) -> None:
    pytest.importorskip(package)
    (tmp_path / f"policy.{kind}").write_text(blocks(kind, PAGE)[0].code)
    policy = load_policy(tmp_path)
    nobody = build_actor(None)

    decisions = policy.judge(
        nobody,
        "read",
        [
            "common.Folder.handbook/common.Document.d1",
            "common.Folder.handbook/hr.Salary.s1",
            "common.Message.m1",
        ],
    )

    assert decisions == [True, False, False]
    assert [*policy.find_warnings()] == []
    policy.close()


COMMAND_RULES = """
    groups: {staff: ann}
    rules:
      - {name: handbook, allow: read, groups: staff, resources: common.Folder.handbook/**}
      - {name: rest, allow: list, groups: stff}
"""
WARNING = (
    "the rule 'rest' (line 4) names the group 'stff', which the file does not define: only actors "
    "whom the application puts into it are meant; did you mean 'staff'?"
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["knowledge", "policy", *arguments])


def test_check_names_what_is_odd(tmp_path: Path) -> None:
    path = write(tmp_path, COMMAND_RULES)

    done = run("check", str(path))

    assert done.exit_code == 0
    assert done.stdout == f"warning: {path}, line 4, column 5: {WARNING}\n"
    assert done.stderr == f"{path} can be used; 1 thing is odd about it.\n"


def test_check_names_a_path_that_no_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pay.md", "[b]onus.md", "e\u0301/e\u0301.md", "\xfc.md"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("x")
    wrong = ["handbok/pay.md", "pay.m?", "[p]ay.md", "{pay,bonus}.md", "p?y.*", "\xe9/\xfc.md"]
    right = ["pay.md", "p*.md", "[b]onus.md", "[b]*", "\xe9/\xe9.md", "u\u0308.*"]
    path = write(tmp_path, f"rules: [{{name: pay, deny: read, files: {[*wrong, *right]}}}]")

    found = run("check", str(path)).stdout
    assert re.findall("names '(.*)', which is no file or folder", found) == wrong


def test_check_names_a_rule_that_hides_no_stored_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pay.md", "club.md"):
        Path(name).write_text(f"# {name}\n\nAnn earns 100 pounds.\n")
    ingested = CliRunner().invoke(
        cli, ["knowledge", "ingest", "pay.md", "--storage", "local:store"], catch_exceptions=False
    )
    assert ingested.exit_code == 0
    rules = "default: allow\nrules: [{name: pay, deny: read, files: [pay.md, club.md]}]"
    path = write(tmp_path, rules)
    Path("copilot.yml").write_text("knowledge: {storage: local:store}")
    place = f"{path}, line 2, column 9"
    idle = f"warning: {place}: the rule 'pay' (line 2) hides nothing: club.md matches no resource\n"
    nowhere = ("memory", "local:none", "local:pay.md")
    for storage, found in {"": idle, "local:store": idle, **dict.fromkeys(nowhere, "")}.items():
        done = run("check", str(path), *(("--storage", storage) if storage else ()))
        assert (done.exit_code, done.stdout) == (0, found)
        assert ("The stored texts are not compared" in done.stderr) is (storage == "local:pay.md")
    assert not Path("none").exists()


def test_check_has_nothing_to_say_of_what_is_fine(tmp_path: Path) -> None:
    path = write(tmp_path, "default: allow")

    assert run("check", str(path)).stderr == f"{path} can be used; nothing is odd about it.\n"


def test_check_names_all_mistakes_and_fails(tmp_path: Path) -> None:
    path = write(tmp_path, "default: x\nrules: 1")

    done = run("check", str(path))

    assert done.exit_code == 1
    assert done.stdout == (
        f"error: {path}, line 1, column 10: 'x' is none of deny, allow\n"
        f"error: {path}, line 2, column 8: 'rules' is a list: each begins with '- ', not '1'\n"
    )
    assert done.stderr == f"{path} cannot be used: 2 mistakes.\n"


def test_check_writes_json(tmp_path: Path) -> None:
    good, bad = write(tmp_path, COMMAND_RULES, "a.yml"), write(tmp_path, "default: x", "b.yml")

    assert json.loads(run("check", str(good), "--json").stdout) == {
        "usable": True,
        "problems": [{"message": WARNING, "line": 4, "column": 5}],
    }
    assert json.loads(run("check", str(bad), "--json").stdout) == {
        "usable": False,
        "problems": [{"message": "'x' is none of deny, allow", "line": 1, "column": 10}],
    }


def test_what_is_not_there_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed, match="There is no policy"):
        CliRunner().invoke(
            cli, ["policy", "check", str(tmp_path / "none.yml")], catch_exceptions=False
        )


def test_explain_says_which_rule_decides_and_what_would_change_it(tmp_path: Path) -> None:
    path = write(tmp_path, COMMAND_RULES)

    done = run("explain", "bob", "read", "cld:common.Folder.handbook", "--policy", str(path))

    assert done.exit_code == 1
    assert done.stdout == (
        "denied: No rule is about read of it by this actor, and the default is deny.\n"
        "\n"
        "  RULE      LINE  EFFECT  APPLIES  WHY\n"
        "  handbook  3     allow   no       it is for group staff\n"
        "  rest      4     allow   no       it is about list, not read; it is for group stff\n"
        "\n"
        "What would change it:\n"
        "  The rule 'handbook' (line 3) would allow it, but it is for group staff.\n"
        "  A rule with 'allow: read' and 'resources: common.Folder.handbook' would allow it.\n"
    )


def test_explain_writes_json(tmp_path: Path) -> None:
    path = write(tmp_path, COMMAND_RULES)
    question = ("explain", "eve", "list", "x.Y.z", "--group", "stff", "--policy", str(path))

    done = run(*question, "--json")

    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert (answer["allowed"], answer["rule"]) == (True, "rest")
    assert [step["applies"] for step in answer["steps"]] == [False, True]
    assert answer["changes"][0] == "Without the rule 'rest' (line 4) it would be denied."


def test_explain_takes_the_policy_of_the_settings(tmp_path: Path) -> None:
    path = write(tmp_path, COMMAND_RULES)
    settings = write(tmp_path, f"knowledge: {{policy: {path}}}", "copilot.yml")

    done = run("explain", "ann", "read", "common.Folder.handbook", "--config", str(settings))

    assert done.stdout.startswith("allowed: The rule 'handbook' (line 3) allows read, list")


def test_without_a_policy_owners_decide() -> None:
    done = run("explain", "-", "read", "common.Conversation.t1", "--thread", "t1")

    assert "No policy is set" in done.stderr
    assert done.stdout.startswith("allowed: It belongs to the people in the conversation 't1'.")
    assert run("explain", "-", "read", "common.Conversation.t1").exit_code == 1


def test_a_policy_in_cedar_is_explained_by_its_decision(tmp_path: Path) -> None:
    pytest.importorskip("cedarpy")
    path = write(tmp_path, '@id("all") permit(principal, action, resource);', "p.cedar")

    done = run("explain", "ann", "read", "a.B.c", "--agent", "x", "--policy", str(path))

    assert done.stdout == (
        "allowed: A policy permits it: all.\n"
        "\n"
        "What would change it:\n"
        "  A policy that forbids read of it wins over all that permit it.\n"
    )


@in_one_test("path", ["handbook/hr/pay.md", "./handbook/hr/pay.md", "handbook/hr/"])
def test_explain_takes_the_path_of_a_file(tmp_path: Path, path: str) -> None:
    rules = write(tmp_path, "default: allow\nrules: [{name: pay, deny: read, files: handbook/hr}]")
    done = run("explain", "ann", "read", path, "--policy", str(rules))

    assert done.exit_code == 1
    assert "denied: The rule 'pay' (line 2) denies read, list of handbook/hr to all users." in (
        done.stdout
    )
    assert "is taken for a path: common.Folder.handbook/common." in done.stderr


def test_explain_knows_what_was_taken_in_before_the_policy(tmp_path: Path) -> None:
    rules = write(tmp_path, "default: allow\nrules: []")
    thing = f"common.Message.{'0' * 32}"

    done = run("explain", "ann", "read", thing, "--policy", str(rules))

    assert done.exit_code == 1
    assert "denied: It joins what several files say, and was taken in before" in done.stdout
    assert (
        run("explain", "ann", "read", f"common.Folder.a/{thing}", "--policy", str(rules)).exit_code
        == 0
    )


def test_an_action_that_is_none_is_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'read'"):
        CliRunner().invoke(
            cli, ["policy", "explain", "ann", "raed", "a.B.c"], catch_exceptions=False
        )
