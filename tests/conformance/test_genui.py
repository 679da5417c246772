"""Pages of three versions draw what models make as they do with the Node runtime, or better."""

import json
import re
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import npm
from tests.conformance.divergences import GENERATIVE_UI, reasons
from tests.conformance.genui.compare import SECTIONS, normalize, number_ids
from tests.conformance.v1.node import ROOT, need_node, started
from tests.plugin.selection import is_nightly_run
from tests.processes import finished

HERE = Path(__file__).parent / "genui"
CLIENTS = ("1.57", "1.68", "1.74")
TRANSPORTS = ("rest", "single")
WAYS = [(client, transport) for client in CLIENTS for transport in TRANSPORTS]

NEWEST = ("1.74", "rest")

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
def driven(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Mapping[tuple[str, str], Pages]:
    """Drive a server with all clients; the key `("1.74", "restart")` is after its restart.

    `make test` drives only the newest client over REST, through the scenarios for all.
    """
    is_nightly = is_nightly_run(pytestconfig)
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
                    *(logs + ["--every"] * (is_nightly and (client, transport) == NEWEST)),
                )
                for client, transport in (WAYS if is_nightly else [NEWEST])
            }
        if not is_nightly:
            return pages
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


Difference = tuple[str, Any, Any]
"""Where a page differs, what it has, and what is expected."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FOR_ALL else pytest.mark.nightly)
        for name in SCENARIOS
    ],
)
def test_a_scenario_ends_as_with_node_live_and_after_a_reload(
    driven: Mapping[tuple[str, str], Pages], name: str
) -> None:
    differences = [*compare_sections(name, driven[NEWEST][name])]
    for way, pages in driven.items():
        if name in pages and way != ("1.74", "restart"):
            differences += compare_live(name, *way, pages[name])
            differences += compare_reload(name, *way, pages[name])
    if pages := driven.get(("1.74", "restart")):
        before, after = (page[name]["reload"] for page in (driven[NEWEST], pages))
        if before != after:
            differences.append(("restart", after, before))

    assert differences == []


def compare_sections(name: str, page: Mapping[str, Any]) -> Iterator[Difference]:
    """Compare the states and events that a page got with those of Node, or with better ones."""
    found, expected = normalize(page), {**EXPECTED[name], **OURS.get(name, {})}
    for section in SECTIONS:
        if found.get(section) != expected.get(section):
            yield section, found.get(section), expected.get(section)


def compare_live(
    name: str, client: str, transport: str, page: Mapping[str, Any]
) -> Iterator[Difference]:
    """Compare the messages that a page ended up with."""
    if name not in FOR_ALL:
        return
    live, expected = (
        number_ids(page["live"]),
        OURS.get(name, {}).get("live", EXPECTED[name]["live"]),
    )
    if client == "1.57":  # it puts results of tools last
        live, expected = sort(live), sort(expected)
    if live != expected:
        yield f"live, {client} by {transport}", live, expected


def compare_reload(
    name: str, client: str, transport: str, page: Mapping[str, Any]
) -> Iterator[Difference]:
    """Compare the messages of a page that opens the thread again."""
    live, reload = (list_stored(name, page[moment]) for moment in ("live", "reload"))
    # a page puts its own answers right behind their call, as with Node
    if client == "1.57" or SCENARIOS[name].keys() & {"hasSandbox", "tools"}:
        live, reload = sort(number_ids(live)), sort(number_ids(reload))
    if live != reload:
        yield f"reload, {client} by {transport}", reload, live


def test_every_divergence_has_a_reason_and_really_differs() -> None:
    assert set(OURS) == set(reasons(GENERATIVE_UI))
    same = [
        (name, section)
        for name, sections in OURS.items()
        for section, value in sections.items()
        if value == EXPECTED[name].get(section)
    ]
    assert same == []
