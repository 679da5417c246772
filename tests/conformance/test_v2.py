"""Clients of 1.50 to 1.74 end up with the same as on the Node runtime, or with something better."""

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.divergences import AGUI_ANSWERS, OLD_AGUI_ANSWERS, reasons
from tests.conformance.v1 import node as v1
from tests.conformance.v1.node import need_node, started
from tests.conformance.v2.node import HERE, OLD, install, served
from tests.processes import Program, finished, running
from tests.referee import find_faults

EXPECTED, OURS = HERE / "expected", HERE / "divergences"
SCENARIOS = json.loads((HERE / "scenarios.json").read_text())
"""The names of all scenarios."""

OLD_SCENARIOS = json.loads((OLD / "scenarios.json").read_text())
"""The scenarios that clients of old are driven through."""

DIVERGENT = reasons(AGUI_ANSWERS)
DIVERGENT_OLD = reasons(OLD_AGUI_ANSWERS)

TRANSPORTS = ("rest", "single", "auto")
OLD_CLIENTS = ("1.50", "1.57")
V1_SCENARIOS = json.loads((v1.HERE / "scenarios.json").read_text())


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
def driven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drive the same server with all clients; return the folder with a folder of each."""
    need_node()
    install()
    install(OLD)
    v1.install()
    out = tmp_path_factory.mktemp("driven-v2")
    names = {("1.74", transport): SCENARIOS for transport in TRANSPORTS}
    for client in OLD_CLIENTS:
        names |= {(client, transport): OLD_SCENARIOS for transport in ("rest", "single")}
    drive(out, names, [name for name, path in V1_SCENARIOS.items() if path == "/copilotkit"])
    # on a busy machine a client may be too slow for what a scenario wants to see
    for _ in range(3):
        again = {who: late for who in names if (late := others(out, *who, names[who]))}
        v1_again = [path.stem for path in (out / "v1").glob("*.json") if not as_wanted_v1(path)]
        if again or v1_again:
            drive(out, again, v1_again)
    return out


def drive(out: Path, names: Mapping[tuple[str, str], list[str]], v1_names: list[str]) -> None:
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
    expected, ours = folders(client)
    return [
        name
        for name in names
        if load(out / client / f"{name}.{transport}.json")
        != wanted(name, transport, expected, ours)
    ]


def folders(client: str) -> tuple[Path, Path]:
    """Return where it is written down what a client is to end up with."""
    if client == "1.74":
        return EXPECTED, OURS
    return OLD / "expected" / client, OLD / "divergences" / client


def as_wanted_v1(got: Path) -> bool:
    ours = v1.HERE / "divergences" / got.name
    return load(got) == load(ours if ours.exists() else v1.HERE / "expected" / got.name)


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def wanted(name: str, transport: str, expected: Path, ours: Path) -> Any:
    """Return what a client should end up with. Auto is REST, once it has found out."""
    for folder in (ours, expected):
        if (exact := folder / f"{name}.{transport}.json").exists():
            return load(exact)
        if transport == "auto" and (rest := folder / f"{name}.rest.json").exists():
            as_auto = rest.read_text().replace('"transport": "rest"', '"transport": "auto"', 1)
            return json.loads(as_auto.replace(f"{name}/rest", f"{name}/auto"))
    raise FileNotFoundError(f"nobody wrote down what {name} by {transport} ends up with")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_client_ends_up_with_what_is_expected(driven: Path, name: str, transport: str) -> None:
    got = load(driven / "1.74" / f"{name}.{transport}.json")

    assert got == wanted(name, transport, EXPECTED, OURS)


@pytest.mark.parametrize("transport", ["rest", "single"])
@pytest.mark.parametrize("client", OLD_CLIENTS)
@pytest.mark.parametrize("name", OLD_SCENARIOS)
def test_an_old_client_ends_up_with_what_is_expected(
    driven: Path, name: str, client: str, transport: str
) -> None:
    got = load(driven / client / f"{name}.{transport}.json")

    assert got == wanted(name, transport, *folders(client))


@pytest.mark.parametrize("transport", ["rest", "single"])
@pytest.mark.parametrize("client", OLD_CLIENTS)
def test_an_old_client_opens_a_thread_with_a_failed_run_again(
    driven: Path, client: str, transport: str
) -> None:
    result = load(driven / client / f"connect-after-error.{transport}.json")["result"]

    assert result["reload"]["messages"] == result["live"]


@pytest.mark.parametrize(
    "name", sorted(name for name, path in V1_SCENARIOS.items() if path == "/copilotkit")
)
def test_the_same_url_serves_the_client_of_v1(driven: Path, name: str) -> None:
    got = load(driven / "v1" / f"{name}.json")

    ours = v1.HERE / "divergences" / f"{name}.json"
    assert got == load(ours if ours.exists() else v1.HERE / "expected" / f"{name}.json")


def test_a_referee_from_outside_finds_no_fault_with_any_recorded_stream() -> None:
    streams = {
        f"{name} by {transport}, {where}": events
        for name in SCENARIOS
        for transport in ("rest", "single")
        if (EXPECTED / f"{name}.{transport}.json").exists()
        for where, events in find_streams(wanted(name, transport, EXPECTED, OURS))
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
    [
        (DIVERGENT, EXPECTED, OURS),
        (DIVERGENT_OLD, OLD / "expected", OLD / "divergences"),
    ],
    ids=["1.74", "old"],
)
def test_every_divergence_has_a_reason_and_really_differs(
    reasoned: dict[str, str], expected: Path, ours: Path
) -> None:
    files = [path.relative_to(ours) for path in ours.rglob("*.json")]

    assert {path.name.split(".")[0] for path in files} == set(reasoned)
    for path in files:
        assert load(ours / path) != load(expected / path), path
