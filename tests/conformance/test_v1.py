"""The npm client 1.10.6 ends up with the same as on the Node runtime, or with something better."""

import json
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.divergences import ANSWERS, REQUESTS, reasons
from tests.conformance.recordings import read_recordings
from tests.conformance.v1.node import HERE, install, need_node, served, started
from tests.processes import finished

EXPECTED = read_recordings(HERE / "expected.jsonl")
UPSTREAM = read_recordings(HERE / "upstream.jsonl")
OURS = read_recordings(HERE / "divergences.jsonl")
"""What differs with us: answers by the name of the scenario, requests as `upstream/NAME`."""

SCENARIOS: dict[str, str] = json.loads((HERE / "scenarios.json").read_text())
"""Scenario → the path it is run against."""

NAMES = sorted(SCENARIOS)

DIVERGENT = reasons(ANSWERS)
DIVERGENT_UPSTREAM = reasons(REQUESTS)


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the driver over every scenario, some again; return the folder of its results."""
    need_node()
    install()
    out = tmp_path_factory.mktemp("driven")
    with (
        started("node", "mock-llm.mjs") as llm,
        started("node", "fake-remote.mjs") as remote,
        served(llm, remote) as ours,
    ):
        drive(ours, llm, out, NAMES)
        with urllib.request.urlopen(f"{ours}/__log") as log:
            (out / "log.json").write_bytes(log.read())
        # on a busy machine pieces of an answer arrive together, and time limits of the driver pass
        for _ in range(4):
            if again := [name for name in NAMES if not ends_up_as_expected(out, name)]:
                drive(ours, llm, out, again)
    return out


def drive(ours: str, llm: str, out: Path, names: list[str]) -> None:
    options = ["--out", out, "--mock", llm, "--upstream", out / "upstream"]
    command = ["node", "drive.mjs", f"{ours}/copilotkit", ",".join(names), *options]
    done = finished(command, cwd=HERE)
    assert done.returncode == 0, done.stdout + done.stderr


def ends_up_as_expected(out: Path, name: str) -> bool:
    return load(out / f"{name}.json") == OURS.get(name, EXPECTED[name])


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_table_of_scenarios_is_the_one_of_the_driver() -> None:
    need_node()
    script = """
        import("./scenarios.mjs").then(({ scenarios }) => {
          const path = ([name, s]) => [name, "/copilotkit" + (s.endpoint ?? "")];
          console.log(JSON.stringify(Object.fromEntries(Object.entries(scenarios).map(path))));
        });
    """
    done = finished(["node", "-e", script], cwd=HERE)

    assert json.loads(done.stdout) == SCENARIOS


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_ends_as_expected_and_asks_the_model_what_node_asks(
    driven: Path, name: str
) -> None:
    assert load(driven / f"{name}.json") == OURS.get(name, EXPECTED[name])

    if name in UPSTREAM:
        expected = OURS.get(f"upstream/{name}", UPSTREAM[name])
        assert load(driven / "upstream" / f"{name}.json") == expected


def test_stop_in_the_browser_closes_the_call_to_the_model(driven: Path) -> None:
    [request] = load(driven / "upstream" / "abort.json")

    assert request["aborted"] is True


def test_each_turn_is_seen_by_the_hooks_once_before_and_once_at_its_end(driven: Path) -> None:
    seen = Counter(entry["hook"] for entry in load(driven / "log.json"))
    names = [name for name in NAMES if SCENARIOS[name] == "/copilotkit"]
    results = [load(driven / f"{name}.json") for name in names]
    turns = sum(len(result.get("turns", [])) for result in results)

    assert seen["before"] == turns
    assert seen["stop"] == 1
    assert seen["after"] + seen["stop"] + seen["onError"] == turns


def test_every_divergence_has_a_reason_and_really_differs() -> None:
    node = EXPECTED | {f"upstream/{name}": value for name, value in UPSTREAM.items()}
    reasoned = {*DIVERGENT, *(f"upstream/{name}" for name in DIVERGENT_UPSTREAM)}

    assert {*OURS} == reasoned
    assert [name for name, value in OURS.items() if value == node[name]] == []
