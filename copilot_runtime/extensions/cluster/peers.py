"""This server process among those that share its store of threads."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from itertools import count
from time import monotonic
from typing import Any

from copilot_runtime.api.bus import START, Batch, Cursor
from copilot_runtime.api.carrier import Carrier, PeerLost
from copilot_runtime.base.concurrency import capture, contain, retrieve_exception
from copilot_runtime.base.errors import CopilotError, MissingPackage, NotFound
from copilot_runtime.extensions.cluster.message import PeerMessage, decode_message, encode_message
from copilot_runtime.extensions.cluster.mirror import Mirror
from copilot_runtime.extensions.cluster.sender import LogSender, OpenLog
from copilot_runtime.threads.codec import decode_parts
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import RunningRun, StoredRun, ThreadKey, ThreadStore

Answer = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Answers a question of another process, with a value that JSON has."""

TakeNotice = Callable[[str, Mapping[str, Any]], None]
"""Gets the address of another process, and what it tells. It neither waits nor raises."""

_MOST_ANSWERS = 1000
"""Answers that are remembered: the question may come again."""

_PATIENCE = 5.0
"""Seconds to wait for an answer, and for the beginning of a log."""

_WAITS = "waits"
"""What whoever is asked asks back, before it does anything: whether its answer is waited for. A
question may have been under way for long, and who gave it up was told that nothing is known."""

_FRESH = 2.0
"""Seconds to wait for the answer to that."""

_CHECKED = "checked"
"""What a process tells another one that has asked whether anything is missing."""

_LOOK = 1.0
"""Seconds between two looks at the processes whose runs are followed here."""

_LONGEST_PAUSE = 30.0
"""Seconds between two attempts to reach what carries messages."""

_LINGER = 10.0
"""Seconds for which a log is followed that nobody reads here."""

_STALE = 1.0
"""Seconds for which the number of other processes is taken for known."""

logger = logging.getLogger(__name__)


