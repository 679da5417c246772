"""The carriers of messages, while what carries them breaks: sockets, Redis and PostgreSQL."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest
from redis.asyncio import Redis

from copilot_runtime.api.bus import Carrier, PeerLost
from copilot_runtime.extensions.cluster.carriers import postgres, redis, unix
from copilot_runtime.extensions.cluster.carriers.postgres import PostgresCarrier
from copilot_runtime.extensions.cluster.carriers.redis import RedisCarrier
from copilot_runtime.extensions.cluster.carriers.unix import UnixCarrier
from tests.extensions.cluster.kills.proxy import Proxy
from tests.extensions.cluster.redis_server import redis_server
from tests.threads.cluster import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


class Inbox:
    """What has come to one process."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self._grown = asyncio.Event()

    def take(self, sender: str, message: bytes) -> None:
        self.messages.append(message)
        self._grown.set()

    async def wait_for(self, message: bytes) -> None:
        while message not in self.messages:
            self._grown.clear()
            await self._grown.wait()


def ignore(server: str) -> None:
    """Take no notice of a process that cannot be reached."""


async def send_until_it_arrives(carrier: Carrier, to: str, message: bytes, inbox: Inbox) -> None:
    """Send a message again and again, as whoever needs an answer does."""
    while message not in inbox.messages:
        with suppress(PeerLost):
            await carrier.send(to, message)
        await asyncio.sleep(0)


async def wait_until(carrier: Carrier, *, is_reachable: bool) -> None:
    """Look again and again, as those do who look after a server."""
    while carrier.is_reachable != is_reachable:  # noqa: ASYNC110  # it says nothing
        await asyncio.sleep(0)


@asynccontextmanager
async def open_carrier(carrier: Carrier, address: str) -> AsyncGenerator[Inbox, None]:
    inbox = Inbox()
    async with aclosing(carrier):
        await carrier.open(address, inbox.take, ignore)
        yield inbox


@pytest.fixture
def short_path() -> Generator[Path, None, None]:
    """Return a folder whose path is short enough for sockets."""
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("folder", ["short", "long" * 30])
async def test_sockets_of_processes_that_were_killed_are_deleted(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setattr(unix, "gettempdir", lambda: short_path)
    database, an_hour_ago = short_path / folder / "threads.db", time.time() - 3600
    (short_path / folder).mkdir()
    async with open_carrier(UnixCarrier(database), "alive"):
        [alive] = find_sockets(short_path)
        for name in ("dead", "young"):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(alive.replace("alive", name))
        for name in ("dead", "alive"):
            os.utime(alive.replace("alive", name), (an_hour_ago, an_hour_ago))
        async with open_carrier(UnixCarrier(database), "me"):
            left = find_sockets(short_path)

    assert {*left} == {alive.replace("alive", name) for name in ("young", "alive", "me")}


def find_sockets(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_socket()]


async def test_entries_are_not_delivered_twice_after_a_redis_outage(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "_BLOCK", 50)
    monkeypatch.setattr(redis, "_PAUSE", 0)
    with redis_server() as server, server.running():
        way, path = Proxy(Path(server.url.removeprefix("unix://"))), short_path / "redis.sock"
        sender, reader = RedisCarrier(server.url), RedisCarrier(f"unix://{path}")
        async with (
            way.listening(path),
            open_carrier(sender, "sender"),
            open_carrier(reader, "reader") as inbox,
        ):
            await sender.send("reader", b"stop")
            await inbox.wait_for(b"stop")
            way.state = "broken"
            await wait_until(reader, is_reachable=False)
            await sender.send("reader", b"meanwhile")
            way.state = "open"
            await inbox.wait_for(b"meanwhile")
            await sender.send("reader", b"last")
            await inbox.wait_for(b"last")

    assert inbox.messages == [b"stop", b"meanwhile", b"last"]


async def test_the_inbox_of_a_redis_that_lost_everything_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis, "_BLOCK", 50)
    monkeypatch.setattr(redis, "_PAUSE", 0)
    with redis_server() as server, ExitStack() as running:
        running.enter_context(server.running())
        async with open_carrier(carrier := RedisCarrier(server.url), "me") as inbox:
            await carrier.send("me", b"first")
            await inbox.wait_for(b"first")
            running.close()
            await wait_until(carrier, is_reachable=False)
            running.enter_context(server.running())
            await send_until_it_arrives(carrier, "me", b"second", inbox)

    assert (inbox.messages[0], {*inbox.messages[1:]}) == (b"first", {b"second"})


async def test_the_first_message_after_redis_restarted_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis, "_BLOCK", 50)
    monkeypatch.setattr(redis, "_PAUSE", 0)
    with redis_server(over_tcp=True) as server, ExitStack() as running:
        running.enter_context(server.running())
        async with open_carrier(carrier := RedisCarrier(server.url), "me") as inbox:
            await carrier.send("me", b"before")
            await inbox.wait_for(b"before")
            running.close()
            await wait_until(carrier, is_reachable=False)
            running.enter_context(server.running())
            await wait_until(carrier, is_reachable=True)
            await carrier.send("me", b"after")
            await inbox.wait_for(b"after")

    assert inbox.messages == [b"before", b"after"]


async def test_a_redis_that_is_full_cannot_be_reached_until_it_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis, "_BLOCK", 50)
    monkeypatch.setattr(redis, "_PAUSE", 0)
    with redis_server() as server, server.running():
        async with (
            open_carrier(carrier := RedisCarrier(server.url), "me") as inbox,
            Redis.from_url(server.url) as operator,
        ):
            await operator.config_set("maxmemory", "1")
            await carrier.send("me", b"lost")
            await wait_until(carrier, is_reachable=False)
            await operator.config_set("maxmemory", "0")
            await wait_until(carrier, is_reachable=True)
            await carrier.send("me", b"there")
            await inbox.wait_for(b"there")

    assert inbox.messages == [b"there"]


async def test_sending_does_not_block_forever_while_redis_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis, "_MAX_QUEUED", 0)
    with redis_server() as server, server.running() as program:
        async with open_carrier(carrier := RedisCarrier(server.url), "me"):
            program.process.send_signal(signal.SIGSTOP)
            await carrier.send("other", b"first")  # Redis is asked to take it
            second = asyncio.create_task(carrier.send("other", b"second"))
            await asyncio.sleep(0)
            program.process.kill()
            async with asyncio.timeout(30):
                await second


async def test_sending_does_not_block_forever_while_the_database_is_down(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_MAX_QUEUED", 0)
    async with open_carrier(carrier := PostgresCarrier(cluster.url), "me"):
        await carrier.send("x" * 100, b"")  # the names of channels are shorter
        second = asyncio.create_task(carrier.send("other", b"second"))
        async with asyncio.timeout(30):
            await second


async def test_a_database_that_says_nothing_is_connected_to_anew(
    cluster: Cluster, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_PATIENCE", 0.1)
    parts = urlsplit(cluster.url)
    name, query = ".s.PGSQL.5432", dict(parse_qsl(parts.query))
    url = urlunsplit(parts._replace(query=urlencode({**query, "host": str(short_path)})))
    way = Proxy(Path(query["host"]) / name)
    async with (
        way.listening(short_path / name),
        open_carrier(carrier := PostgresCarrier(url), "me") as inbox,
    ):
        way.state = "stalled"
        await carrier.send("me", b"lost")
        await wait_until(carrier, is_reachable=False)
        way.state = "open"
        await send_until_it_arrives(carrier, "me", b"second", inbox)

    assert b"lost" not in inbox.messages
