"""Clients of 1.50 to 1.74 end up with the same as on the Node runtime, or with something better."""

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.divergences import AGUI_ANSWERS, OLD_AGUI_ANSWERS, reasons
from tests.conformance.recordings import Recordings, read_recordings
from tests.conformance.v1 import node as v1
from tests.conformance.v1.node import need_node, started
from tests.conformance.v2.node import HERE, OLD, install, served
from tests.plugin.selection import is_nightly_run
from tests.processes import Program, finished, running
from tests.referee import find_faults

EXPECTED = read_recordings(HERE / "expected.jsonl")
OURS = read_recordings(HERE / "divergences.jsonl")
"""What differs with us, by `SCENARIO.TRANSPORT`."""

OLD_EXPECTED = read_recordings(OLD / "expected.jsonl")
OLD_OURS = read_recordings(OLD / "divergences.jsonl")
"""The same of clients of old, by `CLIENT/SCENARIO.TRANSPORT`."""

SCENARIOS = json.loads((HERE / "scenarios.json").read_text())
"""The names of all scenarios."""

OLD_SCENARIOS = json.loads((OLD / "scenarios.json").read_text())
"""The scenarios that clients of old are driven through."""

DIVERGENT = reasons(AGUI_ANSWERS)
DIVERGENT_OLD = reasons(OLD_AGUI_ANSWERS)

TRANSPORTS = ("rest", "single", "auto")
OLD_CLIENTS = ("1.50", "1.57")
V1_SCENARIOS = json.loads((v1.HERE / "scenarios.json").read_text())
V1_NAMES = sorted(name for name, path in V1_SCENARIOS.items() if path == "/copilotkit")
V1_EXPECTED = {
    **read_recordings(v1.HERE / "expected.jsonl"),
    **read_recordings(v1.HERE / "divergences.jsonl"),
}

Names = Mapping[tuple[str, str], list[str]]
"""Scenarios by client and transport."""


@contextmanager
def everybody() -> Generator[str, None, None]:
    """Run one server process and the mocks behind it; give the URL that is to serve all clients."""
    with (
        started("node", "mock-llm.mjs", cwd=HERE) as llm,
        started("node", "agent.mjs", cwd=HERE) as agent,
        started("node", "mock-llm.mjs") as v1_llm,
        started("node", "fake-remote.mjs") as remote,
        served(f"{agent}/", f"{llm}/v1", v1_llm, remote) as ours,
    ):
        # under load Node gives up on the second address of localhost too early
        yield f"{ours}/copilotkit".replace("localhost", "127.0.0.1")


def driver(
    base: str, names: list[str], out: Path, transport: str, client: str
) -> AbstractContextManager[Program]:
    """Start the driver; it writes its results to `out`."""
    options = ["--transport", transport, "--client", client, "--out", out]
    command = ["node", "drive.mjs", base, ",".join(names), *options]
    return running(command, cwd=HERE)


@pytest.fixture(scope="session")
def names(pytestconfig: pytest.Config) -> Names:
    """Return what is driven: `make test` drives the newest client over one transport alone."""
    if not is_nightly_run(pytestconfig):
        return {("1.74", "rest"): SCENARIOS}
    return {
        **{("1.74", transport): SCENARIOS for transport in TRANSPORTS},
        **{
            (client, transport): OLD_SCENARIOS
            for client in OLD_CLIENTS
            for transport in ("rest", "single")
        },
    }


@pytest.fixture(scope="session")
def driven(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, names: Names
) -> Path:
    """Drive the same server with all clients; return the folder with a folder of each."""
    need_node()
    install()
    if is_nightly_run(pytestconfig):
        install(OLD)
        v1.install()
    v1_names = V1_NAMES if is_nightly_run(pytestconfig) else []
    out = tmp_path_factory.mktemp("driven-v2")
    drive(out, names, v1_names)
    # on a busy machine a client may be too slow for what a scenario wants to see
    for _ in range(3):
        again = {who: late for who in names if (late := others(out, *who, names[who]))}
        v1_again = [name for name in v1_names if not as_expected_v1(out, name)]
        if again or v1_again:
            drive(out, again, v1_again)
    return out


