"""What a server asks of its store and of others, with a carrier that the test holds."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import Batch, RunInput
from copilot_runtime.api.bus import Carrier, Lose, PeerLost, Receive
from copilot_runtime.api.events import Event, RunFinished, RunStarted
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.cluster import peers
from copilot_runtime.extensions.cluster.message import decode_message, encode_message
from copilot_runtime.extensions.cluster.peers import Peers
from copilot_runtime.threads.codec import encode_parts
from copilot_runtime.threads.compact import INTERRUPTED
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import RunningRun, Segment, StoredRun, ThreadKey

pytestmark = pytest.mark.anyio

KEY = ThreadKey("", "t")
BEGINNING = encode_parts([(0, [RunStarted(run_id="r", thread_id="t")])])


class Store(MemoryThreads):
    """A store of which another process has runs, and which counts how often it is looked for."""

    def __init__(self, *, is_other_alive: bool = True) -> None:
        super().__init__()
        self.is_other_alive = is_other_alive
        self.looks = 0
        self.looked = asyncio.Event()
        """Set when the runs of a thread are read: so ends what a look at a dead server leads to."""

    async def server(self) -> str:
        return "me"

    async def is_alive(self, server: str) -> bool:
        assert server == "other"
        self.looks += 1
        await asyncio.sleep(0)
        return self.is_other_alive

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        self.looked.set()
        return await super().runs(key)


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


async def test_a_log_continues_for_a_reader_that_has_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "_LOOK", 0)
    monkeypatch.setattr(peers, "_LINGER", 0)
    other = OtherServer()
    found = await open_peers(Store(), other)
    log = await follow(found, 0)
    async with asyncio.timeout(10):
        for _ in range(3):
            await other.checks.get()
        payload = encode_parts([(0, [RunFinished()])])
        other.receive("other", encode_message("events", [("log-0", 1, 2)], payload=payload))
        events = [event async for batch in log for event in batch.events]
    await found.aclose()

    assert events == [RunStarted(run_id="r", thread_id="t"), RunFinished()]


class UnreachableServer(OtherServer):
    """Another process to which no message comes."""

    async def send(self, to: str, message: bytes) -> None:
        raise PeerLost(f"{to} cannot be reached.")


class SilentServer(OtherServer):
    """Another process that says nothing."""

    async def send(self, to: str, message: bytes) -> None:
        pass


async def begin_elsewhere(store: Store) -> Sequence[Event]:
    """Begin a run of another process, and return its log."""
    run = RunInput(thread_id="t", run_id="r", log_id="log-0", messages=[], persist=True)
    await store.begin(run)
    log = [RunStarted(run_id="r", thread_id="t"), *say("Hello", id="m"), RunFinished()]
    await store.write([Segment(log_id="log-0", events=log[1:3])])
    return log


async def test_a_log_is_followed_in_the_store_while_its_server_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "_LOOK", 0)
    store = Store()
    whole = await begin_elsewhere(store)
    found = await open_peers(store, UnreachableServer())
    log = await follow(found, 0)
    beginning = (await anext(log)).events
    await store.write([Segment(log_id="log-0", events=whole[3:], whole=whole)])
    rest = [event async for batch in log for event in batch.events]
    await found.aclose()

    assert [*beginning, *rest] == whole


async def test_a_log_is_followed_in_the_store_while_its_server_says_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "_LOOK", 0)
    monkeypatch.setattr(peers, "_PATIENCE", 0)
    store = Store()
    whole = await begin_elsewhere(store)
    found = await open_peers(store, OtherServer())
    log = await follow(found, 0)
    beginning = (await anext(log)).events
    await store.write([Segment(log_id="log-0", events=whole[3:], whole=whole)])
    async with asyncio.timeout(10):
        rest = [event async for batch in log for event in batch.events]
    await found.aclose()

    assert [*beginning, *rest] == whole


async def test_a_server_confirms_a_check_for_missing_events() -> None:
    other = AskingServer()
    found = await open_peers(Store(), other)
    other.receive("other", encode_message("check", []))
    told = decode_message(await other.sent.get())
    await found.aclose()

    assert (told.kind, told.fields[0]) == ("tell", "checked")


class AskingServer(OtherServer):
    """Another process, and what is sent to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, to: str, message: bytes) -> None:
        self.sent.put_nowait(message)


async def test_a_log_begins_as_it_is_stored_while_its_server_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "_PATIENCE", 0)
    store = Store()
    whole = await begin_elsewhere(store)
    found = await open_peers(store, SilentServer())
    beginning = (await anext(await follow(found, 0))).events
    await found.aclose()

    assert beginning == whole[:3]


