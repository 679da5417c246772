"""Runs as parts of threads: one at a time, read again later, by their owner only."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, Literal

from copilot_runtime.bus.carrier import PeerLost
from copilot_runtime.concurrency import contain
from copilot_runtime.errors import (
    Cancelled,
    CopilotError,
    Interrupted,
    Misuse,
    NotFound,
    ThreadBusy,
)
from copilot_runtime.events import RunStarted
from copilot_runtime.interfaces import (
    START,
    Action,
    Agent,
    Batch,
    Caller,
    Cursor,
    RunInput,
    SupportsRun,
    ThreadIds,
    copy_with,
)
from copilot_runtime.runtime.interrupts import answers_question, answers_same
from copilot_runtime.runtime.peers import Peers
from copilot_runtime.runtime.reader import ThreadReader
from copilot_runtime.runtime.report import report_error
from copilot_runtime.runtime.run import Run
from copilot_runtime.runtime.runtime import Runtime
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.threads.log_ids import (
    DuplicateRun,
    LogStatus,
    asks_same,
    build_duplicate_error,
)
from copilot_runtime.threads.store import (
    RunningRun,
    StoredRun,
    Thread,
    ThreadKey,
    ThreadPage,
    ThreadQuery,
    ThreadStore,
)

logger = logging.getLogger(__name__)

Log = AsyncGenerator[Batch, None]
"""The events of a run in batches, to its end."""

WhenBusy = Literal["refuse", "supersede", "queue"]
"""What happens to a request in a thread whose run goes on: an error, the end of that run, or a
place in the queue. Requests of CopilotKit v1 always wait in the queue: a client that gives up an
answer may send the next request before the server has noticed that it has left."""

Namer = Callable[[Sequence[StoredRun]], Awaitable[str | None]]
Forget = Callable[[ThreadKey], Awaitable[None]]
"""Returns a name for a thread that has none, from its runs, or None."""


_MAX_QUEUE = 5
"""Questions that wait for their turn in one thread; each holds a whole conversation."""

_MAX_WITHDRAWN = 1_000
"""Runs that were stopped before they began, of which it is known that they may not begin."""

OPENED: "ContextVar[list[Conversations]]" = ContextVar("OPENED")
"""Where a server that stops its runs itself collects those of the application it starts.

