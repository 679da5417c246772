"""Two servers behind a real nginx, configured as the page about several machines says."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime.adapters.scripted import Gate
from tests.documents import blocks
from tests.peers.sharing import sharing
from tests.wire import test_nginx as proxy
from tests.wire_agui.http import Browser, text_of
from tests.wire_agui.server import PATH, Parrot

pytestmark = pytest.mark.anyio


def write_configuration(*ports: int) -> str:
    """Return the configuration of the page, with addresses of ours, as a template."""
    [block] = blocks("nginx", "run/several-machines")
    servers = "".join(f"server 127.0.0.1:{port};" for port in ports)
    ours = re.sub(r"(server 10[^;]+;\s*)+", servers, block.code).replace("/graphql", PATH)
    ours = ours.replace("{", "{{").replace("}", "}}")
    ours = ours.replace("listen 80;", "listen unix:{folder}/nginx.sock;")
    start, found, _ = proxy.CONFIGURATION.partition("  server {{")
    assert found
    return f"{start}{ours}}}}}"


@asynccontextmanager
async def behind_nginx(
    monkeypatch: pytest.MonkeyPatch, *ports: int
) -> AsyncGenerator[Browser, None]:
    monkeypatch.setattr(proxy, "CONFIGURATION", write_configuration(*ports))
    async with proxy.nginx(0) as socket:
        yield Browser(socket)


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
