"""How scenarios are played: which, how often, with which models, how long, and what is written."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.adapters import pricing
from copilot_runtime.config.console import ConsoleSettings
from copilot_runtime.extensions.scenarios.attempt import Attempt, Player
from copilot_runtime.extensions.scenarios.definition import Scenario
from copilot_runtime.extensions.scenarios.files import Place
from copilot_runtime.extensions.scenarios.report import Result, encode_junit
from copilot_runtime.extensions.scenarios.runner import Progress, run_scenarios
from tests.documents import ROOT
from tests.extensions.scenarios.conftest import APP, Play
from tests.in_one_test import in_one_test
from tests.processes import in_terminal
from tests.wire_agui.server import serving

THREE = """
scenarios:
  - {name: Weather in Oslo, tags: [weather, smoke], say: Hi, script: [Cold.]}
  - {name: Weather in Rome, tags: weather, agent: default, say: Hi, script: [Warm.]}
  - {name: A greeting, say: Hi, models: [a, b], script: [Hello.]}
"""
MODELS = """
from copilot_runtime import CopilotRuntime, Adapter
from copilot_runtime.adapters.scripted import say

class Echo(Adapter):
    async def stream(self, request):
        for event in say(f"I am {request.parameters.model}."):
            yield event

runtime = CopilotRuntime(Echo())
"""
PRICED = """
from copilot_runtime import CopilotRuntime, Adapter
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.events import Usage

class Paid(Adapter):
    async def stream(self, request):
        for event in say("Hello."):
            yield event
        model = request.messages[-1].content
        yield Usage(model=model, provider="openai", input_tokens=1000, output_tokens=1000)

runtime = CopilotRuntime(Paid())
"""
FLAKY = """
from copilot_runtime import CopilotRuntime, ScriptedAdapter
from copilot_runtime.testing import say