async def test_a_log_goes_on_whose_server_seemed_dead_for_a_moment() -> None:
    store, other = Store(is_other_alive=False), OtherServer()
    await begin_elsewhere(store)  # and as it has come back, nobody ends that
    found = await open_peers(store, other)
    log = await follow(found, 0)
    await anext(log)
    other.lose("other")
    await store.looked.wait()
    payload = encode_parts([(0, [RunFinished()])])
    other.receive("other", encode_message("events", [("log-0", 1, 2)], payload=payload))
    rest = [event async for batch in log for event in batch.events]
    await found.aclose()

    assert rest == [RunFinished()]


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_a_request_to_a_server_that_died_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, is_noticed: bool
) -> None:
    monkeypatch.setattr(peers, "_LOOK", 100 if is_noticed else 0)
    store, other = Store(is_other_alive=False), SilentServer()
    found = await open_peers(store, other)
    question = asyncio.create_task(found.ask("other", "stop", timeout=1000))
    await asyncio.sleep(0)
    if is_noticed:
        other.lose("other")

    with pytest.raises(PeerLost, match="ended before it had answered") as lost:
        await question
    assert "Send the request again" in lost.value.public
    await found.aclose()


async def test_a_server_is_reached_as_soon_as_what_carries_messages_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "_LOOK", 0)
    opened = asyncio.Event()
    attempts = iter((ConfigurationFailed("no Redis"), OSError("no network"), None))

    class LateCarrier(OtherServer):
        async def open(self, address: str, receive: Receive, lose: Lose) -> None:
            if (error := next(attempts)) is not None:
                raise error
            opened.set()

    found = await open_peers(Store(), LateCarrier())
    await opened.wait()
    await found.aclose()


class DeafServer(OtherServer):
    """Another process that does not hear the first question, because it does not listen yet."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[bytes] = []

    async def send(self, to: str, message: bytes) -> None:
        self.heard.append(message)
        if len(self.heard) > 1:
            _, [number, *_], _ = decode_message(message)
            self.receive(to, encode_message("answer", number, "here"))


async def test_a_request_is_repeated_to_a_server_that_did_not_listen_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "_LOOK", 0)
    other = DeafServer()
    found = await open_peers(Store(), other)
    answer = await found.ask("other", "find", log_id="log")
    await found.aclose()

    assert answer == "here"
    assert other.heard == [other.heard[0]] * 2


@pytest.mark.parametrize("reply", [True, None], ids=["now", "earlier version"])
async def test_a_question_that_comes_again_is_worked_on_once_and_has_the_same_answer(
    reply: bool | None,
) -> None:
    worked_on: list[object] = []
    given: asyncio.Queue[bytes] = asyncio.Queue()

    async def stop(values: object) -> int:
        worked_on.append(values)
        return len(worked_on)

    class Asker(OtherServer):
        async def send(self, to: str, message: bytes) -> None:
            match decode_message(message):
                case "ask", [number, "waits", {"number": 7}], _:
                    self.receive(to, encode_message("answer", number, reply))
                case _:
                    given.put_nowait(message)

    other = Asker()
    found = await open_peers(Store(), other)
    found.add_answer("stop", stop)
    for _ in range(2):  # before the answer, and after it
        for _ in range(2):
            other.receive("other", encode_message("ask", 7, "stop", {"log_id": "log"}))
        answer = await given.get()
        assert decode_message(answer) == ("answer", [7, 1], b"")
    await found.aclose()

    assert worked_on == [{"log_id": "log"}]


async def test_a_request_without_a_waiting_sender_has_no_effect() -> None:
    worked_on: list[object] = []
    is_wanted = False

    async def stop(values: object) -> bool:
        worked_on.append(values)
        return True

    class Asker(AskingServer):
        async def send(self, to: str, message: bytes) -> None:
            match decode_message(message):
                case "ask", [number, "waits", {"number": 7}], _:
                    self.receive(to, encode_message("answer", number, is_wanted))
                    asked_back.set()
                case _:
                    await super().send(to, message)

    other, asked_back = Asker(), asyncio.Event()
    found = await open_peers(Store(), other)
    found.add_answer("stop", stop)
    question = encode_message("ask", 7, "stop", {"log_id": "log"})
    other.receive("other", question)
    await asked_back.wait()
    before = [*worked_on]
    is_wanted = True
    while other.sent.empty():
        other.receive("other", question)
        await asyncio.sleep(0)
    answer = decode_message(await other.sent.get())
    await found.aclose()

    assert (before, answer.fields, worked_on) == ([], [7, True], [{"log_id": "log"}])


async def test_an_answer_that_was_lost_is_not_missed_when_the_run_has_ended() -> None:
    store = Store()
    whole = await begin_elsewhere(store)

    class LosingServer(OtherServer):
        async def send(self, to: str, message: bytes) -> None:
            await store.write([Segment(log_id="log-0", events=whole[3:], whole=whole)])
            raise PeerLost(f"{to} cannot be reached.")

    found = await open_peers(store, LosingServer())
    assert await found.ask_owner(KEY, "end") is None
    await found.aclose()
