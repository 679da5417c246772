"""Two servers behind a real nginx, configured as the page says, or as the balancer of compose."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import Settings
from copilot_runtime.adapters.scripted import Gate
from tests.documents import ROOT, blocks
from tests.extensions.cluster.machines import Machine, running_machines
from tests.extensions.cluster.sharing import sharing
from tests.wire import test_nginx as proxy
from tests.wire_agui.http import Browser, run_input, text_of
from tests.wire_agui.server import PATH, Parrot

pytestmark = pytest.mark.anyio


def write_configuration(*ports: int) -> str:
    """Return the configuration of the page, with addresses of ours, as a template."""
    [block] = blocks("nginx", "run/several-machines")
    return _fill(f"{block.code}}}", r"10\.[\d.]+:8000", *ports)


def write_balancer(*ports: int) -> str:
    """Return the configuration of the balancer of compose, with addresses of ours."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    # only Docker knows the name; `resolve` came with nginx 1.27
    return _fill(text[text.index("    client_max_body_size") :], "runtime:8000 resolve", *ports)


def _fill(text: str, address: str, *ports: int) -> str:
    """Return a template: each address stands for all ports, with the parameters behind it."""
    servers = {*re.findall(rf"server {address}([^;]*);", text)}
    assert len(servers) == 1, "servers are written alike"
    parameters = servers.pop()
    ours = "".join(f"server 127.0.0.1:{port}{parameters};" for port in ports)
    text = re.sub(rf"(server {address}[^;]*;\s*)+", ours, text)
    text = text.replace("{", "{{").replace("}", "}}")
    text = re.sub(r"listen \d+;", "listen unix:{folder}/nginx.sock;", text)
    start, found, _ = proxy.CONFIGURATION.partition("  server {{")
    assert found
    return start + text


@asynccontextmanager
async def behind_nginx(
    monkeypatch: pytest.MonkeyPatch,
    *ports: int,
    write: Callable[..., str] = write_configuration,
    base: str = PATH,
) -> AsyncGenerator[Browser, None]:
    text = write(*ports).replace("location /graphql", f"location {base}")
    monkeypatch.setattr(proxy, "CONFIGURATION", text)
    async with proxy.nginx(0) as socket:
        yield Browser(socket, base)


@pytest.fixture
def shared(tmp_path: Path) -> Mapping[str, Any]:
    return {"threads": f"sqlite:{tmp_path / 'threads.db'}"}


async def test_a_run_is_followed_piece_by_piece_and_stopped_through_nginx(
    shared: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    models = [Parrot("one ", "two ", "three ", gate=gate) for _ in range(2)]
    async with (
        sharing(shared, *models) as servers,
        behind_nginx(monkeypatch, *(int(str(one.where)) for one in servers)) as browser,
        browser.running(thread="t") as asked,
    ):
        gate.release(2)
        await asked.until("TEXT_MESSAGE_CONTENT")
        async with browser.connecting("t") as reader:
            await reader.until("TEXT_MESSAGE_CONTENT")
            gate.release()
            seen = await reader.until("TEXT_MESSAGE_CONTENT")
            stopped = await browser.stop("t")
            followed = await reader.rest()
        own = await asked.rest()

    assert seen["delta"] == "two "
    assert stopped["stopped"] is True
    assert text_of(followed) == text_of(own) == "one two "
    assert [len(model.requests) for model in models] in ([0, 1], [1, 0])


@pytest.mark.parametrize("url", ["", "wss://chat.example.com/graphql"])
async def test_no_page_is_sent_to_a_socket_that_is_not_there(
    shared: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    async with (
        sharing({**shared, "realtime_url": url}, Parrot()) as servers,
        behind_nginx(monkeypatch, int(str(servers[0].where))) as browser,
    ):
        info = (await browser.ask("GET", "/info")).json()

    assert info.get("intelligence") == ({"wsUrl": f"{url}/realtime"} if url else None)


@pytest.mark.parametrize("write", [write_configuration, write_balancer])
async def test_no_request_fails_while_two_servers_are_replaced_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., str]
) -> None:
    config = f"threads: sqlite:{tmp_path / 'threads.db'}\ndrain_timeout: 0\nstop_timeout: 1\n"
    environ = {"MODEL_URL": "http://127.0.0.1:9"}  # nobody asks a model
    async with running_machines(2, tmp_path, config, **environ) as machines:
        ports = [machine.port for machine in machines]
        async with behind_nginx(monkeypatch, *ports, write=write, base="/graphql") as browser:
            statuses = await ask_until(replace(machines), browser)

    assert {*statuses} == {200}, statuses


@pytest.mark.parametrize("write", [write_configuration, write_balancer])
async def test_a_request_passes_that_is_as_large_as_a_server_takes(
    shared: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, write: Callable[..., str]
) -> None:
    body = json.dumps(run_input()).encode().ljust(Settings().max_body_bytes)
    async with (
        sharing(shared, Parrot()) as servers,
        behind_nginx(monkeypatch, int(str(servers[0].where)), write=write) as browser,
    ):
        answer = await browser.ask("POST", "/agent/default/run", body)

    assert answer.types()[-1] == "RUN_FINISHED"


async def replace(machines: Sequence[Machine]) -> None:
    """Deploy as the page says: the next one follows as soon as the one before is ready."""
    for machine in machines:
        await machine.end()
        machine.start()
        await machine.wait()
        ready = await Browser(machine.port, "").ask("GET", "/health/ready")
        assert ready.status == 200


async def ask_until(end: Coroutine[Any, Any, None], browser: Browser) -> Counter[int]:
    """Ask again and again until something is over; return how often each status came."""
    statuses: Counter[int] = Counter()
    async with asyncio.TaskGroup() as tasks:
        over = tasks.create_task(end)
        while not over.done():
            statuses[(await browser.ask("GET", "/info")).status] += 1
    return statuses
