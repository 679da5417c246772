"""The membership of this process in a cluster that shares a thread store."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from itertools import count
from time import monotonic
from typing import Any

from copilot_runtime.api.bus import START, Batch, Carrier, Cursor, PeerLost
from copilot_runtime.base.concurrency import capture_result, convert_exits, retrieve_exception
from copilot_runtime.base.errors import CopilotError, MissingPackage, NotFound
from copilot_runtime.extensions.cluster.message import PeerMessage, decode_message, encode_message
from copilot_runtime.extensions.cluster.mirror import Mirror
from copilot_runtime.extensions.cluster.sender import LogSender, OpenLog
from copilot_runtime.runtime.peers import Answer, TakeNotice
from copilot_runtime.threads.codec import decode_parts
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import RunningRun, StoredRun, ThreadKey, ThreadStore

_MOST_ANSWERS = 1000
"""Maximum number of answers kept for retried requests."""

_PATIENCE = 5.0
"""Timeout for an answer and for the start of a log, in seconds."""

_WAITS = "waits"
"""The request by which a process asks back, before it acts, whether the sender still waits. A
request may have been delayed for long, after its sender had already reported a failure."""

_FRESH = 2.0
"""Timeout for that confirmation, in seconds."""

_CHECKED = "checked"
"""The notice that confirms a check for missing events."""

_LOOK = 1.0
"""Interval between two liveness checks of the processes whose runs are followed, in seconds."""

_LONGEST_PAUSE = 30.0
"""Maximum delay between two attempts to reach the message broker, in seconds."""

_LINGER = 10.0
"""Seconds for which a log without readers is still followed."""

_STALE = 1.0
"""Seconds for which the number of other processes is cached."""

logger = logging.getLogger(__name__)


class Peers:
    """Sends requests to other processes about the runs that they execute, and answers theirs.

    `open_log` opens a log of this process. `answers` handle requests of other processes, by name.
    """

    def __init__(
        self,
        carrier: Carrier,
        store: ThreadStore,
        open_log: OpenLog,
        answers: Mapping[str, Answer],
    ) -> None:
        self._carrier = carrier
        self._store = store
        self._answers = {**answers, _WAITS: self._answer_waits}
        self._notices: dict[str, TakeNotice] = {}
        self._copies = MemoryBus(max_events=2**31, max_bytes=256 * 1024 * 1024, ttl=_LINGER)
        self._mirrors: dict[tuple[str, str], Mirror] = {}
        """Copies of other processes' logs, by address and log identifier."""
        self._sender = LogSender(open_log, self._send)
        self._questions: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        """Pending requests, by number: the recipient's address and the future for the answer."""
        self._numbers = count(1)
        self._last_answers: dict[tuple[str, int], asyncio.Task[Any]] = {}
        """Recent answers, by the sender's address and the request's number."""
        self._silent_since: dict[str, float] = {}
        """Time at which each unresponsive process was first asked for missing events."""
        self._looks: dict[str, asyncio.Future[bool]] = {}
        """Liveness checks in progress, by address."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_listening = True
        """True if this process receives messages, as of the last attempt."""
        self._others = 0
        self._counted_at = -_STALE
        self._address = ""

    @property
    def address(self) -> str:
        """The address at which this process receives messages; empty while it cannot."""
        return self._address

    async def open(self) -> None:
        """Receive messages. Until this succeeds, other processes cannot follow this one's runs.

        Raises `StoreFailed`.
        """
        if not await self._store.server():
            return
        self._store.on_renewal = self._renew
        if not await self._try_to_open():
            self._renew()

    @property
    def is_reachable(self) -> bool:
        """True if the other processes can be reached, as of the last attempt."""
        return self._is_listening and self._carrier.is_reachable

    def _renew(self) -> None:
        """Listen at this process's new address; the old one is no longer used."""
        self._opening = asyncio.create_task(
            self._open_again(self._opening), name="meet peers", context=Context()
        )

    async def _open_again(self, before: asyncio.Task[None] | None) -> None:
        """Retry listening until it succeeds.

        Meanwhile, logs of other processes are read from the store.
        """
        if before is not None:
            await before
        pause = _LOOK
        await self._carrier.aclose()
        while not await self._try_to_open():
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _try_to_open(self) -> bool:
        """Listen at this process's address; return whether that succeeded."""
        self._is_listening = False
        try:
            self._address = await self._store.server()
            await self._carrier.open(self._address, self._receive, self._lose)
        except MissingPackage:
            raise
        except Exception as error:  # any error of the store, the message broker or the network
            logger.warning("Other server processes cannot be reached: %s", error)
            return False
        self._is_listening = True
        return True

    async def aclose(self) -> None:
        """Wait until other processes have read the ends of this process's runs, then leave."""
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
        """Return whether other processes use the store. The result is cached for a second."""
        if not self._address:
            return False
        if monotonic() - self._counted_at > _STALE:
            self._others = len(await self._store.list_other_servers())
            self._counted_at = monotonic()
        return self._others > 0

    async def find_run(self, thread: ThreadKey) -> RunningRun | None:
        """Return the thread's run that another process executes, or None."""
        if not self._address:
            return None
        found = await self._store.find_running(thread)
        return None if found is None or found.server == self._address else found

    async def ask(
        self, server: str, question: str, *, timeout: float = _PATIENCE, **values: Any
    ) -> Any:
        """Send a request to another process.

        Raises `PeerLost` if it dies or does not answer in time.
        """
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
        """Wait for an answer while the recipient is alive.

        The request is repeated, because a process that has just started may not listen yet.
        """
        while not (await asyncio.wait((answer,), timeout=_LOOK))[0]:
            if (await capture_result(self._is_alive(server))).value is False:
                raise _build_loss(server)
            with suppress(PeerLost):
                await self._send(server, message)
        return answer.result()

    def add_answer(self, question: str, answer: Answer) -> None:
        """Register a handler for another kind of request."""
        self._answers[question] = answer

    def add_notice(self, name: str, take: TakeNotice) -> None:
        """Register a handler for one kind of notice from other processes."""
        self._notices[name] = take

    async def ask_all(
        self, question: str, *, timeout: float = _PATIENCE, **values: Any
    ) -> tuple[str, Any] | None:
        """Send a request to all other processes; return the first answer and its sender.

        Returns None if all processes answer null. Raises `PeerLost` if no process has an answer and
        one that is alive did not respond.
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
            if await convert_exits(self._store.is_alive(server)):
                raise
            return None
        return None if answer is None else (server, answer)

    async def ask_owner(
        self, thread: ThreadKey, question: str, *, timeout: float = _PATIENCE, **values: Any
    ) -> Any:
        """Send a request to the process that executes a thread's run, and return its answer.

        Returns None if no such process is alive. Raises `PeerLost` if that process is alive but
        does not answer and its run is still active. If the run has ended meanwhile, only the answer
        was lost.
        """
        run = await self.find_run(thread)
        if run is None:
            return None
        try:
            return await self.ask(run.server, question, timeout=timeout, thread=[*thread], **values)
        except PeerLost:
            if not await convert_exits(self._store.is_alive(run.server)):
                await convert_exits(self._store.end_dead_run(thread, run.log_id))
            elif await self.find_run(thread) == run:
                raise
            return None

    def tell(self, server: str, name: str, **values: Any) -> None:
        """Send a notice to another process, without delivery confirmation."""
        self._start(capture_result(self._send(server, encode_message("tell", name, values))))

    async def follow(
        self, thread: ThreadKey, run: RunningRun, after: Cursor = START
    ) -> AsyncGenerator[Batch, None] | None:
        """Return the log of a run of another process, from a cursor.

        Returns None if that process has no such log or cannot be reached. If it dies, the log ends
        with the stored events.
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
            with suppress(NotFound):  # the run has ended, and the store has its events
                return mirror.read(after)
        if self._mirrors.get(key) is mirror:
            del self._mirrors[key]
        return None

    async def _follow(self, mirror: Mirror) -> None:
        """Request a log from the end of its local copy, and check whether its process is alive."""
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
            self._handle_message(sender, decode_message(data))
        except Exception:  # perhaps from a process of another version: ignore it
            logger.exception("A message of the server process %s cannot be read", sender)

    def _handle_message(self, sender: str, message: PeerMessage) -> None:
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
                logger.warning("The server process %s sent an unknown message", sender)

    def _add_events(self, sender: str, heads: Sequence[Any], payload: bytes) -> None:
        """Add the events of a message to the mirrors of their logs, if these are still followed."""
        for at, events in decode_parts(payload, f"logs of {sender}", range(len(heads))):
            log_id, position, after = heads[at]
            mirror = self._mirrors.get((sender, log_id))
            if mirror is not None and not mirror.add(position, after, events):
                self._start(self._follow(mirror))

    def _take_question(
        self, sender: str, number: int, question: str, values: Mapping[str, Any]
    ) -> None:
        """Answer a request. A repeated request gets the first answer, without side effects."""
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
        """Return an answer. Raises `PeerLost`, without side effects, if the sender no longer waits.

        A sender that still waits repeats its request.
        """
        if question != _WAITS:
            try:
                await self._confirm(sender, number)
            except BaseException:
                self._last_answers.pop((sender, number), None)
                raise
        answer = self._answers.get(question)
        result = None if answer is None else await capture_result(_call(answer, values))
        if result is not None and result.error is not None:
            logger.error("%r of %s has no answer", question, sender, exc_info=result.error)
        return None if result is None else result.value

    async def _confirm(self, sender: str, number: int) -> None:
        """Raise `PeerLost` unless a process still waits for the answer to a request."""
        waits = await self.ask(sender, _WAITS, timeout=_FRESH, number=number)
        if waits is False:  # earlier versions lack this message
            raise PeerLost(f"The server process {sender} waits for no answer any more.")

    async def _answer_waits(self, values: Mapping[str, Any]) -> bool:
        """Return whether this process still waits for the recipient's answer to a request."""
        return values["number"] in self._questions

    async def _give_answer(self, sender: str, number: int, answer: asyncio.Task[Any]) -> None:
        try:
            await self._send(sender, encode_message("answer", number, await answer))
        except PeerLost:
            logger.info("The server process %s does not wait for its answer", sender)

    def _lose(self, server: str) -> None:
        """Handle a broken connection: check whether the process is alive, and recover its logs."""
        self._counted_at = -_STALE
        self._sender.leave(server)
        for to, answer in self._questions.values():
            if to == server and not answer.done():
                answer.set_exception(_build_loss(server))
        for mirror in self._list_open(server):
            self._start(self._recover(mirror))

    def _list_open(self, server: str) -> Sequence[Mirror]:
        """Return the incomplete mirrors of a process's logs."""
        return [
            mirror
            for mirror in self._mirrors.values()
            if mirror.server == server and not mirror.is_complete
        ]

    async def _recover(self, mirror: Mirror) -> None:
        """Request a log again if its process is alive, otherwise end it with the stored events."""
        if mirror.is_complete:
            return
        try:
            is_alive = await self._is_alive(mirror.server)
            if not is_alive:
                await self._store.end_dead_run(mirror.thread, mirror.log_id)
            if not is_alive or (mirror.is_missing and mirror.position):
                run = await self._load_run(mirror)
                if is_alive or run is None or run.ended:  # otherwise its process has recovered
                    mirror.end(() if run is None else run.events)
        except CopilotError as error:
            logger.warning("The run %s cannot be looked up: %s", mirror.log_id, error.message)

    async def _is_alive(self, server: str) -> bool:
        """Return whether a process is alive; concurrent callers share one check."""
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
        """Add the stored events to a mirror: its process is alive but does not respond."""
        if mirror.is_complete:
            return
        try:
            run = await self._load_run(mirror)
        except CopilotError as error:
            logger.warning("The run %s cannot be looked up: %s", mirror.log_id, error.message)
            return
        if run is None or run.ended:
            mirror.end(() if run is None else run.events)
        else:  # the stored events are a prefix of its log
            mirror.add(0, len(run.events), run.events)

    async def _load_run(self, mirror: Mirror) -> StoredRun | None:
        """Return the stored events of a run, or None if its thread was deleted."""
        runs = await self._store.runs(mirror.thread)
        return next((run for run in runs if run.log_id == mirror.log_id), None)

    def _watch(self) -> None:
        """Check the mirrored logs at an interval, as long as there are any."""
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
        """Request lost events from a process that is alive; otherwise end its logs."""
        mirrors = self._list_open(server)
        result = await capture_result(self._is_alive(server)) if mirrors else None
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
        is_silent = monotonic() - since > _PATIENCE  # a lost message raises no exception
        try:
            await self._send(server, encode_message("check", positions))
        except PeerLost:
            self._lose(server)
            is_silent = True
        if is_silent:
            for mirror in self._list_open(server):
                await self._catch_up(mirror)

    async def _drop(self, key: tuple[str, str], mirror: Mirror) -> None:
        """Stop following a log."""
        if self._mirrors.get(key) is not mirror:  # a concurrent caller was faster
            return
        del self._mirrors[key]
        await mirror.drop()
        if not mirror.is_complete:
            result = await capture_result(
                self._carrier.send(mirror.server, encode_message("leave", mirror.log_id))
            )
            if result.error is not None:
                logger.debug("Could not tell %s that a log is no longer followed", mirror.server)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work, context=Context())  # the task belongs to no request
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _build_loss(server: str) -> PeerLost:
    return PeerLost(f"The server process {server} ended before it had answered.")


async def _call(answer: Answer, values: Mapping[str, Any]) -> Any:
    return await answer(values)
