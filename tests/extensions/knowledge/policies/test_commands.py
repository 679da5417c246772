"""`copilot-runtime policy`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.cli.main import cli
from tests.extensions.knowledge.policies.places import write
from tests.in_one_test import in_one_test

RULES = """
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
    return CliRunner().invoke(cli, ["policy", *arguments])


def test_check_names_what_is_odd(tmp_path: Path) -> None:
    path = write(tmp_path, RULES)

    done = run("check", str(path))

    assert done.exit_code == 0
    assert done.stdout == f"warning: {path}, line 4, column 5: {WARNING}\n"
    assert done.stderr == f"{path} can be used; 1 thing is odd about it.\n"


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
    good, bad = write(tmp_path, RULES, "a.yml"), write(tmp_path, "default: x", "b.yml")

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
    path = write(tmp_path, RULES)

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
    path = write(tmp_path, RULES)
    question = ("explain", "eve", "list", "x.Y.z", "--group", "stff", "--policy", str(path))

    done = run(*question, "--json")

    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert (answer["allowed"], answer["rule"]) == (True, "rest")
    assert [step["applies"] for step in answer["steps"]] == [False, True]
    assert answer["changes"][0] == "Without the rule 'rest' (line 4) it would be denied."


def test_explain_takes_the_policy_of_the_settings(tmp_path: Path) -> None:
    path = write(tmp_path, RULES)
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


@in_one_test(
    "text", ["docs-own/vacation.md", "handbook", "common.Folder.a/x.md", "/common.Folder.a", ""]
)
def test_what_is_no_uri_is_refused_with_where_to_find_one(text: str) -> None:
    done = run("explain", "ann", "read", text)

    assert (done.exit_code, done.stdout) == (1, "")
    assert isinstance(done.exception, ConfigurationFailed)
    assert "is no URI of a resource, which looks like common.Folder" in str(done.exception)
    assert "`copilot-runtime search TEXT`" in str(done.exception.hint)


def test_an_action_that_is_none_is_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'read'"):
        CliRunner().invoke(
            cli, ["policy", "explain", "ann", "raed", "a.B.c"], catch_exceptions=False
        )
