"""Runs as parts of threads: one at a time, read again later, by their owner only."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

from copilot_runtime.errors import (
    Cancelled,
    CopilotError,
    Interrupted,
    NotFound,
    ThreadBusy,
)
from copilot_runtime.interfaces import START, Action, Agent, Batch, Caller, Cursor, RunInput
from copilot_runtime.runtime.runtime import Runtime
from copilot_runtime.threads.store import (
    StoredRun,
    Thread,
    ThreadKey,
    ThreadPage,
    ThreadQuery,
    ThreadStore,
)

logger = logging.getLogger(__name__)

Log = AsyncGenerator[Batch, None]
"""What a run says, read from its beginning to its end."""

WhenBusy = Literal["refuse", "supersede", "queue"]
"""What becomes of a question in a thread that is still answering: an error, the end of the
answer before it, or its turn. Those of CopilotKit v1 always wait for their turn: a client that
gives up an answer asks again before we know that it has left."""

Namer = Callable[[Sequence[StoredRun]], Awaitable[str | None]]
"""Finds a name for a thread that has none, from its runs; None if there is nothing to say."""


_MOST_WAITING = 5
"""Questions that wait for their turn in one thread; each holds a whole conversation."""


def _future() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class _Live:
    """The run a thread is answering with."""

    log_id: str
    run_id: str
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has a log, or never will."""
    ended: "asyncio.Future[None]" = field(default_factory=_future)
    stopped: bool = False
    """Set when it was asked to end, which may take a while."""


@dataclass(slots=True)
class _Waiting:
    """A run whose turn has not come."""

    run_id: str
    stopped: "asyncio.Future[None]" = field(default_factory=_future)

    def stop(self) -> bool:
        if self.stopped.done():
            return False
        self.stopped.set_result(None)
        return True