runtime = CopilotRuntime(ScriptedAdapter(*(say(it) for it in ["Yes.", "No.", "Yes.", "Yes."])))
"""


def test_scenarios_are_listed(play: Play) -> None:
    outcome = play(THREE, "--list", app=None)

    assert [line.split() for line in outcome.output.splitlines()] == [
        ["NAME", "PLACE", "AGENT", "TAGS", "MODEL"],
        ["Weather", "in", "Oslo", "chat.test.yml:3", "weather,", "smoke", "script"],
        ["Weather", "in", "Rome", "chat.test.yml:4", "default", "weather", "script"],
        ["A", "greeting", "chat.test.yml:5", "script"],
    ]


def test_it_says_which_application_was_tested(play: Play) -> None:
    assert " s. Tested: program_" in play(THREE, "-k", "oslo").output
    assert (
        " s. Tested: the model 'demo' with no settings file, and no program; name yours with "
        "--target\n" in play(THREE, "-k", "oslo", app=None).output
    )


@in_one_test(
    ("options", "names"),
    [
        (["-k", "oslo"], ["Weather in Oslo"]),
        (["-k", "weather*rome", "-k", "greet"], ["Weather in Rome", "A greeting", "A greeting"]),
        (["--tag", "smoke"], ["Weather in Oslo"]),
        (["--tag", "weather", "-k", "rome"], ["Weather in Rome"]),
    ],
)
def test_some_scenarios_are_played(play: Play, options: list[str], names: list[str]) -> None:
    outcome = play(THREE, *options)

    assert [it["name"] for it in outcome.report["scenarios"]] == names


def test_filters_that_leave_nothing_say_which_tags_there_are(play: Play) -> None:
    outcome = play(THREE, "--tag", "wether")

    assert outcome.status == 2
    assert "Tags there: smoke, weather." in outcome.output


def test_each_scenario_is_played_with_each_model(play: Play) -> None:
    text = "scenarios: [{name: a, say: Who are you, models: [x, y]}]"
    own = play(text, app=MODELS)
    other = play(text, "--model", "z", app=MODELS)

    assert [it["model"] for it in own.report["scenarios"]] == ["x", "y"]
    assert own.report["scenarios"][1]["attempts"][0]["turns"][0]["text"] == "I am y."
    assert other.attempt["turns"][0]["text"] == "I am z."
    assert "seconds" in other.attempt


def test_a_model_of_another_provider_is_named_with_it(play: Play) -> None:
    text = "scenarios: [{name: a, say: Hi}]"
    demo = play(text, "--model", "demo:", app=MODELS)
    other = play(text, "--model", "openai:gpt", "--offline", app=MODELS)

    assert "'demo:' names no model, as in demo:NAME." in demo.attempt["error"]
    assert "has no script" in other.attempt["error"]


def test_the_first_request_of_a_command_has_its_price(play: Play) -> None:
    pytest.importorskip("genai_prices")
    pricing._providers.cache_clear()  # pyright: ignore[reportPrivateUsage]
    text = "scenarios: [{name: a, say: gpt-4o, expect: {limits: {dollars: 1}}}]"
    outcome = play(text, app=PRICED)

    assert (outcome.status, "$0.0125\n" in outcome.output) == (0, True), outcome.output


def test_a_cost_without_the_price_of_some_requests_is_marked(play: Play) -> None:
    pytest.importorskip("genai_prices")
    text = "scenarios: [{name: a, turns: [{say: gpt-4o}, {say: a-model}]}]"

    assert "$0.0125+\n" in play(text, app=PRICED).output


def test_a_script_is_left_aside_for_real_models(play: Play) -> None:
    text = "scenarios: [{name: a, say: Who are you, script: [I am a script.]}]"
    texts = [
        play(text, *options, app=MODELS).attempt["turns"][0]["text"]
        for options in ([], ["--live"], ["--model", "m"], ["--model", "m", "--offline"])
    ]

    assert texts == ["I am a script.", "I am None.", "I am m.", "I am a script."]


def test_a_part_of_the_repetitions_may_fail(play: Play) -> None:
    text = "scenarios: [{name: a, say: Hi, repeat: 4, pass_rate: 0.75, expect: {text: Yes.}}]"
    enough = play(text, app=FLAKY)
    strict = play(text, "--pass-rate", "1", app=FLAKY)
    once = play(text, "--repeat", "1", app=FLAKY)

    assert (enough.status, strict.status, once.status) == (0, 1, 0)
    assert enough.report["scenarios"][0]["passed"] == 3
    assert "a · 2 of 4" in enough.output


def test_what_is_skipped_says_why(play: Play) -> None:
    outcome = play("scenarios: [{name: a, say: Hi, skip: The model is gone.}]", "--junit", "j.xml")

    assert outcome.status == 0
    assert outcome.report["scenarios"][0]["skip"] == "The model is gone."
    assert ElementTree.parse("j.xml").find(".//skipped") is not None


def test_a_scenario_that_hangs_ends_and_its_run_is_stopped(play: Play) -> None:
    text = """
    scenarios:
      - {name: a, say: Hi, timeout: 0.3, script: [{call: hang}]}
      - {name: b, say: Hi, script: [Hello.]}
    """
    outcome = play(text)

    assert outcome.attempt["error"] == "It took longer than 0.3 s."
    assert outcome.attempt["turns"][0]["say"] == "Hi"
    assert outcome.report["passed"] == 1


def test_the_time_of_all_scenarios_is_an_option(play: Play) -> None:
    outcome = play("scenarios: [{name: a, say: Hi, script: [{call: hang}]}]", "--timeout", "0.2")

    assert outcome.attempt["error"] == "It took longer than 0.2 s."


@in_one_test(
    ("options", "reason"),
    [
        (["--url", "http://x", "--target", "a"], "--url or --target"),
        (["--url", "http://x", "--offline"], "--url or --offline"),
        (["--url", "http://x", "--model", "m"], "--url or --model"),
        (["--url", "http://x", "--path", "/x"], "--url or --path"),
        (["--url", "http://x", "-H", "nonsense"], "'nonsense' is not a header"),
        (["--offline", "--live"], "--offline or --live"),
        (["-H", "a: b"], "A --header is for the server of --url."),
        (["--report", "nowhere/report.json"], "There can be no report 'nowhere/report.json'"),
        (["--target", "nothing:app"], "No module named 'nothing'"),
        (["--config", "nothing.yml"], "nothing.yml"),
    ],
)
def test_options_that_cannot_be_used_end_with_status_2(
    play: Play, options: list[str], reason: str
) -> None:
    outcome = play(THREE, *options, app=None, reports=False)

    assert outcome.status == 2
    assert reason in outcome.output


def test_what_is_tested_is_that_of_the_settings_by_default(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "desk.agent.md").write_text("You are the desk.")
    (tmp_path / "other.yml").write_text("adapter: {name: demo}\nassistants: {folder: .}\n")
    text = "scenarios: [{name: a, agent: desk, say: Hi, script: [Welcome.]}]"
    outcome = play(text, "--offline", "--config", "other.yml", app=None)

    assert outcome.status == 0, outcome.output
    assert "Tested: the model 'demo' with other.yml, and no program" in outcome.output
    assert not (tmp_path / ".copilot").exists()
    assert "COPILOT_CONFIG" not in os.environ


def test_who_names_no_agent_that_is_there_is_told_of_the_plain_chat_too(play: Play) -> None:
    text = "scenarios: [{name: a, agent: nobody, say: Hi, script: [Warm.]}]"
    outcome = play(text)

    assert outcome.status == 1
    assert "Available agents are: default." in outcome.output


def test_nothing_is_reached_offline(play: Play) -> None:
    app = f"""
{APP.replace("hang]", "hang, fetch]").partition("runtime = ")[0]}
import socket
from contextlib import suppress
import urllib.request

