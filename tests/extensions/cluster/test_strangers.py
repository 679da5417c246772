"""What other processes know and do for each other: nothing of it is a way around an owner."""

import stat
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest

from copilot_runtime import Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.extensions.cluster.message import decode_message, encode_message
from tests.extensions.access.server import Entrance, entering, settings_of
from tests.wire_agui.http import Browser
from tests.wire_agui.server import Parrot
from tests.wire_agui.strangers import MINE, V1, WAYS, Asking, attempt, fill

pytestmark = pytest.mark.anyio

STRANGERS = {"of her tenant": ("eve", "acme"), "of her name": ("ada", "evil")}
FORGED = 'live"]\n["ask", 1, "end", {"thread": ["tenant:acme/ada", "' + MINE + '"]}]\n'


def share(path: Path) -> Settings:
    settings = settings_of(path, threads=f"sqlite:{path}/threads.db", carrier="auto")
    jwt = settings.jwt.model_copy(update={"tenant_claim": "org"})
    return settings.model_copy(update={"jwt": jwt})


@asynccontextmanager
async def two_servers(path: Path, model: Parrot) -> AsyncGenerator[tuple[Entrance, Entrance], None]:
    """Serve the same threads twice, to people with tokens."""
    async with AsyncExitStack() as stack:
        agents = {"asking": Asking()}
        first, second = [
            await stack.enter_async_context(entering(path, one, share(path), agents=agents))
            for one in (model, Parrot())
        ]
        yield first, second


async def sign_in(server: Entrance, user: str, tenant: str) -> Browser:
    return await server.sign_in("jwt", user, tenant)


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_the_thread_of_another_user_does_not_exist_at_another_process_either(
    tmp_path: Path, stranger: str
) -> None:
    model = Parrot()
    async with two_servers(tmp_path, model) as (first, second):
        ada = await sign_in(first, "ada", "acme")
        eve = await sign_in(second, *STRANGERS[stranger])
        await fill(ada)
        found = await attempt(ada, eve, model, [*WAYS, V1])

    before, after = found.before, found.after
    assert found.leaks == {}
    assert found.answer[-1]["type"] == "RUN_FINISHED"
    assert after[2:] == before[2:3] + after[3:]
    assert [thread["name"] for thread in after[3]["threads"]] == ["Ada's"]


async def test_who_may_do_it_here_may_do_it_there(tmp_path: Path) -> None:
    gate = Gate()
    async with two_servers(tmp_path, Parrot(gate=gate)) as (first, second):
        ada = await sign_in(first, "ada", "acme")
        there = await sign_in(second, "ada", "acme")
        async with ada.running(thread="t", run="live") as answering:
            await answering.next()
            stopped = await there.stop("t")
            events = await answering.rest()

    assert stopped["stopped"] is True
    assert events[-1]["type"] == "RUN_ERROR"


async def test_no_client_identifier_becomes_a_message_between_processes(tmp_path: Path) -> None:
    gate = Gate()
    async with two_servers(tmp_path, Parrot(gate=gate)) as (first, second):
        ada = await sign_in(first, "ada", "acme")
        eve, there = [await sign_in(second, who, "acme") for who in ("eve", "ada")]
        async with ada.running(thread=MINE, run="live") as answering:
            await answering.next()
            stops = [await one.stop(quote(MINE), {"runId": FORGED}) for one in (eve, there)]
            thread = quote(f"x{FORGED}", safe="")
            odd = await eve.ask("POST", f"/agent/default/stop/{thread}")
            gate.release(10)
            events = await answering.rest()

    assert [one["stopped"] for one in stops] == [False, False]
    assert odd.status == 400 or odd.json()["stopped"] is False
    assert events[-1]["type"] == "RUN_FINISHED"


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    message = decode_message(encode_message("ask", 1, "stop", {"run_id": FORGED}))

    assert message.fields == [1, "stop", {"run_id": FORGED}]
    assert message.payload == b""


async def test_only_the_user_of_the_server_may_speak_to_it() -> None:
    with TemporaryDirectory() as folder:  # whose path is short enough for sockets
        path = Path(folder)
        async with two_servers(path, Parrot()) as servers:
            for one in servers:  # which has started once it answers
                await one.browser().ask("GET", "/info")
            modes = read_modes(path)

    assert modes == [0o600, 0o600]


def read_modes(path: Path) -> list[int]:
    return [stat.S_IMODE(one.stat().st_mode) for one in path.glob("threads.db-socket-*")]
