"""Files of scenarios, and the mistakes in them."""

from pathlib import Path

import pytest

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.scenarios.files import load_scenarios
from tests.extensions.scenarios.conftest import Play
from tests.in_one_test import in_one_test
from tests.yaml_bombs import BOMBS


def find_mistakes(path: Path, text: str) -> list[str]:
    """Return the mistakes of a file, without its name."""
    path.write_text(text)
    with pytest.raises(ConfigurationFailed) as caught:
        load_scenarios([path])
    return [line.removeprefix(f"{path.as_posix()}:") for line in caught.value.message.splitlines()]


@in_one_test(
    ("text", "mistake"),
    [
        ("scenario: []", "1: there is no 'scenario'; did you mean 'scenarios'?"),
        ("scenarios: []", "1: scenarios: there is none."),
        ("", "1: scenarios: field required."),
        ("- a", "1: expected fields such as 'name: …', found a list."),
        ("scenarios:\n- name: x\n  say: [", "3: not YAML"),
        ("scenarios:\n- name: x", "2: scenarios.0: a scenario needs either `say` or `turns`."),
        (
            "scenarios:\n- name: x\n  answers: [a]\n  turns: [{say: a}]",
            "2: scenarios.0: `answers` belong to a turn: write them there.",
        ),
        (
            "scenarios:\n- {name: x, say: a}\n- {name: x, say: b}",
            "1: scenarios: two scenarios have the name 'x'.",
        ),
        (
            "scenarios:\n- {name: x, sya: a}",
            "2: there is no 'scenarios.0.sya'; did you mean 'say'?",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect:\n    text: {contans: b}",
            "5: there is no 'scenarios.0.expect.text.contans'; did you mean 'contains'?",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect:\n    text: {matches: '('}",
            "5: scenarios.0.expect.text.matches: '(' is not a regular expression",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect:\n    trace: '[?'",
            "5: scenarios.0.expect.trace: '[?' is not a JMESPath",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect: {text: 1900}",
            "4: scenarios.0.expect.text: input should be a valid string.",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect: {text: [a, 1900]}",
            "4: scenarios.0.expect.text.1: input should be a valid string.",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  script: [{call: 3}]",
            "4: scenarios.0.script.0.calls.0.name: input should be a valid string.",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect: {trace: ' '}",
            "4: scenarios.0.expect.trace: the JMESPath is empty.",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect:\n"
            "    calls: [{name: a, count: 1, at_least: 1}]",
            "5: scenarios.0.expect.calls.0: count is exact: leave out at_least and at_most.",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect: {in_order: true}",
            "4: scenarios.0.expect: in_order and other_calls need calls.",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect: {recalls: {resources: [a], at_least: 2}}",
            "4: scenarios.0.expect.recalls: at_least is 2, but there are 1 resources.",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  expect: {judge: {criteria: b, votes: 2}}",
            "4: scenarios.0.expect.judge.votes: an even number of votes may have no majority.",
        ),
        (
            "scenarios:\n- name: x\n  say: a\n  script: [{when: {agent: b}}]",
            "4: scenarios.0.script.0: an answer needs a text, calls or an error.",
        ),
        ("scenarios:\n- name: x\n  say: a\n  script: [3]", "4: scenarios.0.script.0: "),
        ("scenarios: &a [*a]", "1: a value contains itself."),
        (
            "scenarios:\n- name: x\n  say: a\n  state: {a: !!binary aGVsbG8=}",
            "1: a value of bytes (!!binary) is not valid JSON",
        ),
        ("scenarios:\n- name: x\n  say: a\n  state: .nan", "1: the number nan is not valid JSON"),
        ("defaults: {pass_rate: 2}\nscenarios: [{name: x, say: a}]", "1: defaults.pass_rate: "),
    ],
)
def test_each_mistake_is_named_with_its_line(tmp_path: Path, text: str, mistake: str) -> None:
    assert any(line.startswith(mistake) for line in find_mistakes(tmp_path / "a.test.yml", text))


