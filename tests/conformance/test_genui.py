"""Pages of three versions draw what models make as they do with the Node runtime, or better."""

import json
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import npm
from tests.conformance.divergences import GENERATIVE_UI, reasons
from tests.conformance.genui.compare import SECTIONS, normalize, number_ids
from tests.conformance.v1.node import ROOT, need_node, started
from tests.processes import finished

HERE = Path(__file__).parent / "genui"
CLIENTS = ("1.57", "1.68", "1.74")
TRANSPORTS = ("rest", "single")
WAYS = [(client, transport) for client in CLIENTS for transport in TRANSPORTS]

SCENARIOS = json.loads((HERE / "scenarios.json").read_text())
FOR_ALL = [name for name, scenario in SCENARIOS.items() if scenario.get("isForAll")]
"""Those that are driven with each client, and over both transports; others only with 1.74."""

EXPECTED = json.loads((HERE / "expected.json").read_text())
"""What `record.py` has written of Node 1.75 and the client 1.74, by scenario and section."""

OURS = json.loads((HERE / "divergences.json").read_text())
"""The sections that differ with us."""

Messages = list[dict[str, Any]]
Pages = Mapping[str, Mapping[str, Any]]
"""What the page of each scenario ended up with."""


@contextmanager
def serve(agent: str, mcp: str, threads: str) -> Generator[str, None, None]:
    """Run a server with all mounts, whose threads are in one file for each."""
    module = "tests.conformance.genui.server"
    options = ["--port", "0", "--agent", f"{agent}/", "--mcp", f"{mcp}/mcp", "--threads", threads]
    with started(sys.executable, "-m", module, *options, cwd=ROOT) as address:
        yield _name_host(address)


def _name_host(address: str) -> str:
    """Return an address by number: under load Node gives up on the second one of localhost."""
    return address.replace("localhost", "127.0.0.1")


def drive(base: str, client: str, transport: str, file: Path, *options: str) -> Pages:
    """Ask everything, or with `--before` and an earlier file only open its threads again."""
    command = ["node", "drive.mjs", base, client, transport, str(file), *options]
    done = finished(command, cwd=HERE)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text())


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Pages]:
    """Drive a server with all clients; the key `("1.74", "restart")` is after its restart."""
    need_node()
    npm.install(HERE)
    folder = tmp_path_factory.mktemp("genui")
    threads = f"sqlite:{folder}/{{mount}}.db"
    module = "tests.conformance.genui"
    with (
        started(sys.executable, "-m", f"{module}.agent", cwd=ROOT) as agent,
        started(sys.executable, "-m", f"{module}.mcp_server", cwd=ROOT) as mcp,
    ):
        logs = ["--agent", _name_host(agent), "--mcp", _name_host(mcp)]
        with serve(agent, mcp, threads) as base:
            pages = {
                (client, transport): drive(
                    *(base, client, transport, folder / f"{client}-{transport}.json"),
                    *(logs + ["--every"] * ((client, transport) == ("1.74", "rest"))),
                )
                for client, transport in WAYS
            }
        with serve(agent, mcp, threads) as base:
            before = ["--every", "--before", str(folder / "1.74-rest.json")]
            file = folder / "restart.json"
            pages["1.74", "restart"] = drive(base, "1.74", "rest", file, *before)
    return pages


def list_stored(name: str, messages: Messages) -> Messages:
    """Return what every page has sent: later ones send an answer of theirs with the next run."""
    if not SCENARIOS[name].get("isLast"):
        return messages
    return [message for message in messages if message["role"] != "tool"]


def sort(messages: Messages) -> list[str]:
    """Return messages in any order, without the ids that depend on it."""
    texts = (json.dumps(one, sort_keys=True) for one in messages)
    return sorted(re.sub(r"<id\d+>", "<id>", text) for text in texts)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_page_gets_the_states_and_events_of_node_in_their_order_or_better_ones(
    driven: Mapping[tuple[str, str], Pages], name: str
) -> None:
    page = normalize(driven["1.74", "rest"][name])
    expected = {**EXPECTED[name], **OURS.get(name, {})}

    for section in SECTIONS:
        assert page.get(section) == expected.get(section), section


@pytest.mark.parametrize(("client", "transport"), WAYS)
@pytest.mark.parametrize("name", FOR_ALL)
def test_the_page_ends_up_with_the_messages_of_node_or_better_ones(
    driven: Mapping[tuple[str, str], Pages], name: str, client: str, transport: str
) -> None:
    live = number_ids(driven[client, transport][name]["live"])
    expected = OURS.get(name, {}).get("live", EXPECTED[name]["live"])

    if client == "1.57":  # it puts results of tools last
        assert sort(live) == sort(expected)
    else:
        assert live == expected


@pytest.mark.parametrize(
    ("name", "client", "transport"),
    [
        *((name, *way) for way in WAYS for name in FOR_ALL),
        *((name, "1.74", "rest") for name in SCENARIOS if name not in FOR_ALL),
    ],
)
def test_a_page_that_opens_the_thread_again_has_the_same_messages(
    driven: Mapping[tuple[str, str], Pages], name: str, client: str, transport: str
) -> None:
    page = driven[client, transport][name]
    live, reload = (list_stored(name, page[moment]) for moment in ("live", "reload"))

    # a page puts its own answers right behind their call, as with Node
    if client == "1.57" or SCENARIOS[name].keys() & {"hasSandbox", "tools"}:
        assert sort(number_ids(reload)) == sort(number_ids(live))
    else:
        assert reload == live


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_messages_are_the_same_after_a_restart_of_the_server(
    driven: Mapping[tuple[str, str], Pages], name: str
) -> None:
    assert driven["1.74", "restart"][name]["reload"] == driven["1.74", "rest"][name]["reload"]


def test_every_divergence_has_a_reason_and_really_differs() -> None:
    assert set(OURS) == set(reasons(GENERATIVE_UI))
    same = [
        (name, section)
        for name, sections in OURS.items()
        for section, value in sections.items()
        if value == EXPECTED[name].get(section)
    ]
    assert same == []