@action
def fetch(how: str) -> str:
    "Fetch a page."
    if how == "udp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(b"x", ("127.0.0.1", 9))
    with socket.socket(socket.AF_UNIX) as one, suppress(FileNotFoundError):
        one.connect("nowhere.sock")
    return urllib.request.urlopen(how).read()

runtime = CopilotRuntime(DemoAdapter(), actions=[fetch])
"""
    text = """
    scenarios:
      - name: a
        say: Fetch
        script:
          - {call: fetch, arguments: {how: "http://127.0.0.1:9/"}}
          - {call: fetch, arguments: {how: "http://[::1]:9/"}}
          - {call: fetch, arguments: {how: udp}}
          - Done.
        expect: {calls: [{name: fetch, result: --offline allows none, count: 3}]}
      - {name: b, say: Without a script}
    """
    outcome = play(text, "--offline", app=app)

    assert outcome.attempt["outcome"] == "passed", outcome.output
    assert outcome.report["scenarios"][1]["attempts"][0]["error"] == (
        "The scenario has no script, and --offline allows no other model."
    )


def test_reports_are_the_same_each_time(play: Play, tmp_path: Path) -> None:
    text = """
    scenarios:
      - name: a
        say: How cold is it?
        repeat: 3
        script: [{call: get_weather, arguments: {city: Oslo}}, "Cold | <b>\\u0001"]
        expect: {text: warm, calls: [get_weather]}
      - {name: b, say: Hi, repeat: 2, pass_rate: 0, script: [{error: broken}]}
      - {name: c, say: Hi, models: [m], script: [{text: Hi., usage: {input: 1000, output: 2}}]}
    """
    files = [tmp_path / name for name in ("r.json", "r.xml", "r.md")]
    options = [
        word
        for option, file in zip(("--report", "--junit", "--markdown"), files, strict=True)
        for word in (option, str(file))
    ]
    written: list[list[str]] = []
    for _ in range(2):
        play(text, *options, "--parallel", "8", reports=False)
        written.append([file.read_text() for file in files])
    first, xml, markdown = written[0]

    assert written[0] == written[1]
    assert [it["outcome"] for it in json.loads(first)["scenarios"]] == [
        "failed",
        "passed",
        "passed",
    ]
    suite = ElementTree.fromstring(xml)[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    assert "| c | m | passed | 1/1 | 1 | 1002 |  |" in markdown
    assert "## a · 3 of 3" in markdown


MOUNTED = """
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from copilot_runtime import CopilotRuntime, DemoAdapter

inner = CopilotRuntime(DemoAdapter(pace=0))
if FAST:
    runtime = FastAPI()
    inner.mount(runtime, "/api/copilotkit")
else:
    runtime = Starlette(routes=[Mount("/api", inner.app("/copilotkit"))])
