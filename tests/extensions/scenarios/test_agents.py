"""Scenarios of assistants and plans: those of the examples, and small ones."""

import asyncio
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner

from copilot_runtime.cli.main import cli
from copilot_runtime.cli.serve import build_runtime
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.testing import Client
from tests.documents import ROOT
from tests.extensions.scenarios.conftest import Play

EXAMPLE = ROOT / "examples" / "assistants"

PLANNED = """
from copilot_runtime import CopilotRuntime, DemoAdapter, Settings, action

@action
def get_weather(city: str) -> str:
    "Look up the weather."
    return f"4 degrees in {city}"

runtime = CopilotRuntime(
    DemoAdapter(pace=0),
    actions=[get_weather],
    settings=Settings(
        threads="memory",
        planner={"name": "planner", "store": "memory", "summary": "join", "needs_approval": True},
    ),
)
"""
PLAN = """
scenarios:
  - name: a plan of two tasks
    agent: planner
    say: How cold is it in Oslo, and in Rome?
    answers: [true]
    script:
      - when: {tool: create_plan}
        call: create_plan
        arguments:
          tasks:
            - {name: Oslo, purpose: Find how cold it is in Oslo.}
            - {name: Rome, purpose: Find how cold it is in Rome., evaluation: It says degrees.}
      - {when: {last: Oslo}, text: It is cold in Oslo.}
      - when: {tool: report_evaluation}
        call: report_evaluation
        arguments: {passed: true}
      - {when: {last: Rome}, text: It is 20 degrees in Rome.}
    expect:
      text: [It is cold in Oslo., It is 20 degrees in Rome.]
      asks: [plan]
      plan:
        status: finished
        tasks: [Oslo, {name: Rome, status: finished, passed: true}]
        where: "progress.finished == `2`"
"""


def test_the_scenarios_of_the_assistants_pass_and_report_the_same_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COPILOT_KNOWLEDGE_STORAGE", f"local:{tmp_path}")
    monkeypatch.chdir(ROOT)
    monkeypatch.delitem(sys.modules, "pretend", raising=False)  # that of another example
    reports: list[str] = []
    for number in range(2):
        file = tmp_path / f"{number}.json"
        words = ["test", "examples/assistants/tests", "--offline", "--report", str(file)]
        target = str(EXAMPLE.relative_to(ROOT) / "server.py:app")
        result = CliRunner().invoke(cli, [*words, "--target", target])
        assert result.exit_code == 0, result.output
        reports.append(file.read_text())

    assert reports[0] == reports[1]
    assert "https://skerryline.example/id/ship/gannet" in reports[0]


def test_what_became_of_a_plan_is_expected(play: Play) -> None:
    outcome = play(PLAN, "--offline", app=PLANNED)
    assert outcome.status == 0, outcome.output


def test_a_plan_that_is_not_as_expected_says_what_its_tasks_are(play: Play) -> None:
    head, _, _ = PLAN.partition("      plan:")
    plan = "{status: failed, tasks: [{name: Rome, passed: false}, Paris], where: questions}"
    outcome = play(f"{head}      plan: {plan}\n", "--offline", app=PLANNED)

    assert outcome.failures == ["plan.status", "plan.tasks", "plan.tasks", "plan.where"]
    assert '"name":"Oslo","status":"finished"' in outcome.output


STORES = """
adapter: {name: demo}
planner: {name: planner, summary: join, needs_approval: true}
threads: sqlite:.copilot/threads.db
events: {store: "sqlite:events.db"}
telemetry: {store: "sqlite:.copilot/traces.db"}
knowledge: {storage: "local:.copilot/knowledge", sources: [pages]}
"""


def test_scenarios_leave_the_stores_of_the_application_as_they_are(
    play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COPILOT_THREADS", raising=False)
    (tmp_path / "copilot.yml").write_text(STORES)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "oslo.md").write_text("# Oslo\n\nIt is cold in Oslo.\n")

    async def serve() -> None:
        async with Client(build_runtime("demo", load_settings()), agent="planner") as client:
            await client.say("Create plan")

    asyncio.run(serve())
    (tmp_path / "pages" / "rome.md").write_text("# Rome\n\nIt is 20 degrees in Rome.\n")
    (tmp_path / "chat.test.yml").write_text(dedent(PLAN))
    before = _read_files(tmp_path)
    outcome = play(PLAN, "--offline", app=None, reports=False)
    after = _read_files(tmp_path)

    assert outcome.status == 0, outcome.output
    assert {"events.db", ".copilot/threads.db", ".copilot/plans.db"} <= {*before}
    assert after == before


RECALLS = """
scenarios:
  - {name: one, say: Is Oslo cold, expect: {recalls: {resources: [pages/oslo.md]}}}
  - {name: two, say: Is Oslo cold, expect: {recalls: {resources: [pages/rome.md]}}}
"""


def test_a_resource_is_recalled_by_its_file_which_the_report_names(
    play: Play, tmp_path: Path
) -> None:
    (tmp_path / "copilot.yml").write_text("knowledge: {storage: memory, sources: [pages]}\n")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "oslo.md").write_text("# Oslo\n\nIt is cold in Oslo.\n")
    outcome = play(RECALLS, app=None)

    one, two = (it["attempts"][0] for it in outcome.report["scenarios"])
    assert one["outcome"] == "passed"
    assert [it["actual"] for it in two["failures"]] == ["pages/oslo.md"]


def _read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


OWN = """
from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.agents.direct import DirectAgent

runtime = CopilotRuntime(
    DemoAdapter(pace=0),
    agents={"own": DirectAgent(DemoAdapter(pace=0))},
    settings=Settings(threads="memory", assistants={"folder": "."}),
)
"""


def test_agents_of_a_program_and_of_files_are_scripted(play: Play) -> None:
    text = """
    scenarios:
      - {name: a, agent: own, say: Hi, script: [I am of the program.]}
      - {name: b, agent: desk, say: Hi, script: [I am of a file.]}
      - {name: c, agent: dsk, say: Hi, script: [Nobody.]}
    """
    files = {"a.test.yml": text, "desk.agent.md": "You are the desk."}
    outcome = play(files, "--offline", app=OWN)

    assert outcome.report, outcome.output
    assert [it["outcome"] for it in outcome.report["scenarios"]] == ["passed", "passed", "error"]
    assert "desk" in outcome.report["scenarios"][2]["attempts"][0]["error"]
