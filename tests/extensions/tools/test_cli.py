"""`copilot-runtime develop tools`, on files of tools."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.base.errors import ConfigurationFailed, Misuse, UnknownName
from copilot_runtime.cli.main import cli
from tests.in_one_test import in_one_test

FUNCTIONS = "tests.extensions.tools.catalog.functions"
TOOLS = f"""
greet:
  purpose: |
    Greet somebody.
    In two lines.
  idempotent: true
  hidden: [punctuation]
  endpoint: {{function: "{FUNCTIONS}:greet"}}
note:
  endpoint: {{function: "{FUNCTIONS}:write_much"}}
"""
Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a function that runs a command where `copilot.yml` names a file of tools."""
    (tmp_path / "tools.yml").write_text(TOOLS)
    (tmp_path / "copilot.yml").write_text("tools: tools.yml\n")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(cli, ["develop", "tools", *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def _lines(result: Result) -> list[str]:
    return [line.strip() for line in result.stdout.splitlines()]


def test_tools_are_listed_with_what_they_are_for(run: Run) -> None:
    assert _lines(run("list")) == [
        "NAME   ENDPOINT  SOURCE       PURPOSE",
        "greet  function  tools.yml:2  Greet somebody.",
        "note   function  tools.yml:9",
    ]
    assert json.loads(run("list", "--json").stdout)[0] == {
        "name": "greet",
        "endpoint": "function",
        "source": "tools.yml:2",
        "purpose": "Greet somebody.",
    }


def test_a_docstring_says_what_a_tool_is_for_where_the_file_does_not(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "tools.yml").write_text(f"hail: {{endpoint: {{function: '{FUNCTIONS}:greet'}}}}")
    (found,) = json.loads(run("list", "--json").stdout)
    assert found["purpose"] == "Greet somebody."


def test_show_prints_a_tool_as_the_model_reads_it(run: Run) -> None:
    shown = run("show", "greet").stdout
    assert shown.startswith("greet (idempotent)\n\nPURPOSE: Greet somebody.\nIn two lines.\n\n{")

    (action,) = json.loads(run("show", "greet", "--json").stdout)
    assert action["idempotent"] is True
    assert [*action["parameters"]["properties"]] == ["name", "greeting"]


def test_a_tool_is_called(run: Run) -> None:
    assert run("call", "greet", '{"name": "Ann"}').stdout == "Hello, Ann!\n"
    assert json.loads(run("call", "greet", '{"name": "Ann"}', "--json").stdout) == {
        "content": "Hello, Ann!",
        "error": None,
        "hint": None,
    }


def test_a_call_that_fails_ends_with_status_1(run: Run) -> None:
    result = run("call", "greet")
    assert result.exit_code == 1
    assert "name: Field required" in result.stderr
    assert "The model" not in result.stderr


@in_one_test("arguments", ["a=3", "[1]", '{"a": '])
def test_arguments_that_are_no_object_are_an_error_with_an_example(
    run: Run, arguments: str
) -> None:
    with pytest.raises(Misuse, match="The arguments are no JSON object: ") as caught:
        run("call", "greet", arguments)
    assert caught.value.hint == (
        """Write one, such as: copilot-runtime develop tools call greet '{"city": "Rome"}'"""
    )


@in_one_test("command", ["call", "show", "check"])
def test_a_name_that_is_nearly_right_is_guessed(run: Run, command: str) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'greet'"):
        run(command, "gret")


def test_endpoints_are_reached(run: Run) -> None:
    assert _lines(run("check")) == [
        "NAME   ENDPOINT  STATE  DETAIL",
        "greet  function  ok     imported",
        "note   function  ok     imported",
    ]


def test_a_tool_that_can_never_work_fails_the_check(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "broken.yml"
    file.write_text("broken: {endpoint: {function: 'no_such_module:x'}}\n")

    result = run("check", "--tools", str(file), "--json")

    assert result.exit_code == 1
    (found,) = json.loads(result.stdout)
    assert (found["tool"], found["is_reachable"]) == ("broken", False)
    assert "No module named 'no_such_module'." in found["detail"]


def test_a_tool_without_its_secret_hides_no_other(run: Run, tmp_path: Path) -> None:
    endpoint = '{http: {url: "http://127.0.0.1:9/", headers: {key: "${secret:NO_SUCH_KEY}"}}}'
    (tmp_path / "tools.yml").write_text(f"{TOOLS}\nlocked: {{endpoint: {endpoint}}}\n")

    listed = run("list")

    assert len(_lines(listed)) == 3
    assert "The tool 'locked' can never work. " in listed.stderr
    assert "Set the environment variable NO_SUCH_KEY" in listed.stderr
    assert run("call", "greet", '{"name": "Ann"}').stdout == "Hello, Ann!\n"
    with pytest.raises(ConfigurationFailed, match="The secret 'NO_SUCH_KEY' is not set"):
        run("show", "locked")


def test_without_tools_the_way_out_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "copilot.yml").write_text("")
    with pytest.raises(ConfigurationFailed) as caught:
        run("list")
    assert caught.value.hint == "Name one with --tools, or by the setting tools."