"""


def test_a_report_for_ci_says_first_what_was_not_as_expected(play: Play, tmp_path: Path) -> None:
    text = """
    scenarios:
      - name: a
        turns:
          - {say: Hi, script: [Well.]}
          - say: How cold is it?
            script: [It is cold.]
            expect: {calls: [get_weather], text: warm}
      - {name: b, say: Hi, repeat: 3, script: [{error: The model is closed.}]}
      - {name: c, say: Hi}
    """
    file = tmp_path / "r.xml"
    play(text, "--junit", str(file), reports=False)
    cases = {case.get("name"): case for case in ElementTree.fromstring(file.read_text())[0]}
    failure, error = cases["a"].find("failure"), cases["b"].find("error")

    assert failure is not None
    assert error is not None
    assert failure.get("message") == (
        "calls (turn 2): expected at least 1 call of get_weather, got no calls"
    )
    assert "The model is closed." in error.get("message", "")
    assert error.get("message", "").endswith(" (0 of 3 passed)")
    assert float(cases["c"].get("time", "")) > 0


def test_a_runtime_within_an_application_is_found(play: Play) -> None:
    text = "scenarios: [{name: a, say: Hi, script: [Hello.], expect: {text: Hello.}}]"
    outcome = play(text, app=MOUNTED.replace("FAST", "True"))

    assert outcome.status == 0, outcome.output


def test_a_path_that_is_not_found_names_its_option(play: Play) -> None:
    outcome = play("scenarios: [{name: a, say: Hi}]", app=MOUNTED.replace("FAST", "False"))

    assert "no answer of a runtime" in outcome.attempt["error"]
    assert "--path" in outcome.attempt["error"]


def test_an_application_whose_runtime_is_unknown_takes_no_script(play: Play) -> None:
    text = """
    scenarios:
      - {name: a, say: Hi, script: [Hello.]}
      - {name: b, say: Hi}
      - {name: c, say: Hi, expect: {trace: "[0]"}}
      - {name: d, say: Hi, expect: {recalls: {resources: [x], at_least: 0}}}
    """
    app = MOUNTED.replace("FAST", "False")
    outcome = play(text, "--path", "/api/copilotkit", app=app)
    scripted, own, trace, recalls = (it["attempts"][0] for it in outcome.report["scenarios"])

    assert scripted["error"].startswith("The application's runtime is unknown")
    assert own["outcome"] == recalls["outcome"] == "passed"
    assert trace["error"].startswith("The application stores no traces")


LIVES = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
from copilot_runtime import CopilotRuntime, DemoAdapter

@asynccontextmanager
async def live(app):
    STEPS

runtime = FastAPI(lifespan=live)
CopilotRuntime(DemoAdapter(pace=0)).mount(runtime, "/graphql")
"""


def test_an_application_that_does_not_start_ends_with_status_2(play: Play) -> None:
    outcome = play(THREE, app=LIVES.replace("STEPS", "raise KeyError('no database'); yield"))

    assert outcome.status == 2
    assert "no database" in outcome.output


def test_an_application_that_does_not_end_well_changes_no_report(play: Play) -> None:
    outcome = play(THREE, app=LIVES.replace("STEPS", "yield; raise KeyError('no database')"))

    assert outcome.status == 0
    assert "The application failed to shut down:" in outcome.output
    assert outcome.report["passed"] == 4


@in_one_test(("rate", "count", "outcome"), [(0.07, 7, "passed"), (0.07, 6, "failed")])
def test_a_pass_rate_is_not_missed_by_rounding(rate: float, count: int, outcome: str) -> None:
    scenario = Scenario(name="a", say="Hi", repeat=100, pass_rate=rate)
    attempts = [Attempt(number=number) for number in range(100)]
    for attempt in attempts[count:]:
        attempt.outcome = "failed"

    assert Result(place=Place("a", 1, scenario), attempts=attempts).outcome == outcome


def test_what_an_interruption_left_undecided_is_no_failure() -> None:
    place = Place("a", 1, Scenario(name="a", say="Hi", repeat=4, pass_rate=0.5))
    failed = [Attempt(number=it, outcome="failed") for it in range(3)]

    assert Result(place=place, attempts=failed[:2]).outcome == "skipped"
    assert Result(place=place, attempts=failed).outcome == "failed"


def test_a_report_that_cannot_be_written_is_named(play: Play, tmp_path: Path) -> None:
    (tmp_path / "r.json").symlink_to(tmp_path / "nowhere" / "r.json")
    outcome = play(THREE, "--report", "r.json", reports=False)

    assert outcome.status == 2
    assert "The report 'r.json' cannot be written" in outcome.output


