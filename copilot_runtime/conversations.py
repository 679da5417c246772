"""Runs as parts of threads: one at a time, read again later, by their owner only."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

from copilot_runtime.errors import CopilotError, Interrupted, NotFound, ThreadBusy
from copilot_runtime.interfaces import START, Agent, Batch, Caller, Cursor, RunInput
from copilot_runtime.runtime import Runtime
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


@dataclass(slots=True)
class _Live:
    """The run a thread is answering with."""

    key: str
    run_id: str
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has a log, or never will."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: bool = False
    """Set when it was asked to end, which may take a while."""


class Conversations:
    """What transports may ask: runs, and the threads they belong to.

    Every method that takes a `ThreadKey` sees only threads of its owner: another's thread is
    one that does not exist.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: ThreadStore,
        *,
        when_busy: WhenBusy = "refuse",
        namer: Namer | None = None,
    ) -> None:
        self.runtime = runtime
        self.store = store
        self.when_busy = when_busy
        self.namer = namer
        self._live: dict[ThreadKey, _Live] = {}
        self._naming: set[asyncio.Task[None]] = set()
        self._closing = False
        runtime.ended = self._ended

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

    async def start(self, run: RunInput) -> None:
        """Begin a run, as `Runtime.start` does. Raises `ThreadBusy` as well."""
        if not run.kept:
            await self.runtime.start(run)
            return
        thread = _thread_of(run)
        live = await self._admit(thread, run)
        try:
            await self.runtime.start(run)
        except BaseException:
            self._free(thread, live)
            raise
        finally:
            live.begun.set()

    def stop(self, key: str) -> bool:
        """End a run by its log. Returns whether it still went on."""
        return self.runtime.stop(key)

    def follow(self, key: str, after: Cursor = START) -> Log:
        """Read a run's log from a cursor on, until its last event."""
        return self.runtime.follow(key, after)

    def stop_thread(self, thread: ThreadKey, run_id: str | None = None) -> bool:
        """End the run of a thread; with a `run_id`, only that one. Returns whether it went on."""
        live = self._live.get(thread)
        if live is None or (run_id is not None and live.run_id != run_id):
            return False
        return self._stop(live)

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
                return _before(live.key, runs), log
            # one that began, or even ended, while the store was read
            unfinished = next((run.key for run in runs if not run.ended), None)
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
        """Forget a thread, ending its run. Raises `NotFound`."""
        if (live := self._live.get(thread)) is not None:
            self._stop(live)
            await live.ended.wait()
        if not await self.store.delete(thread):
            raise NotFound("There is no such thread.")

    async def aclose(self) -> None:
        """Stop all runs and leave no task behind. The store is closed by whoever opened it."""
        self._closing = True
        try:
            await self.runtime.aclose()
            for task in [*self._naming]:
                task.cancel()
            await asyncio.gather(*self._naming, return_exceptions=True)
        finally:
            self._closing = False  # an application may start again

    async def _admit(self, thread: ThreadKey, run: RunInput) -> _Live:
        """Make this run the one its thread answers with."""
        while (before := self._live.get(thread)) is not None:
            # a client may ask again as soon as it has seen the last event
            when_busy = "queue" if run.follow_up == "client" else self.when_busy
            is_ending = before.stopped or self.runtime.ending(before.key)
            if when_busy == "refuse" and not is_ending:
                raise ThreadBusy(
                    "This conversation is still being answered. Wait for the answer, or stop it.",
                    hint="Set when_busy to queue or supersede to have it otherwise.",
                )
            if when_busy == "supersede":
                self._stop(before)
            await before.ended.wait()
        if self._closing:
            raise Interrupted("The server stopped before it could answer.")
        live = self._live[thread] = _Live(run.key, run.run_id)
        return live

    def _stop(self, live: _Live) -> bool:
        live.stopped = True
        is_starting = not live.begun.is_set()  # then it will not begin
        return self.runtime.stop(live.key) or is_starting

    async def _log_of(self, live: _Live) -> Log | None:
        """Return a run's log, once there is one; None if there is none, or none any more."""
        await live.begun.wait()
        try:
            return self.runtime.follow(live.key)
        except NotFound:
            return None

    def _ended(self, run: RunInput) -> None:
        thread = _thread_of(run)
        live = self._live.get(thread)
        if not run.kept or live is None or live.key != run.key:
            return
        self._free(thread, live)
        if self.namer is not None:
            task = asyncio.create_task(self._name(self.namer, run), name=f"name:{run.thread_id}")
            self._naming.add(task)
            task.add_done_callback(self._naming.discard)

    def _free(self, thread: ThreadKey, live: _Live) -> None:
        if self._live.get(thread) is live:
            del self._live[thread]
        live.ended.set()

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


def _before(key: str, runs: Sequence[StoredRun]) -> Sequence[StoredRun]:
    return [*takewhile(lambda run: run.key != key, runs)]


def _thread_of(run: RunInput) -> ThreadKey:
    return ThreadKey(run.user or "", run.thread_id)
