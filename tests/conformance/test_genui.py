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
from tests.conformance.v1.node import ROOT, need_node, started
from tests.processes import finished

HERE = Path(__file__).parent / "genui"
CLIENTS = ("1.57", "1.68", "1.74")
TRANSPORTS = ("rest", "single")
WAYS = [(client, transport) for client in CLIENTS for transport in TRANSPORTS]

SCENARIOS = json.loads((HERE / "scenarios.json").read_text())
EXPECTED = json.loads((HERE / "expected.json").read_text())
"""Messages of the page by scenario, recorded with Node 1.75 and the client 1.74."""

OURS = json.loads((HERE / "divergences.json").read_text())
"""Those of them that differ with us."""

_RANDOM = re.compile(r"(ck-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Messages = list[dict[str, Any]]
Pages = Mapping[str, Mapping[str, Any]]
"""What the page of each scenario ended up with."""


@contextmanager
def serve(agent: str, threads: str) -> Generator[str, None, None]:
    """Run a server with all mounts, whose threads are in one file for each."""
    module = "tests.conformance.genui.server"
    options = ["--port", "0", "--agent", f"{agent}/", "--mcp", "http://127.0.0.1:9/mcp"]
    command = [sys.executable, "-m", module, *options, "--threads", threads]
    with started(*command, cwd=ROOT) as address:
        # under load Node gives up on the second address of localhost too early
        yield address.replace("localhost", "127.0.0.1")


def drive(base: str, client: str, transport: str, *files: Path) -> Pages:
    """Ask everything, or with the file of an earlier drive only open its threads again."""
    done = finished(["node", "drive.mjs", base, client, transport, *files], cwd=HERE)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(files[0].read_text())


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Pages]:
    """Drive a server with all clients; the key `("1.74", "restart")` is after its restart."""
    need_node()
    npm.install(HERE)
    folder = tmp_path_factory.mktemp("genui")
    threads = f"sqlite:{folder}/{{mount}}.db"
    agent_command = [sys.executable, "-m", "tests.conformance.genui.agent"]
    with started(*agent_command, cwd=ROOT) as agent:
        with serve(agent, threads) as base:
            pages = {
                (client, transport): drive(
                    base, client, transport, folder / f"{client}-{transport}.json"
                )
                for client, transport in WAYS
            }
        with serve(agent, threads) as base:
            files = (folder / "restart.json", folder / "1.74-rest.json")
            pages["1.74", "restart"] = drive(base, "1.74", "rest", *files)
    return pages


def normalize(messages: Messages) -> Messages:
    """Number the ids that are random."""
    numbers: dict[str, str] = {}
    text = _RANDOM.sub(
        lambda match: numbers.setdefault(match[0], f"<id{len(numbers) + 1}>"),
        json.dumps(messages),
    )
    normal: Messages = json.loads(text)
    for message in normal:
        content = message.get("content")
        if isinstance(content, dict) and "html" in content:
            # how a page is cut into pieces is the server's to choose
            message["content"] = {**content, "html": ["".join(content["html"])]}
    return normal


def list_stored(name: str, messages: Messages) -> Messages:
    """Return what every page has sent: later ones send an answer of theirs with the next run."""
    if not SCENARIOS[name].get("isLast"):
        return messages
    return [message for message in messages if message["role"] != "tool"]


def sort(messages: Messages) -> list[str]:
    """Return messages in any order, without the ids that depend on it."""
    texts = (json.dumps(one, sort_keys=True) for one in messages)
    return sorted(re.sub(r"<id\d+>", "<id>", text) for text in texts)


@pytest.mark.parametrize(("client", "transport"), WAYS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_page_ends_up_with_the_messages_of_node_or_better_ones(
    driven: Mapping[tuple[str, str], Pages], name: str, client: str, transport: str
) -> None:
    live = normalize(driven[client, transport][name]["live"])
    expected = normalize(OURS.get(name, EXPECTED[name]))

    if client == "1.57":  # it puts results of tools last
        assert sort(live) == sort(expected)
    else:
        assert live == expected


@pytest.mark.parametrize(("client", "transport"), WAYS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_page_that_opens_the_thread_again_has_the_same_messages(
    driven: Mapping[tuple[str, str], Pages], name: str, client: str, transport: str
) -> None:
    page = driven[client, transport][name]
    live, reload = (list_stored(name, page[moment]) for moment in ("live", "reload"))

    # a page puts its own answers right behind their call, as with Node
    if client == "1.57" or SCENARIOS[name].get("hasSandbox"):
        assert sort(normalize(reload)) == sort(normalize(live))
    else:
        assert reload == live


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_messages_are_the_same_after_a_restart_of_the_server(
    driven: Mapping[tuple[str, str], Pages], name: str
) -> None:
    assert driven["1.74", "restart"][name]["reload"] == driven["1.74", "rest"][name]["reload"]


def test_every_divergence_has_a_reason_and_really_differs() -> None:
    assert set(OURS) == set(reasons(GENERATIVE_UI))
    assert [name for name, messages in OURS.items() if messages == EXPECTED[name]] == []