@pytest.mark.anyio
async def test_a_server_that_runs_is_tested_by_its_url(play: Play, tmp_path: Path) -> None:
    namespace: dict[str, object] = {}
    exec(APP, namespace)
    text = """
    scenarios:
      - name: a
        say: Hello
        script: [This is not said.]
        expect:
          text: {not_contains: This is not said}
          trace: "[?name == 'invoke_agent default']"
          recalls: {resources: [nothing], at_least: 0}
          judge: {criteria: polite, model: "demo:x"}
      - {name: signs in, user: ann, say: Hello}
      - {name: other models, models: [m], say: Hello}
      - {name: limits, say: Hello, expect: {limits: {requests: 0}}}
    """
    async with serving(namespace["runtime"].app()) as port:  # pyright: ignore[reportAttributeAccessIssue]  # made by exec
        url = f"http://127.0.0.1:{port}/graphql"
        outcome = await asyncio.to_thread(play, text, "--url", url, "-H", "x-shop: a", app=None)

    assert outcome.attempt["turns"][0]["text"], outcome.output
    assert outcome.attempt["error"] == "'demo' has no choice of models."
    assert "A running server authenticates its own users" in outcome.output
    assert "A running server chooses its own models" in outcome.output
    limits = outcome.report["scenarios"][3]["attempts"][0]
    assert [(it["name"], it["actual"]) for it in limits["failures"]] == [("limits.requests", "1")]


@pytest.mark.anyio
async def test_a_server_whose_traces_are_secret_is_tested_without_them(play: Play) -> None:
    runtime = CopilotRuntime(
        DemoAdapter(pace=0),
        settings=Settings(threads="memory", console=ConsoleSettings(enabled=False)),
    )
    text = """
    scenarios:
      - {name: text, say: Hello, expect: {text: {matches: .}, limits: null}}
      - {name: trace, say: Hello, expect: {trace: "[0]"}}
      - {name: limits, say: Hello, expect: {limits: {requests: 1}}}
    """
    async with serving(runtime.app()) as port:
        url = f"http://127.0.0.1:{port}/graphql"
        outcome = await asyncio.to_thread(play, text, "--url", url, app=None)

    assert [it["outcome"] for it in outcome.report["scenarios"]] == ["passed", "error", "error"]
    assert "The server refuses to return its traces" in outcome.output


def test_a_server_that_is_not_there_is_an_error(play: Play) -> None:
    outcome = play("scenarios: [{name: a, say: Hi}]", "--url", "http://127.0.0.1:9/", app=None)

    assert outcome.status == 1
    assert outcome.attempt["outcome"] == "error"


@pytest.mark.anyio
async def test_what_was_done_until_an_interruption_is_reported() -> None:
    class Slow(Player):
        def __init__(self) -> None:
            self.started = asyncio.Event()

        async def play(self, scenario: Scenario, model: str | None, number: int) -> Attempt:
            if scenario.name == "slow":
                self.started.set()
                await asyncio.Event().wait()
            return Attempt(number=number)

    player, progress = Slow(), list[Progress]()
    places = [Place("a", 1, Scenario(name=name, say="Hi")) for name in ("quick", "slow", "later")]
    task = asyncio.create_task(run_scenarios(places, player, on_progress=progress.append))
    await player.started.wait()
    await asyncio.sleep(0)
    task.cancel()
    report = await task

    assert report.is_interrupted
    assert [result.outcome for result in report.results] == ["passed", "skipped", "passed"]
    assert progress[-1].total == 3
    assert 'message="not played"' in encode_junit(report)


def test_ctrl_c_writes_the_report_and_ends_with_130(tmp_path: Path) -> None:
    app = f"""{APP}
import os, signal

@action
async def interrupt() -> str:
    "Press Ctrl-C."
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()

runtime = CopilotRuntime(DemoAdapter(), actions=[interrupt])
"""
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "a.test.yml").write_text(
        "scenarios:\n- {name: one, say: Hi, script: [Hello.]}\n"
        "- {name: two, say: Hi, script: [{call: interrupt}]}\n"
    )
    options = "--target app.py:runtime --offline --parallel 1 --report report.json"
    done = subprocess.run(
        [sys.executable, "-m", "copilot_runtime", "test", *options.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    report = json.loads((tmp_path / "report.json").read_text())

    assert done.returncode == 130, done.stdout + done.stderr
    assert "1 passed, 1 skipped (interrupted)" in done.stdout
    assert (report["interrupted"], report["passed"]) == (True, 1)


def test_a_bar_is_drawn_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "a.test.yml").write_text(
        f"{THREE}  - {{name: d, say: Hi, script: [No.], expect: {{text: Yes.}}}}\n"
    )
    command = [sys.executable, "-m", "copilot_runtime", "test", "--target", "app.py:runtime"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with in_terminal(command, cwd=tmp_path, env=env) as (program, _):
        program.until("5/5, 1 failed  ")
        program.until("4 passed, 1 failed")
        assert program.wait() == 1