class Peers:
    """Asks other processes for what only they know: their runs, as long as these go on.

    `open_log` returns the logs of this process. What others ask of it is answered by `answers`,
    by name, and what they tell it is taken by `notices`.
    """

    def __init__(
        self,
        carrier: Carrier,
        store: ThreadStore,
        open_log: OpenLog,
        answers: Mapping[str, Answer],
        notices: Mapping[str, TakeNotice] | None = None,
    ) -> None:
        self._carrier = carrier
        self._store = store
        self._answers = {**answers, _WAITS: self._answer_waits}
        self._notices = notices or {}
        self._copies = MemoryBus(max_events=2**31, max_bytes=256 * 1024 * 1024, ttl=_LINGER)
        self._mirrors: dict[tuple[str, str], Mirror] = {}
        """Logs of other processes, by their address and the id of the log."""
        self._sender = LogSender(open_log, self._send)
        self._questions: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        """Questions that wait for their answers, by number: to whom, and what will be done."""
        self._numbers = count(1)
        self._last_answers: dict[tuple[str, int], asyncio.Task[Any]] = {}
        """The answers to the last questions of other processes, by their address and number."""
        self._silent_since: dict[str, float] = {}
        """When a process was asked whether anything is missing, of which nothing came since."""
        self._looks: dict[str, asyncio.Future[bool]] = {}
        """Looks under way whether a process lives, by its address."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_listening = True
        """Whether others reach this process, as far as that was tried."""
        self._others = 0
        self._counted_at = -_STALE
        self._address = ""

    @property
    def address(self) -> str:
        """Where others reach this process; empty while they cannot."""
        return self._address

    async def open(self) -> None:
        """Take messages; as long as that cannot be, others cannot follow what this process does.

        Raises `StoreFailed`.
        """
        if not await self._store.server():
            return
        self._store.on_renewal = self._renew
        if not await self._try_to_open():
            self._renew()

    @property
    def is_reachable(self) -> bool:
        """Whether the other processes can be reached, as far as is known."""
        return self._is_listening and self._carrier.is_reachable

    def _renew(self) -> None:
        """Listen at the new address of this process; nobody asks at the old one."""
        self._opening = asyncio.create_task(
            self._open_again(self._opening), name="meet peers", context=Context()
        )

    async def _open_again(self, before: asyncio.Task[None] | None) -> None:
        """Listen as soon as that can be. Until then, others are followed in the store."""
        if before is not None:
            await before
        pause = _LOOK
        await self._carrier.aclose()
        while not await self._try_to_open():
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _try_to_open(self) -> bool:
        """Listen at the address of this process; return whether that can be."""
        self._is_listening = False
        try:
            self._address = await self._store.server()
            await self._carrier.open(self._address, self._receive, self._lose)
        except MissingPackage:
            raise
        except Exception as error:  # of the store, the carrier or the network
            logger.warning("Other server processes cannot be reached: %s", error)
            return False
        self._is_listening = True
        return True

    async def aclose(self) -> None:
        """Let the others read the ends of the runs of this process, and leave."""
        if self._opening is not None:
            self._opening.cancel()
        if not self._address:
            return
        await self._sender.aclose()
        if self._watching is not None:
            self._watching.cancel()
        for task in (*self._tasks, *self._last_answers.values()):
            task.cancel()
        await self._carrier.aclose()
        self._address = ""

    async def has_others(self) -> bool:
        """Return whether other processes use the store, as it was a second ago at most."""
        if not self._address:
            return False
        if monotonic() - self._counted_at > _STALE:
            self._others = len(await self._store.list_other_servers())
            self._counted_at = monotonic()
        return self._others > 0

    async def find_run(self, thread: ThreadKey) -> RunningRun | None:
        """Return the run with which another process answers in a thread, or None."""
        if not self._address:
            return None
        found = await self._store.find_running(thread)
        return None if found is None or found.server == self._address else found

    async def ask(
        self, server: str, question: str, *, timeout: float = _PATIENCE, **values: Any
    ) -> Any:
        """Ask another process. Raises `PeerLost` if it does not answer in time, or dies."""
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._questions[number] = server, answer
        try:
            async with asyncio.timeout(timeout):
                message = encode_message("ask", number, question, values)
                await self._send(server, message)
                return await self._wait_for_answer(server, answer, message)
        except TimeoutError:
            raise PeerLost(f"The server process {server} does not answer.") from None
        finally:
            del self._questions[number]

    async def _wait_for_answer(
        self, server: str, answer: asyncio.Future[Any], message: bytes
    ) -> Any:
        """Wait for an answer as long as the process lives that is to give it.

        What was asked is sent again and again: a process that has just begun does not listen yet.
        """
        while not (await asyncio.wait((answer,), timeout=_LOOK))[0]:
            if (await capture(self._is_alive(server))).value is False:
                raise _build_loss(server)
            with suppress(PeerLost):
                await self._send(server, message)
        return answer.result()

    def add_answer(self, question: str, answer: Answer) -> None:
        """Answer another question of other processes."""
        self._answers[question] = answer

    async def ask_all(
        self, question: str, *, timeout: float = _PATIENCE, **values: Any
    ) -> tuple[str, Any] | None:
        """Ask all other processes. Returns the first answer that is not null, and its address.

        None if nobody has one. Raises `PeerLost` if none of those that answer has one, and another
        one lives and does not answer.
        """
        if not self._address:
            return None
        tasks = [
            asyncio.create_task(self._try_to_ask(server, question, timeout, values))
            for server in await self._store.list_other_servers()
        ]
        for task in tasks:
            task.add_done_callback(retrieve_exception)
        lost: PeerLost | None = None
        try:
            for answer in asyncio.as_completed(tasks):
                try:
                    if (found := await answer) is not None:
                        return found
                except PeerLost as error:
                    lost = error
        finally:
            for task in tasks:
                task.cancel()
        if lost is not None:
            raise lost
        return None

    async def _try_to_ask(
        self, server: str, question: str, timeout: float, values: Mapping[str, Any]
    ) -> tuple[str, Any] | None:
        try:
            answer = await self.ask(server, question, timeout=timeout, **values)
        except PeerLost:
            if await contain(self._store.is_alive(server)):
                raise
            return None
        return None if answer is None else (server, answer)

    async def ask_owner(
        self, thread: ThreadKey, question: str, *, timeout: float = _PATIENCE, **values: Any
    ) -> Any:
        """Ask the process that answers in a thread. Returns None if there is none, or none lives.

        Raises `PeerLost` if it lives and does not answer, and its run goes on: where that has ended
        meanwhile, only the answer was lost.
        """
        run = await self.find_run(thread)
        if run is None:
            return None
        try:
            return await self.ask(run.server, question, timeout=timeout, thread=[*thread], **values)
        except PeerLost:
            if not await contain(self._store.is_alive(run.server)):
                await contain(self._store.end_dead_run(thread, run.log_id))
            elif await self.find_run(thread) == run:
                raise
            return None

    def tell(self, server: str, name: str, **values: Any) -> None:
        """Tell another process something. Nobody learns here whether it arrives."""
        self._start(capture(self._send(server, encode_message("tell", name, values))))

    async def follow(
        self, thread: ThreadKey, run: RunningRun, after: Cursor = START
    ) -> AsyncGenerator[Batch, None] | None:
        """Return the log of a run of another process, from a cursor on.

        None if that process has no such log, or cannot be reached. If it dies, the log ends as the
        store has it.
        """
        key = (run.server, run.log_id)
        mirror = self._mirrors.get(key)
        if mirror is None or mirror.is_missing:
            mirror = Mirror(self._copies, thread, *key)
            self._mirrors[key] = mirror
            self._watch()
            await self._follow(mirror)
        await asyncio.wait((mirror.found,), timeout=_PATIENCE)
        if not mirror.found.done():
            await self._catch_up(mirror)
        if mirror.found.done() and mirror.found.result():
            with suppress(NotFound):  # it has ended, and the store has it
                return mirror.read(after)
        if self._mirrors.get(key) is mirror:
            del self._mirrors[key]
        return None

    async def _follow(self, mirror: Mirror) -> None:
        """Ask for a log from where it ends here; a process that died is noticed."""
        message = encode_message("follow", mirror.log_id, mirror.position)
        try:
            await self._send(mirror.server, message)
        except PeerLost:
            await self._recover(mirror)
            await self._catch_up(mirror)

    async def _send(self, to: str, message: bytes) -> None:
        await self._carrier.send(to, message)

    def _receive(self, sender: str, data: bytes) -> None:
        self._silent_since.pop(sender, None)
        try:
            self._take(sender, decode_message(data))
        except Exception:  # of a process of another version, perhaps: this one goes on
            logger.exception("A message of the server process %s cannot be read", sender)

    def _take(self, sender: str, message: PeerMessage) -> None:
        match message.kind, message.fields:
            case "events", [list(heads)]:
                self._add_events(sender, heads, message.payload)
            case "end", [str(log_id), int(position)]:
                mirror = self._mirrors.get((sender, log_id))
                if mirror is not None and position > mirror.position:
                    self._start(self._follow(mirror))
            case "missing", [str(log_id)]:
                if (mirror := self._mirrors.get((sender, log_id))) is not None:
                    mirror.refuse()
                    self._start(self._recover(mirror))
            case "follow", [str(log_id), int(position)]:
                self._sender.start(sender, log_id, position)
            case "check", [list(positions)]:
                for log_id, position in positions:
                    self._sender.check(sender, log_id, position)
                self.tell(sender, _CHECKED)
            case "leave", [str(log_id)]:
                self._sender.stop(sender, log_id)
            case "ask", [int(number), str(question), dict(values)]:
                self._take_question(sender, number, question, values)
            case "answer", [int(number), value]:
                _, waiting = self._questions.get(number, ("", None))
                if waiting is not None and not waiting.done():
                    waiting.set_result(value)
            case "tell", [str(name), dict(values)]:
                if (notice := self._notices.get(name)) is not None:
                    notice(sender, values)
            case _:
                logger.warning("The server process %s says what is not known here", sender)

    def _add_events(self, sender: str, heads: Sequence[Any], payload: bytes) -> None:
        """Add the events of a message to the logs they are of, as far as these are followed."""
        for at, events in decode_parts(payload, f"logs of {sender}", range(len(heads))):
            log_id, position, after = heads[at]
            mirror = self._mirrors.get((sender, log_id))
            if mirror is not None and not mirror.add(position, after, events):
                self._start(self._follow(mirror))

    def _take_question(
        self, sender: str, number: int, question: str, values: Mapping[str, Any]
    ) -> None:
        """Answer a question; one that came before gets the same answer, and nothing is done."""
        answer = self._last_answers.get((sender, number))
        if answer is None:
            answer = asyncio.create_task(
                self._find_answer(sender, number, question, values), context=Context()
            )
            self._last_answers[sender, number] = answer
            if len(self._last_answers) > _MOST_ANSWERS:
                del self._last_answers[next(iter(self._last_answers))]
        elif not answer.done():
            return
        self._start(self._give_answer(sender, number, answer))

    async def _find_answer(
        self, sender: str, number: int, question: str, values: Mapping[str, Any]
    ) -> Any:
        """Return an answer. Raises `PeerLost`, and does nothing, if nobody is known to wait for it.

        Where somebody does, the question comes again.
        """
        if question != _WAITS:
            try:
                await self._confirm(sender, number)
            except BaseException:
                self._last_answers.pop((sender, number), None)
                raise
        answer = self._answers.get(question)
        result = None if answer is None else await capture(_call(answer, values))
        if result is not None and result.error is not None:
            logger.error("%r of %s has no answer", question, sender, exc_info=result.error)
        return None if result is None else result.value

    async def _confirm(self, sender: str, number: int) -> None:
        """Raise `PeerLost` unless a process still waits for the answer to a question."""
        waits = await self.ask(sender, _WAITS, timeout=_FRESH, number=number)
        if waits is False:  # an earlier version does not know
            raise PeerLost(f"The server process {sender} waits for no answer any more.")

    async def _answer_waits(self, values: Mapping[str, Any]) -> bool:
        """Return whether this process waits for the answer to a question, for the one asked."""
        return values["number"] in self._questions

    async def _give_answer(self, sender: str, number: int, answer: asyncio.Task[Any]) -> None:
        try:
            await self._send(sender, encode_message("answer", number, await answer))
        except PeerLost:
            logger.info("The server process %s does not wait for its answer", sender)

    def _lose(self, server: str) -> None:
        """Find out what became of a process to which the connection broke."""
        self._counted_at = -_STALE
        self._sender.leave(server)
        for to, answer in self._questions.values():
            if to == server and not answer.done():
                answer.set_exception(_build_loss(server))
        for mirror in self._list_open(server):
            self._start(self._recover(mirror))

    def _list_open(self, server: str) -> Sequence[Mirror]:
        """Return the logs of another process that have not ended here."""
        return [
            mirror
            for mirror in self._mirrors.values()
            if mirror.server == server and not mirror.is_complete
        ]

    async def _recover(self, mirror: Mirror) -> None:
        """Go on with a log if its process lives, else end it with what is stored."""
        if mirror.is_complete:
            return
        try:
            is_alive = await self._is_alive(mirror.server)
            if not is_alive:
                await self._store.end_dead_run(mirror.thread, mirror.log_id)
            if not is_alive or (mirror.is_missing and mirror.position):
                run = await self._load_run(mirror)
                if is_alive or run is None or run.ended:  # else its process has come back
                    mirror.end(() if run is None else run.events)
        except CopilotError as error:
            logger.warning("The run %s cannot be looked up: %s", mirror.log_id, error.message)

    async def _is_alive(self, server: str) -> bool:
        """Return whether a process lives; who asks at the same time shares one look."""
        look = self._looks.get(server)
        if look is None:
            look = asyncio.ensure_future(self._store.is_alive(server))
            self._looks[server] = look
            look.add_done_callback(lambda look: self._forget_look(server, look))
        return await asyncio.shield(look)

    def _forget_look(self, server: str, look: "asyncio.Future[bool]") -> None:
        del self._looks[server]
        retrieve_exception(look)

    async def _catch_up(self, mirror: Mirror) -> None:
        """Go on with a log as far as it is stored: its process lives, and says nothing."""
        if mirror.is_complete:
            return
        try:
            run = await self._load_run(mirror)
        except CopilotError as error:
            logger.warning("The run %s cannot be looked up: %s", mirror.log_id, error.message)
            return
        if run is None or run.ended:
            mirror.end(() if run is None else run.events)
        else:  # what is stored of it is its log, as far as it has come
            mirror.add(0, len(run.events), run.events)

    async def _load_run(self, mirror: Mirror) -> StoredRun | None:
        """Return a run as it is stored; None if its thread was deleted."""
        runs = await self._store.runs(mirror.thread)
        return next((run for run in runs if run.log_id == mirror.log_id), None)

    def _watch(self) -> None:
        """Look at the followed logs from time to time, as long as there are any."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(
                self._look_at_mirrors(), name="watch peers", context=Context()
            )

    async def _look_at_mirrors(self) -> None:
        unread: dict[tuple[str, str], float] = {}
        while self._mirrors:
            await asyncio.sleep(_LOOK)
            now = monotonic()
            for key, mirror in [*self._mirrors.items()]:
                if mirror.readers:
                    unread.pop(key, None)
                elif now - unread.setdefault(key, now) > _LINGER:
                    del unread[key]
                    await self._drop(key, mirror)
            for server in {mirror.server for mirror in self._mirrors.values()}:
                await self._check(server)

    async def _check(self, server: str) -> None:
        """Ask for what was lost on its way, if a process lives, and else end its logs."""
        mirrors = self._list_open(server)
        result = await capture(self._is_alive(server)) if mirrors else None
        for mirror in mirrors:
            if mirror.is_missing or (result is not None and result.value is False):
                await self._recover(mirror)
        positions = [
            (mirror.log_id, mirror.position)
            for mirror in self._list_open(server)
            if not mirror.is_missing
        ]
        if not positions:
            self._silent_since.pop(server, None)
            return
        since = self._silent_since.setdefault(server, monotonic())
        is_silent = monotonic() - since > _PATIENCE  # what is lost on its way raises nothing
        try:
            await self._send(server, encode_message("check", positions))
        except PeerLost:
            self._lose(server)
            is_silent = True
        if is_silent:
            for mirror in self._list_open(server):
                await self._catch_up(mirror)

    async def _drop(self, key: tuple[str, str], mirror: Mirror) -> None:
        """Follow a log no more."""
        if self._mirrors.get(key) is not mirror:  # somebody was faster
            return
        del self._mirrors[key]
        await mirror.drop()
        if not mirror.is_complete:
            result = await capture(
                self._carrier.send(mirror.server, encode_message("leave", mirror.log_id))
            )
            if result.error is not None:
                logger.debug("%s need not know that nobody reads there", mirror.server)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work, context=Context())  # it belongs to no request
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _build_loss(server: str) -> PeerLost:
    return PeerLost(f"The server process {server} ended before it had answered.")


async def _call(answer: Answer, values: Mapping[str, Any]) -> Any:
    return await answer(values)