Servers end the lifespan of an application only after its connections, which wait for the runs.
"""


class Conversations:
    """The runs of all transports, and the threads that they belong to.

    Every method that takes a `ThreadKey` sees only threads of its owner: another's thread is
    one that does not exist. `patience` is how many seconds `delete` waits for a run to end.

    `has_users` is whether callers may have a user. Agents elsewhere then know a thread by an id
    that is derived with the `secret`, or with that of the store if it is empty. `forget` deletes
    what else belongs to a thread, such as its files. `changes` is told what this class changes.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: ThreadStore,
        *,
        when_busy: WhenBusy = "refuse",
        namer: Namer | None = None,
        patience: float = 10.0,
        has_users: bool = False,
        secret: str = "",
        forget: Forget | None = None,
        changes: ThreadChanges | None = None,
    ) -> None:
        self.runtime = runtime
        self.store = store
        self.when_busy = when_busy
        self.namer = namer
        self.patience = patience
        self.peers: Peers | None = None
        """The other processes that share the store, if they can be reached."""
        self.changes = changes or ThreadChanges(store)
        self._forget = forget
        self._thread_ids = ThreadIds(has_users, secret.encode())
        self._needs_secret = has_users and not secret
        self._current: dict[ThreadKey, Run] = {}
        """The run that each thread is answered with."""
        self._queues: dict[ThreadKey, dict[str, Run]] = {}
        """Runs that wait for their turn, by `log_id`."""
        self._next: dict[ThreadKey, Run] = {}
        """Of the current runs, those that wait for the run of another process."""
        self._withdrawn: dict[tuple[ThreadKey, str], str] = {}
        """The last runs that were stopped before they began, by thread and run: their logs."""
        self._deleting: set[ThreadKey] = set()
        self._reader = ThreadReader(store)
        self._naming: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Take runs again, after `aclose`."""
        self.runtime.open()
        self.changes.open()
        if (opened := OPENED.get(None)) is not None:
            opened.append(self)

    @property
    def chat(self) -> Agent:
        """What answers those who name no agent."""
        return self.runtime.chat

    async def agents_for(self, caller: Caller) -> Mapping[str, Agent]:
        """Return the agents this caller may talk to."""
        return await self.runtime.agents_for(caller)

    async def agent(self, name: str | None, caller: Caller) -> Agent:
        """Return the agent of that name, or the plain chat. Raises `AgentNotFound`."""
        return await self.runtime.agent(name, caller)

    async def authorize(self, run: RunInput) -> RunInput:
        """Return a request that is no run, if its caller might have started one."""
        return await self.runtime.authorize(run)

    async def load_state(
        self, agent: str, thread_id: str, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return what an agent stored for a thread of the caller. Raises `AgentNotFound`."""
        found = await self.agent(agent, caller)
        ids = await self.thread_ids()
        return await contain(found.load_state(ids.derive(caller.user, thread_id), caller))

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the server's actions for this run."""
        return await self.runtime.actions(run)

    async def thread_ids(self) -> ThreadIds:
        """Return how threads are called where users are not known. Raises `StoreFailed`."""
        if self._needs_secret:
            secret = await contain(self.store.secret())
            self._thread_ids = replace(self._thread_ids, secret=secret.encode())
            self._needs_secret = False
        return self._thread_ids

    def create(self, request: RunInput) -> Run:
        """Return a run that is not launched yet. It can be stopped while `launch` is under way."""
        return self.runtime.create(request)

    async def launch(self, run: Run, agent: SupportsRun | None = None) -> None:
        """Begin such a run, as `Runtime.launch` does. Raises `ThreadBusy` as well."""
        await self._prepare_request(run)
        if not run.request.persist:
            await self.runtime.launch(run, agent)
            return
        thread = _thread_key(run.request)
        try:
            await self._admit(thread, run)
        except BaseException:
            self._withdraw(thread, run)
            raise
        # what a name costs belongs to the trace of the run that is named after
        run.ended.add_done_callback(lambda _: self._free(thread, run), context=run.context)
        try:
            await self.runtime.launch(run, agent, partial(self._wait_again, thread, run))
        except BaseException:
            self._note_stop(thread, run)
            raise

    async def start(self, request: RunInput, agent: SupportsRun | None = None) -> Run:
        """Create a run and launch it."""
        run = self.create(request)
        await self.launch(run, agent)
        return run

    async def start_once(self, request: RunInput) -> tuple[Run | None, Log]:
        """Start the run of a request, or find the one that the same request has begun before.

        Returns the run, None for one of before, and its log from the beginning. The key is the
        client's id of the run, within a thread; another question with that id is another run.
        Raises what `start` does.
        """
        while True:
            if request.persist and (log := await self._find_before(request)) is not None:
                return None, log
            try:
                run = await self.start(request)
            except DuplicateRun:  # of before, or begun meanwhile, here or in another process
                if (log := await self._find_answer(request)) is not None:
                    return None, log
            except (ThreadBusy, Misuse):  # of an answer to an interrupt that is given already
                if not request.resume or (log := await self._find_answer(request)) is None:
                    raise
                return None, log
            else:
                return run, run.follow()

    async def _find_before(self, request: RunInput) -> Log | None:
        """Return the log of the run that the same request has begun, if that is known at once.

        Alone, a server lets the store say so when it begins the run: most requests come once. With
        others it looks first, so that a run of another process takes no second place of a limit.
        """
        thread = _thread_key(request)
        for run in self._list_runs(thread):
            if _is_same(run, request):
                request.identity.require("runs:start")
                if (log := await _follow(run)) is not None:
                    return log
        withdrawn = self._withdrawn.get((thread, request.run_id))
        if withdrawn is not None and asks_same(withdrawn, request.log_id):
            raise _build_cancellation()
        if self.peers is not None and await self.peers.has_others():
            return await self._find_answer(request)
        return None

    async def _find_answer(self, request: RunInput) -> Log | None:
        """Return the log of the run that the same request has begun, as the store knows it."""
        logs = await contain(self.store.find_logs(_thread_key(request), request.run_id))
        same = [log for log in logs if asks_same(log.log_id, request.log_id)]
        return await self._read_answer(request, same[-1]) if same else None

    async def _read_answer(self, request: RunInput, found: LogStatus) -> Log | None:
        """Return the log of a run that the same request has begun.

        None if the request has to be answered anew: it answers a question that is open again, or
        the thread was deleted.
        """
        request.identity.require("runs:start")
        thread = _thread_key(request)
        if not found.ended:
            with suppress(NotFound):
                return await self.follow_run(thread, found.log_id)
            await contain(self.store.end_dead_run(thread, found.log_id))
        runs = await self.runs(thread)
        if await answers_question(request.resume, runs):
            return None
        run = next((run for run in runs if run.log_id == found.log_id), None)
        if run is not None and not run.ended:
            raise ThreadBusy(
                "This question is being answered by another server process, which cannot be "
                "reached at the moment. Please try again."
            )
        return None if run is None else _replay(run)

    def stop(self, log_id: str) -> bool:
        """End a run of this process by its log. Returns whether it still went on."""
        return self.runtime.stop(log_id)

    def follow(self, log_id: str, after: Cursor = START) -> Log:
        """Read a log of this process from a cursor on, until its last event."""
        return self.runtime.follow(log_id, after)

    async def find_log(
        self, log_id: str, user: str | None, after: Cursor = START
    ) -> tuple[str, Log]:
        """Return the thread of a run and its log from a cursor on, in whatever process it is.

        For a client that comes back, until the last event. Raises `NotFound`, in the same words
        for the run of another person.
        """
        if (thread_id := await self._find_thread(log_id, user)) is not None:
            return thread_id, self.follow(log_id, after)
        if self.peers is not None:
            found = await self.peers.ask_all("find", log_id=log_id, user=user)
            if found is not None:
                server, thread_id = found
                run = RunningRun(log_id, "", server)
                log = await self.peers.follow(ThreadKey(user or "", thread_id), run, after)
                if log is not None:
                    return thread_id, log
        raise NotFound(f"No run {log_id!r}: it never was, or its log is older than its lifetime.")

    async def stop_log(self, log_id: str, user: str | None) -> bool:
        """End a run of a person by its log, in whatever process it is.

        Returns whether it still went on.
        """
        if await self._find_thread(log_id, user) is not None:
            return self.stop(log_id)
        if self.peers is None:
            return False
        found = await self.peers.ask_all("stop log", log_id=log_id, user=user)
        return found is not None and bool(found[1])

    async def _find_thread(self, log_id: str, user: str | None) -> str | None:
        """Return the thread of a run of a person in this process, or None.

        It is in the first event of the log.
        """
        try:
            log = self.follow(log_id)
        except NotFound:
            return None
        async with aclosing(log) as batches:
            async for _, events in batches:
                first = events[0]
                assert isinstance(first, RunStarted), "the runtime writes the first event"
                return first.thread_id if first.user == user else None
        raise AssertionError("a run that has begun has a first event")

    async def follow_run(self, thread: ThreadKey, log_id: str) -> Log:
        """Return the log of a run of a thread from its beginning, in whatever process it is.

        Once it has ended, that may be what is stored. Raises `NotFound` for a run that is nowhere.
        """
        try:
            return await self.runtime.open_log(log_id)
        except NotFound:
            if self.peers is not None:
                run = await self.peers.find_run(thread)
                if run is not None and run.log_id == log_id:
                    log = await self.peers.follow(thread, run)
                    if log is not None:
                        return log
            stored = await self._find_run(thread, log_id)
            if stored is None or not stored.ended:
                raise
            return _replay(stored)

    async def _find_run(self, thread: ThreadKey, log_id: str) -> StoredRun | None:
        return next((run for run in await self.runs(thread) if run.log_id == log_id), None)

    async def stop_thread(self, thread: ThreadKey, run_id: str | None = None) -> bool:
        """End the run that a thread is answered with, in whatever process it is.

        Those that wait for their turn go on. With a `run_id`, end only that run, also while it
        waits. Returns whether there was one.
        """
        went_on = self._stop_here(thread, run_id)
        if went_on or self.peers is None:
            return went_on
        is_elsewhere = self._find_current(thread) is None
        if is_elsewhere and await self._ask_owner(thread, "stop", run_id=run_id):
            return True
        if not is_elsewhere and run_id is None:
            return False
        return await self._ask_others("stop new", thread, run_id=run_id) is not None

    async def _ask_others(self, question: str, thread: ThreadKey, **values: Any) -> Any:
        """Ask all processes about a thread whose run, if it has one, is not in the store yet."""
        if self.peers is None or not await self.peers.has_others():
            return None
        return await self.peers.ask_all(question, thread=[*thread], **values)

    def _stop_here(self, thread: ThreadKey, run_id: str | None = None) -> bool:
        went_on = run_id is not None and self._stop_waiting(thread, run_id)
        current = self._find_current(thread)
        if current is not None and run_id in (None, current.request.run_id):
            went_on = current.stop() or went_on
        return went_on

    def _stop_waiting(self, thread: ThreadKey, run_id: str | None) -> bool:
        """Stop a run that waits for its turn here, or all. Returns whether there was one."""
        went_on = False
        for run in self._list_waiting(thread):
            if run_id in (None, run.request.run_id):
                went_on |= not run.stop_requested.done()
                run.stop()
        return went_on

    async def history(self, thread: ThreadKey) -> tuple[Sequence[StoredRun], Log | None]:
        """Return the runs of a thread that have ended, and the log of the one that has not.

        Between the two nothing is missing and nothing twice. The log can be read to its end,
        whatever becomes of the run.
        """
        elsewhere = None
        while True:
            current = self._find_current(thread)
            if current is not None:
                log_id, log = current.log_id, await _follow(current)
            else:
                log_id, log = await self._follow_elsewhere(thread, elsewhere)
            runs = await self._reader.read(thread, only_ended=True)
            if log is not None:
                return _runs_before(log_id, runs), log
            # one that began, or even ended, while the store was read
            unfinished = next((run.log_id for run in runs if not run.ended), None)
            if unfinished is None:
                return runs, None
            if unfinished == elsewhere:  # nobody has its log
                return await self.runs(thread), None
            elsewhere = unfinished

    async def _follow_elsewhere(
        self, thread: ThreadKey, unfinished: str | None
    ) -> tuple[str, Log | None]:
        """Return the log of the run that another process has in a thread with an unfinished run."""
        if self.peers is None or unfinished is None:
            return "", None
        run = await self.peers.find_run(thread)
        if run is None:
            return "", None
        return run.log_id, await self.peers.follow(thread, run)

    async def runs(self, thread: ThreadKey) -> Sequence[StoredRun]:
        """Return what is stored of a thread, the oldest run first; it is shared by its readers."""
        return await self._reader.read(thread)

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for a cursor that is none."""
        return await contain(self.store.list(query))

    async def update(
        self, thread: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread:
        """Rename or archive a thread. Raises `NotFound`."""
        changed = await contain(self.store.update(thread, name=name, archived=archived))
        if changed is None:
            raise NotFound("There is no such thread.")
        self.changes.note(thread)
        return changed

    async def delete(self, thread: ThreadKey) -> None:
        """Delete a thread, ending its run. Raises `NotFound`, or `ThreadBusy` if it goes on."""
        if thread in self._deleting:
            raise NotFound("There is no such thread.")
        self._deleting.add(thread)
        try:
            self._stop_waiting(thread, None)
            await self._ask_others("clear", thread)
            has_ended = await self._end_here(thread)
            if has_ended and self._find_current(thread) is None and self.peers is not None:
                timeout = self.patience + 1
                has_ended = await self._ask_owner(thread, "end", timeout=timeout) is not False
            if not has_ended:
                raise ThreadBusy(
                    "This conversation is still being answered, and the answer does not end. "
                    "Please try again in a moment.",
                    hint="An agent has to let asyncio.CancelledError pass.",
                )
            if self._forget is not None:  # first: what fails here can be tried again
                await contain(self._forget(thread))
            if not await contain(self.store.delete(thread)):
                raise NotFound("There is no such thread.")
            self.changes.note(thread)
        finally:
            self._deleting.discard(thread)

    async def _end_here(self, thread: ThreadKey) -> bool:
        """End the run of a thread, and return whether it has ended after a while."""
        self._stop_here(thread)
        if (current := self._find_current(thread)) is None:
            return True
        await asyncio.wait((current.ended,), timeout=self.patience)
        return current.ended.done()

    async def _ask_owner(
        self, thread: ThreadKey, question: str, *, timeout: float = 5.0, **values: Any
    ) -> Any:
        """Ask the process that answers in a thread. Returns None if there is none, or none lives.

        Raises `PeerLost` if it lives and does not answer.
        """
        assert self.peers is not None
        run = await self.peers.find_run(thread)
        if run is None:
            return None
        try:
            return await self.peers.ask(
                run.server, question, timeout=timeout, thread=[*thread], **values
            )
        except PeerLost:
            if await contain(self.store.is_alive(run.server)):
                raise
            await contain(self.store.end_dead_run(thread, run.log_id))
            return None

    async def answer_stop(self, values: Mapping[str, Any]) -> bool:
        """Stop a run of this process, for another one that was asked to."""
        return self._stop_here(ThreadKey(*values["thread"]), values.get("run_id"))

    async def answer_stop_new(self, values: Mapping[str, Any]) -> bool | None:
        """Stop a run of this process that starts, or waits for its turn. None if it is not here."""
        return await self.answer_stop(values) or None

    async def answer_clear(self, values: Mapping[str, Any]) -> None:
        """Stop all that is asked in a thread in this process, and waits for its turn or starts."""
        thread = ThreadKey(*values["thread"])
        self._stop_waiting(thread, None)
        self._stop_here(thread)

    async def answer_end(self, values: Mapping[str, Any]) -> bool:
        """End the run of a thread in this process. Returns whether it has ended."""
        return await self._end_here(ThreadKey(*values["thread"]))

    async def answer_find(self, values: Mapping[str, Any]) -> str | None:
        """Return the thread of a run of this process, for another one."""
        return await self._find_thread(values["log_id"], values["user"])

    async def answer_stop_log(self, values: Mapping[str, Any]) -> bool | None:
        """Stop a run of this process by its log, for another one. None if it is not here."""
        if await self._find_thread(values["log_id"], values["user"]) is None:
            return None
        return self.stop(values["log_id"])

    async def drain(self) -> None:
        """Refuse all further runs, and wait until those under way have ended."""
        self.runtime.close_admission()
        self.changes.close()
        if ends := [run.ended for run in self.runtime.active_runs()]:
            await asyncio.wait(ends)

    async def aclose(self) -> None:
        """Stop all runs and leave no task behind. The store is closed by whoever opened it."""
        self.runtime.close_admission()
        self.changes.close()
        for queue in self._queues.values():
            for run in queue.values():
                run.stop()
        await self.runtime.aclose()
        if self.peers is not None:
            await self.peers.aclose()
        for task in [*self._naming]:
            task.cancel()
        if self._naming:
            await asyncio.wait(self._naming, timeout=self.patience)

    async def _prepare_request(self, run: Run) -> None:
        """Let agents know where they store what they wait with, and how threads are called."""
        try:
            has_users = self._thread_ids.has_users
            ids = await self.thread_ids() if has_users else run.request.thread_ids
            run.request = copy_with(run.request, checkpoints=self.store, thread_ids=ids)
        except Exception as error:  # of the store
            await report_error(self.runtime.hooks, error, run)
            raise

    async def _admit(self, thread: ThreadKey, run: Run) -> None:
        """Make this run the one its thread answers with."""
        if thread in self._current:
            if any(_is_same(other, run.request) for other in self._list_runs(thread)):
                raise build_duplicate_error(run.request.run_id)
            with self._queue(thread, run):
                while (before := self._current.get(thread)) is not None:
                    await self._wait_for_turn(before, run)
        if self.runtime.is_closing:
            raise Interrupted("The server stopped before it could answer.")
        if thread in self._deleting:
            raise ThreadBusy("This conversation is being deleted.")
        self._current[thread] = run
        if self.peers is not None and await self.peers.has_others():
            try:
                await self._wait_for_others(self.peers, thread, run)
            finally:
                self._next.pop(thread, None)

    def _withdraw(self, thread: ThreadKey, run: Run) -> None:
        """Let nobody wait for a run that was not admitted."""
        if self._current.get(thread) is run:
            del self._current[thread]
        run.finish("refused")
        self._note_stop(thread, run)

    def _note_stop(self, thread: ThreadKey, run: Run) -> None:
        """Remember a run that was stopped before it began: the same request may come again."""
        is_withdrawn = run.state == "refused" and run.stop_requested.done()
        if is_withdrawn and not self.runtime.is_closing:
            self._withdrawn[thread, run.request.run_id] = run.log_id
            if len(self._withdrawn) > _MAX_WITHDRAWN:
                del self._withdrawn[next(iter(self._withdrawn))]

    async def _wait_again(self, thread: ThreadKey, run: Run) -> bool:
        """Wait for the run that another process began at the same moment, if this one may."""
        if self.peers is None or (self.when_busy == "refuse" and not run.request.is_v1):
            return False
        try:
            await self._wait_for_others(self.peers, thread, run)
        finally:
            self._next.pop(thread, None)
        return True

    async def _wait_for_others(self, peers: Peers, thread: ThreadKey, run: Run) -> None:
        """Wait for the run that another process has in a thread, if this one may."""
        while (before := await peers.find_run(thread)) is not None:
            when_busy = "queue" if run.request.is_v1 else self.when_busy
            if when_busy == "refuse" or before.run_id == run.request.run_id:
                return  # the store knows best whether it goes on, or is the same
            self._next[thread] = run
            if when_busy == "supersede":
                await self._ask_owner(thread, "stop", run_id=before.run_id)
            if (log := await peers.follow(thread, before)) is None:
                return
            end = asyncio.ensure_future(_read_to_end(log))
            await asyncio.wait((end, run.stop_requested), return_when=asyncio.FIRST_COMPLETED)
            end.cancel()
            if run.stop_requested.done():
                raise _build_cancellation()

    async def _wait_for_turn(self, before: Run, run: Run) -> None:
        """Wait for the end of a run, if this one may. Raises `Cancelled` or `ThreadBusy`."""
        if answers_same(before.request, run.request):  # twice: it must not end the first, either
            raise ThreadBusy("This answer has been given already, and the agent works on it.")
        # a client may ask again as soon as it has seen the last event
        when_busy = "queue" if run.request.is_v1 else self.when_busy
        if when_busy == "refuse" and not before.is_ending:
            raise ThreadBusy(
                "This conversation is still being answered. Wait for the answer, or stop it.",
                hint="Set when_busy to queue or supersede to have it otherwise.",
            )
        if when_busy == "supersede":
            before.stop()
        ends = (before.ended, run.stop_requested)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if run.stop_requested.done() and not self.runtime.is_closing:
            raise _build_cancellation()
        if self.runtime.is_closing:
            raise Interrupted("The server stopped before it could answer.")

    def _list_runs(self, thread: ThreadKey) -> Sequence[Run]:
        """Return the run that a thread is answered with here, and those that wait."""
        current = self._find_current(thread)
        return [*([current] if current else ()), *self._list_waiting(thread)]

    def _list_waiting(self, thread: ThreadKey) -> Sequence[Run]:
        """Return the runs that wait for their turn in a thread."""
        first = self._next.get(thread)
        return [*([first] if first else ()), *self._queues.get(thread, {}).values()]

    def _find_current(self, thread: ThreadKey) -> Run | None:
        """Return the run that a thread is answered with here; it waits for no other process."""
        return None if thread in self._next else self._current.get(thread)

    @contextmanager
    def _queue(self, thread: ThreadKey, run: Run) -> Generator[None]:
        """Add a run to the queue of a thread while it waits. Raises `ThreadBusy` for a full one."""
        queue = self._queues.setdefault(thread, {})
        if len(queue) >= _MAX_QUEUE:
            raise ThreadBusy(
                f"{_MAX_QUEUE} questions wait in this conversation already. "
                "Wait for the answers, or stop them."
            )
        queue[run.log_id] = run
        try:
            yield
        finally:
            del queue[run.log_id]
            if not queue:
                del self._queues[thread]

    def _free(self, thread: ThreadKey, run: Run) -> None:
        """Let the next run into a thread, and give the thread a name."""
        if self._current.get(thread) is run:
            del self._current[thread]
        if self.namer is not None and run.state == "ended":
            name = f"name:{thread.id}"
            task = asyncio.create_task(self._try_to_name(self.namer, thread), name=name)
            self._naming.add(task)
            task.add_done_callback(self._naming.discard)

    async def _try_to_name(self, namer: Namer, thread: ThreadKey) -> None:
        try:
            await contain(self._name(namer, thread))
        except CopilotError as error:
            logger.warning("The thread %s got no name: %s", thread.id, error.message)
        except Exception:  # of the application's namer, adapter or store: the thread has no name
            logger.exception("The thread %s got no name", thread.id)

    async def _name(self, namer: Namer, thread: ThreadKey) -> None:
        """Give a thread without a name one, once it has been answered."""
        found = await self.store.get(thread)
        if found is None or found.name is not None:
            return
        name = await namer(await self.store.runs(thread))
        if name is not None:
            await self.store.update(thread, name=name)
            self.changes.note(thread)


def _is_same(run: Run, request: RunInput) -> bool:
    """Return whether a run was begun by the same request, which came again."""
    is_one_run = run.request.run_id == request.run_id and run.state != "refused"
    return is_one_run and asks_same(run.log_id, request.log_id)


def _build_cancellation() -> Cancelled:
    return Cancelled("The run was stopped before it began.")


async def _replay(run: StoredRun) -> Log:
    for number, event in enumerate(run.events, 1):
        yield Batch(str(number), (event,))


async def _read_to_end(log: Log) -> None:
    async with aclosing(log) as batches:
        async for _ in batches:
            pass


async def _follow(run: Run) -> Log | None:
    """Return a run's log, once there is one; None if there is none, or none any more."""
    await run.started
    try:
        return run.follow()
    except NotFound:
        return None


def _runs_before(log_id: str, runs: Sequence[StoredRun]) -> Sequence[StoredRun]:
    """Return the runs up to the first that goes on: this one, or one of another server."""
    return [*takewhile(lambda run: run.log_id != log_id and run.ended, runs)]


def _thread_key(run: RunInput) -> ThreadKey:
    return ThreadKey(run.user or "", run.thread_id)