def drive(out: Path, names: Names, v1_names: list[str]) -> None:
    """Drive a new server by (client, transport), and then by the client of v1."""
    with everybody() as base:
        with ExitStack() as stack:
            drivers = [
                stack.enter_context(driver(base, chosen, out / client, transport, client))
                for (client, transport), chosen in names.items()
            ]
            for program in drivers:
                assert program.wait() == 0, program.output.text() + program.errors.text()
        if not v1_names:
            return
        # afterwards, because it looks at how the pieces of an answer arrive one by one
        v1_command = ["node", "drive.mjs", base, ",".join(v1_names), "--out", out / "v1"]
        done = finished(v1_command, cwd=v1.HERE)
        assert done.returncode == 0, done.stdout + done.stderr


def others(out: Path, client: str, transport: str, names: list[str]) -> list[str]:
    """Return the scenarios with which a client ended up otherwise."""
    return [
        name
        for name in names
        if load(out / client / f"{name}.{transport}.json") != expect(client, name, transport)
    ]


def as_expected_v1(out: Path, name: str) -> bool:
    return load(out / "v1" / f"{name}.json") == V1_EXPECTED[name]


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def expect(client: str, name: str, transport: str) -> Any:
    """Return what a client should end up with. Auto is REST, once it has found out."""
    if client == "1.74":
        return _find(f"{name}.{transport}", OURS, EXPECTED)
    return _find(f"{client}/{name}.{transport}", OLD_OURS, OLD_EXPECTED)


def _find(name: str, *all_recordings: Recordings) -> Any:
    scenario, _, transport = name.rpartition(".")
    for recordings in all_recordings:
        if name in recordings:
            return recordings[name]
        if transport == "auto" and f"{scenario}.rest" in recordings:
            rest = json.dumps(recordings[f"{scenario}.rest"])
            as_auto = rest.replace('"transport": "rest"', '"transport": "auto"', 1)
            return json.loads(as_auto.replace(f"{scenario}/rest", f"{scenario}/auto"))
    raise KeyError(name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_as_expected(driven: Path, names: Names, name: str) -> None:
    differences = [
        (client, transport, got, expected)
        for (client, transport), chosen in names.items()
        if name in chosen
        if (got := load(driven / client / f"{name}.{transport}.json"))
        != (expected := expect(client, name, transport))
    ]
    assert differences == []


def test_an_old_client_opens_a_thread_with_a_failed_run_again(driven: Path, names: Names) -> None:
    for client, transport in names:
        if client in OLD_CLIENTS:
            result = load(driven / client / f"connect-after-error.{transport}.json")["result"]
            assert result["reload"]["messages"] == result["live"], (client, transport)


def test_the_same_url_serves_the_client_of_v1(driven: Path) -> None:
    others = {
        path.stem: (got, V1_EXPECTED[path.stem])
        for path in (driven / "v1").glob("*.json")
        if (got := load(path)) != V1_EXPECTED[path.stem]
    }
    assert others == {}


def test_a_referee_from_outside_finds_no_fault_with_any_recorded_stream() -> None:
    streams = {
        f"{name} by {transport}, {where}": events
        for name in SCENARIOS
        for transport in ("rest", "single")
        if f"{name}.{transport}" in EXPECTED
        for where, events in find_streams(expect("1.74", name, transport))
    }

    assert len(streams) > 80
    assert {at: faults for at, events in streams.items() if (faults := find_faults(events))} == {}


def find_streams(value: Any, where: str = "all") -> Iterator[tuple[str, list[Any]]]:
    """Return the lists of events in what was recorded, each with its place."""
    if isinstance(value, list) and value and all(map(is_event, value)):
        yield where, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from find_streams(item, f"{where}.{key}")


def is_event(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("type")).isupper()


def test_the_lists_of_scenarios_are_those_of_the_driver() -> None:
    need_node()
    install()
    command = ["node", "drive.mjs", "-", "list"]
    done = finished(command, cwd=HERE)

    assert done.stdout.split() == SCENARIOS
    assert set(OLD_SCENARIOS) <= set(SCENARIOS)


@pytest.mark.parametrize(
    ("reasoned", "expected", "ours"),
    [(DIVERGENT, EXPECTED, OURS), (DIVERGENT_OLD, OLD_EXPECTED, OLD_OURS)],
    ids=["1.74", "old"],
)
def test_every_divergence_has_a_reason_and_really_differs(
    reasoned: dict[str, str], expected: Recordings, ours: Recordings
) -> None:
    # the client stands before the scenario, the transport behind it
    assert {name.rpartition("/")[2].split(".")[0] for name in ours} == set(reasoned)
    assert [name for name, value in ours.items() if value == expected[name]] == []
