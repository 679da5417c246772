"""What a server asks of its store and of others, with a carrier that the test holds."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from copilot_runtime.bus.carrier import Carrier, Lose, PeerLost, Receive
from copilot_runtime.events import RunStarted
from copilot_runtime.interfaces import Batch
from copilot_runtime.runtime.peers import Peers, peers
from copilot_runtime.runtime.peers.message import decode_message, encode_message
from copilot_runtime.threads.codec import encode_parts
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.recovery import INTERRUPTED
from copilot_runtime.threads.store import RunningRun, ThreadKey

pytestmark = pytest.mark.anyio

KEY = ThreadKey("", "t")
BEGINNING = encode_parts([(0, [RunStarted(run_id="r", thread_id="t")])])


class Store(MemoryThreads):
    """A store of which another process has runs, and which counts how often it is looked for."""

    def __init__(self, *, is_other_alive: bool = True) -> None:
        super().__init__()
        self.is_other_alive = is_other_alive
        self.looks = 0

    async def server(self) -> str:
        return "me"

    async def is_alive(self, server: str) -> bool:
        assert server == "other"
        self.looks += 1
        await asyncio.sleep(0)
        return self.is_other_alive


class OtherServer(Carrier):
    """Another process, whose logs have begun and do not go on."""

    def __init__(self) -> None:
        self.checks: asyncio.Queue[list[tuple[str, int]]] = asyncio.Queue()
        self.receive: Receive = lambda sender, message: None
        self.lose: Lose = lambda server: None

    async def open(self, address: str, receive: Receive, lose: Lose) -> None:
        self.receive, self.lose = receive, lose

    async def send(self, to: str, message: bytes) -> None:
        match decode_message(message):
            case kind, [str(log_id), *_], _ if kind == "follow":
                head = ("events", [(log_id, 0, 1)])
                self.receive(to, encode_message(*head, payload=BEGINNING))
            case kind, [list(positions)], _ if kind == "check":
                self.checks.put_nowait(positions)
            case _:
                raise PeerLost(f"{to} has no answer.")

    async def aclose(self) -> None:
        pass


async def no_log(log_id: str) -> None:
    raise AssertionError(f"nobody follows {log_id} here")


async def open_peers(store: Store, other: OtherServer) -> Peers:
    found = Peers(other, store, no_log, {})  # pyright: ignore[reportArgumentType]  # it raises
    await found.open()
    return found


async def follow(found: Peers, number: int) -> AsyncGenerator[Batch, None]:
    log = await found.follow(KEY, RunningRun(f"log-{number}", "r", "other"))
    assert log is not None
    return log


async def test_however_many_logs_are_followed_a_server_is_looked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "_LOOK", 0)
    store, other = Store(), OtherServer()
    found = await open_peers(store, other)
    logs = [await follow(found, number) for number in range(500)]
    checks = [await other.checks.get()]
    while len(checks[-1]) < len(logs):
        checks.append(await other.checks.get())
    await found.aclose()

    assert checks[-1] == [[f"log-{number}", 1] for number in range(500)]
    assert store.looks in (len(checks), len(checks) + 1)


async def test_all_logs_of_a_server_that_died_end_after_one_look() -> None:
    store, other = Store(is_other_alive=False), OtherServer()
    found = await open_peers(store, other)
    logs = [await follow(found, number) for number in range(500)]
    other.lose("other")
    ends = [[event async for batch in log for event in batch.events][-1] for log in logs]
    await found.aclose()

    assert ends == [INTERRUPTED] * 500
    assert store.looks == 1