@in_one_test("bomb", BOMBS)
def test_aliases_that_repeat_too_much_are_refused(tmp_path: Path, bomb: str) -> None:
    [mistake] = find_mistakes(tmp_path / "a.test.yml", f"scenarios:\n- name: x\n{bomb}")
    assert mistake.startswith("7: aliases (`*name`) repeat more than 100,000 values: use fewer")


def test_aliases_that_repeat_little_are_for_use(tmp_path: Path) -> None:
    (tmp_path / "a.test.yml").write_text(
        "scenarios:\n- &one {name: x, say: a, state: &s {a: 1}}\n- {<<: *one, name: y}\n"
        "- {name: z, say: a, state: [*s, *s]}"
    )
    states = [place.scenario.state for place in load_scenarios([tmp_path])]
    assert states == [{"a": 1}, {"a": 1}, [{"a": 1}, {"a": 1}]]


def test_the_mistakes_of_all_files_are_named_at_once(play: Play) -> None:
    files = {"a.test.yml": "scenarios: []", "b/b.test.yaml": "x: 1"}
    outcome = play(files, reports=False)

    assert outcome.status == 2
    assert "a.test.yml:1: scenarios: there is none." in outcome.output
    assert "b/b.test.yaml:1: there is no 'x'; known: defaults, scenarios" in outcome.output


@in_one_test(
    ("content", "reason"),
    [(b"\xff\xfe", "is not UTF-8 text"), (b" " * 4_000_001, "has more than 4,000,000 bytes")],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.test.yml").write_bytes(content)

    with pytest.raises(ConfigurationFailed, match=reason):
        load_scenarios([tmp_path])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.test.yml").mkdir()
    (tmp_path / "b.test.yml").symlink_to(tmp_path / "nowhere")

    with pytest.raises(ConfigurationFailed, match=r"b\.test\.yml:1: No such file"):
        load_scenarios([tmp_path])


def test_a_folder_without_scenarios_says_how_files_end(play: Play) -> None:
    outcome = play({"notes.yml": ""}, reports=False)

    assert outcome.status == 2
    assert "no file ends with .test.yml or .test.yaml" in outcome.output


def test_a_path_that_is_not_there_is_guessed(play: Play) -> None:
    outcome = play({"tests/a.test.yml": ""}, folder="test", reports=False)

    assert outcome.status == 2
    assert "There is no file or folder 'test'. Did you mean 'tests'?" in outcome.output


def test_folders_are_read_in_order_and_hidden_ones_are_not(tmp_path: Path) -> None:
    names = ["b/b.test.yml", "a.test.yml", ".git/c.test.yml", "node_modules/d.test.yml", "e.yml"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"scenarios:\n- {{name: {name}, say: Hi}}")

    found = load_scenarios([tmp_path, tmp_path / "a.test.yml", tmp_path / "e.yml"])
    assert [place.scenario.name for place in found] == ["a.test.yml", "b/b.test.yml", "e.yml"]
    assert str(found[0]) == f"{(tmp_path / 'a.test.yml').as_posix()}:2"


def test_what_a_file_says_of_all_counts_where_a_scenario_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.test.yml").write_text(
        "defaults: {agent: desk, repeat: 3, tags: x}\n"
        "scenarios:\n- {name: one, say: Hi}\n- {name: two, say: Hi, agent: rules}"
    )
    one, two = (place.scenario for place in load_scenarios([tmp_path]))

    assert (one.agent, one.repeat, one.tags) == ("desk", 3, ("x",))
    assert (two.agent, two.repeat) == ("rules", 3)


def test_what_yaml_reads_as_days_and_sets_is_json(tmp_path: Path) -> None:
    (tmp_path / "a.test.yml").write_text(
        "scenarios:\n- name: x\n  say: a\n"
        "  state: {day: 2024-02-29, at: 2024-02-29T10:00:00, 2: a, true: b, all: !!set {c}}"
    )
    [place] = load_scenarios([tmp_path])

    assert place.scenario.state == {
        "day": "2024-02-29",
        "at": "2024-02-29T10:00:00",
        "2": "a",
        "true": "b",
        "all": ["c"],
    }