class Conversations:
    """What transports may ask: runs, and the threads they belong to.

    Every method that takes a `ThreadKey` sees only threads of its owner: another's thread is
    one that does not exist. `patience` is how many seconds `delete` waits for a run to end.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: ThreadStore,
        *,
        when_busy: WhenBusy = "refuse",
        namer: Namer | None = None,
        patience: float = 10.0,
    ) -> None:
        self.runtime = runtime
        self.store = store
        self.when_busy = when_busy
        self.namer = namer
        self.patience = patience
        self._live: dict[ThreadKey, _Live] = {}
        self._waiting: dict[ThreadKey, dict[str, _Waiting]] = {}
        """What waits for its turn, by the names of the logs."""
        self._threads_waiting: dict[str, ThreadKey] = {}
        self._deleting: set[ThreadKey] = set()
        self._naming: set[asyncio.Task[None]] = set()
        self._closing = False
        runtime.ended = self._ended

    def open(self) -> None:
        """Take runs again, after `aclose`."""
        self._closing = False
        self.runtime.open()

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

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the server's actions for this run."""
        return await self.runtime.actions(run)

    async def start(self, run: RunInput, agent: Agent | None = None) -> None:
        """Begin a run, as `Runtime.start` does. Raises `ThreadBusy` as well."""
        if not run.persist:
            await self.runtime.start(run, agent)
            return
        thread = _thread_of(run)
        live = await self._admit(thread, run)
        try:
            await self.runtime.start(run, agent)
        except BaseException:
            self._free(thread, live)
            raise
        finally:
            live.begun.set()

    def stop(self, log_id: str) -> bool:
        """End a run by its log, or take away one that waits. Returns whether it still went on."""
        if (thread := self._threads_waiting.get(log_id)) is not None:
            return self._waiting[thread][log_id].stop()
        return self.runtime.stop(log_id)

    def follow(self, log_id: str, after: Cursor = START) -> Log:
        """Read a run's log from a cursor on, until its last event."""
        return self.runtime.follow(log_id, after)

    def stop_thread(self, thread: ThreadKey, run_id: str | None = None) -> bool:
        """End the run of a thread, and those that wait there; with a `run_id`, only that one.

        Returns whether there was one.
        """
        went_on = False
        for waiting in [*self._waiting.get(thread, {}).values()]:
            if run_id in (None, waiting.run_id):
                went_on = waiting.stop() or went_on
        live = self._live.get(thread)
        if live is not None and run_id in (None, live.run_id):
            went_on = self._stop(live) or went_on
        return went_on

    async def history(self, thread: ThreadKey) -> tuple[Sequence[StoredRun], Log | None]:
        """Return the runs of a thread that have ended, and the log of the one that has not.

        Between the two nothing is missing and nothing twice. The log can be read to its end,
        whatever becomes of the run.
        """
        elsewhere = None
        while True:
            live = self._live.get(thread)
            log = None if live is None else await self._log_of(live)
            runs = await self.store.runs(thread)
            if live is not None and log is not None:
                return _before(live.log_id, runs), log
            # one that began, or even ended, while the store was read
            unfinished = next((run.log_id for run in runs if not run.ended), None)
            if unfinished in (None, elsewhere):
                return runs, None
            elsewhere = unfinished

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for a cursor that is none."""
        return await self.store.list(query)

    async def update(
        self, thread: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread:
        """Rename or archive a thread. Raises `NotFound`."""
        changed = await self.store.update(thread, name=name, archived=archived)
        if changed is None:
            raise NotFound("There is no such thread.")
        return changed

    async def delete(self, thread: ThreadKey) -> None:
        """Forget a thread, ending its run. Raises `NotFound`, or `ThreadBusy` if it goes on."""
        if thread in self._deleting:
            raise NotFound("There is no such thread.")
        self._deleting.add(thread)
        try:
            self.stop_thread(thread)
            if (live := self._live.get(thread)) is not None:
                await asyncio.wait((live.ended,), timeout=self.patience)
                if not live.ended.done():
                    raise ThreadBusy(
                        "This conversation is still being answered, and the answer does not end. "
                        "Please try again in a moment.",
                        hint="An agent has to let asyncio.CancelledError pass.",
                    )
            if not await self.store.delete(thread):
                raise NotFound("There is no such thread.")
        finally:
            self._deleting.discard(thread)

    async def aclose(self) -> None:
        """Stop all runs and leave no task behind. The store is closed by whoever opened it."""
        self._closing = True
        for thread in [*self._waiting]:
            for waiting in self._waiting[thread].values():
                waiting.stop()
        await self.runtime.aclose()
        for task in [*self._naming]:
            task.cancel()
        if self._naming:
            await asyncio.wait(self._naming, timeout=self.patience)

    async def _admit(self, thread: ThreadKey, run: RunInput) -> _Live:
        """Make this run the one its thread answers with."""
        if thread in self._live:
            with self._queued(thread, run) as waiting:
                while (before := self._live.get(thread)) is not None:
                    await self._turn(before, run, waiting)
        if self._closing:
            raise Interrupted("The server stopped before it could answer.")
        if thread in self._deleting:
            raise ThreadBusy("This conversation is being deleted.")
        live = self._live[thread] = _Live(run.log_id, run.run_id)
        return live

    async def _turn(self, before: _Live, run: RunInput, waiting: _Waiting) -> None:
        """Wait for the end of a run, if this one may. Raises `Cancelled` or `ThreadBusy`."""
        # a client may ask again as soon as it has seen the last event
        when_busy = "queue" if run.is_v1 else self.when_busy
        is_ending = before.stopped or self.runtime.ending(before.log_id)
        if when_busy == "refuse" and not is_ending:
            raise ThreadBusy(
                "This conversation is still being answered. Wait for the answer, or stop it.",
                hint="Set when_busy to queue or supersede to have it otherwise.",
            )
        if when_busy == "supersede":
            self._stop(before)
        ends = (before.ended, waiting.stopped)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if waiting.stopped.done() and not self._closing:
            raise Cancelled("The run was stopped before it began.")
        if self._closing:
            raise Interrupted("The server stopped before it could answer.")

    @contextmanager
    def _queued(self, thread: ThreadKey, run: RunInput) -> Generator[_Waiting]:
        """Let a run be found while it waits. Raises `ThreadBusy` when too many do."""
        waiting = self._waiting.setdefault(thread, {})
        if len(waiting) >= _MOST_WAITING:
            raise ThreadBusy(
                f"{_MOST_WAITING} questions wait in this conversation already. "
                "Wait for the answers, or stop them."
            )
        mine = waiting[run.log_id] = _Waiting(run.run_id)
        self._threads_waiting[run.log_id] = thread
        try:
            yield mine
        finally:
            del waiting[run.log_id], self._threads_waiting[run.log_id]
            if not waiting:
                del self._waiting[thread]

    def _stop(self, live: _Live) -> bool:
        live.stopped = True
        is_starting = not live.begun.is_set()  # then it will not begin
        return self.runtime.stop(live.log_id) or is_starting

    async def _log_of(self, live: _Live) -> Log | None:
        """Return a run's log, once there is one; None if there is none, or none any more."""
        await live.begun.wait()
        try:
            return self.runtime.follow(live.log_id)
        except NotFound:
            return None

    def _ended(self, run: RunInput) -> None:
        thread = _thread_of(run)
        live = self._live.get(thread)
        if not run.persist or live is None or live.log_id != run.log_id:
            return
        self._free(thread, live)
        if self.namer is not None:
            task = asyncio.create_task(self._name(self.namer, run), name=f"name:{run.thread_id}")
            self._naming.add(task)
            task.add_done_callback(self._naming.discard)

    def _free(self, thread: ThreadKey, live: _Live) -> None:
        if self._live.get(thread) is live:
            del self._live[thread]
        if not live.ended.done():
            live.ended.set_result(None)

    async def _name(self, namer: Namer, run: RunInput) -> None:
        """Give a thread without a name one, once it has been answered."""
        thread = _thread_of(run)
        try:
            found = await self.store.get(thread)
            if found is None or found.name is not None:
                return
            name = await namer(await self.store.runs(thread))
            if name is not None:
                await self.store.update(thread, name=name)
        except CopilotError as error:
            logger.warning("The thread %s got no name: %s", run.thread_id, error.message)


def _before(log_id: str, runs: Sequence[StoredRun]) -> Sequence[StoredRun]:
    """Return the runs up to the first that goes on: this one, or one of another server."""
    return [*takewhile(lambda run: run.log_id != log_id and run.ended, runs)]


def _thread_of(run: RunInput) -> ThreadKey:
    return ThreadKey(run.user or "", run.thread_id)
