"""Runs as parts of threads: one at a time, stored for later, and visible to their owner only."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import Agent, SupportsRun
from copilot_runtime.api.bus import START, Cursor, PeerLost
from copilot_runtime.api.events import RunStarted
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.run_input import RunInput, ThreadIds
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import Misuse, NotFound, ThreadBusy
from copilot_runtime.runtime.admission import Admission, WhenBusy
from copilot_runtime.runtime.idempotency import Idempotency
from copilot_runtime.runtime.naming import Namer, ThreadNaming
from copilot_runtime.runtime.peers import Peers
from copilot_runtime.runtime.reader import ThreadReader, replay_run
from copilot_runtime.runtime.report import report_error
from copilot_runtime.runtime.run import Log, Run, StopReason
from copilot_runtime.runtime.runtime import Runtime
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.threads.log_ids import DuplicateRun
from copilot_runtime.threads.store import (
    RunningRun,
    StoredRun,
    Thread,
    ThreadKey,
    ThreadPage,
    ThreadQuery,
    ThreadStore,
)

Forget = Callable[[ThreadKey], Awaitable[None]]
"""Deletes data that belongs to a thread but is stored elsewhere, such as its files."""

OPENED: "ContextVar[list[Conversations]]" = ContextVar("OPENED")
"""Collects the `Conversations` of an application for a server that stops runs itself. A server ends
the lifespan of an application only after its connections, which wait for the runs."""


class Conversations:
    """The runs of all transports, and the threads that they belong to.

    Every method that takes a `ThreadKey` sees only threads of its owner: a thread of another owner
    does not exist. `patience` is the number of seconds that `delete` waits for a run to end.

    `has_users` is `True` if callers may be authenticated users. Remote agents then get a thread
    identifier derived with the `secret`, or with the store's secret if it is empty. `forget`
    deletes data that belongs to a thread, such as its files. `changes` records the changes made by
    this class.
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
        self.patience = patience
        self.changes = changes or ThreadChanges(store)
        self.naming = ThreadNaming(store, self.changes, namer)
        self._forget = forget
        self._thread_ids = ThreadIds(has_users, secret.encode())
        self._needs_secret = has_users and not secret
        self._admission = Admission(runtime, when_busy)
        self._idempotency = Idempotency(store, self._admission, self.runs, self.follow_run)
        self._reader = ThreadReader(store)

    @property
    def peers(self) -> Peers | None:
        """The cluster of processes that share the store, or `None`."""
        return self._admission.peers

    @peers.setter
    def peers(self, peers: Peers | None) -> None:
        self._admission.peers = peers

    def open(self) -> None:
        """Accept runs again after `aclose`."""
        self.runtime.open()
        self.changes.open()
        if (opened := OPENED.get(None)) is not None:
            opened.append(self)

    @property
    def chat(self) -> Agent:
        """The agent for requests that name no agent."""
        return self.runtime.chat

    async def agents_for(self, caller: Caller) -> Mapping[str, Agent]:
        """Return the agents available to a caller, by name."""
        return await self.runtime.agents_for(caller)

    async def agent(self, name: str | None, caller: Caller) -> Agent:
        """Return the agent of that name, or the plain chat. Raises `AgentNotFound`."""
        return await self.runtime.agent(name, caller)

    async def authorize(self, run: RunInput) -> RunInput:
        """Check a request that is not a run: its caller must be allowed to start one."""
        return await self.runtime.authorize(run)

    async def load_state(
        self, agent: str, thread_id: str, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return an agent's stored state and messages of a thread, or `None`.

        Raises `AgentNotFound`.
        """
        found = await self.agent(agent, caller)
        ids = await self.thread_ids()
        return await convert_exits(found.load_state(ids.derive(caller.user, thread_id), caller))

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the server's actions for this run."""
        return await self.runtime.actions(run)

    async def thread_ids(self) -> ThreadIds:
        """Return the mapping of threads to identifiers for remote agents. Raises `StoreFailed`."""
        if self._needs_secret:
            secret = await convert_exits(self.store.secret())
            self._thread_ids = replace(self._thread_ids, secret=secret.encode())
            self._needs_secret = False
        return self._thread_ids

    def create(self, request: RunInput) -> Run:
        """Return a run that has not been launched. It can be stopped during `launch`."""
        return self.runtime.create(request)

    async def launch(self, run: Run, agent: SupportsRun | None = None) -> None:
        """Launch a run as `Runtime.launch` does. Also raises `ThreadBusy`."""
        await self._prepare_request(run)
        if not run.request.persist:
            await self.runtime.launch(run, agent)
            return
        thread = ThreadKey.of(run.request.user, run.request.thread_id)
        try:
            await self._admission.admit(thread, run)
        except BaseException:
            self._admission.release(thread, run)
            run.finish("refused")
            self._note_stop(thread, run)
            raise
        # the naming's token usage belongs to the trace of this run
        run.ended.add_done_callback(lambda _: self._free(thread, run), context=run.context)
        try:
            await self.runtime.launch(run, agent, partial(self._admission.wait_again, thread, run))
        except BaseException:
            self._note_stop(thread, run)
            raise

    async def start(self, request: RunInput, agent: SupportsRun | None = None) -> Run:
        """Create a run and launch it."""
        run = self.create(request)
        await self.launch(run, agent)
        return run

    async def start_once(self, request: RunInput) -> tuple[Run | None, Log]:
        """Start the run of a request, or find the run of an earlier copy of the request.

        Returns the new run, or `None` for a repeated request, and the log from its start. The key
        is the client's run identifier within a thread; another question with the same identifier is
        another run. Raises the errors of `start`.
        """
        while True:
            run = self.create(request)
            try:
                if (log := await self._launch_once(run)) is not None:
                    return None, log
            except (
                DuplicateRun
            ):  # an earlier run, or one started concurrently here or in another process
                if (log := await self._idempotency.find_in_store(request)) is not None:
                    return None, log
            except (ThreadBusy, Misuse):  # the interrupt was already answered
                log = await self._idempotency.find_in_store(request) if request.resume else None
                if log is None:
                    raise
                return None, log
            else:
                return run, run.follow()

    async def _launch_once(self, run: Run) -> Log | None:
        """Launch a run, or return the log of the run of an earlier copy of the request.

        A stop that is acknowledged before the launch is guaranteed to take effect.
        """
        if not run.request.persist:
            await self.launch(run)
            return None
        thread = ThreadKey.of(run.request.user, run.request.thread_id)
        with self._admission.announce(thread, run):
            if (log := await self._find_before(run.request)) is not None:
                return log
            if run.stop_requested.done():
                run.finish("refused")
                self._note_stop(thread, run)
                raise run.build_cancellation()
            await self.launch(run)
        return None

    async def _find_before(self, request: RunInput) -> Log | None:
        """Return the log of an earlier copy's run if it can be found before the launch, or `None`.

        A single process relies on the store to detect duplicates at the start of the run: most
        requests come once. In a cluster it looks first, so that another process's run takes no
        second slot.
        """
        log = await self._idempotency.find_here(request)
        if log is None and self.peers is not None and await self.peers.has_others():
            return await self._idempotency.find_in_store(request)
        return log

    def stop(self, log_id: str) -> bool:
        """Stop a run of this process by its log. Returns `True` if it was still active."""
        return self.runtime.stop(log_id)

    def follow(self, log_id: str, after: Cursor = START) -> Log:
        """Yield a log of this process from a cursor to its last event."""
        return self.runtime.follow(log_id, after)

    async def find_log(
        self, log_id: str, user: str | None, after: Cursor = START
    ) -> tuple[str, Log]:
        """Return a run's thread identifier and its log from a cursor, in whichever process it is.

        For clients that reconnect. Raises `NotFound`; the message is the same for another user's
        run.
        """
        if (thread_id := await self._find_thread(log_id, user)) is not None:
            return thread_id, self.follow(log_id, after)
        if self.peers is not None:
            found = await self.peers.ask_all("find", log_id=log_id, user=user)
            if found is not None:
                server, thread_id = found
                run = RunningRun(log_id, "", server)
                log = await self.peers.follow(ThreadKey.of(user, thread_id), run, after)
                if log is not None:
                    return thread_id, log
        raise NotFound(f"No run {log_id!r}: it never was, or its log is older than its lifetime.")

    async def stop_log(self, log_id: str, user: str | None) -> bool:
        """Stop a user's run by its log, in whichever process it is.

        Returns `True` if it was still active.
        """
        if await self._find_thread(log_id, user) is not None:
            return self.stop(log_id)
        if self.peers is None:
            return False
        found = await self.peers.ask_all("stop log", log_id=log_id, user=user)
        return found is not None and bool(found[1])

    async def _find_thread(self, log_id: str, user: str | None) -> str | None:
        """Return the thread identifier of a user's run in this process, or `None`.

        The identifier is in the first event of the log.
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
        """Return the log of a run from its start, in whichever process it is.

        The log of an ended run may be replayed from the store. Raises `NotFound` for an unknown
        run.
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
            return replay_run(stored)

    async def _find_run(self, thread: ThreadKey, log_id: str) -> StoredRun | None:
        return next((run for run in await self.runs(thread) if run.log_id == log_id), None)

    async def stop_thread(self, thread: ThreadKey, run_id: str | None = None) -> bool:
        """Stop a thread's current run, in whichever process it is.

        Queued runs continue. With a `run_id`, stop only that run, even if it is queued or about to
        start. Returns `True` if there was one.
        """
        if self._admission.stop(thread, run_id):
            return True
        is_elsewhere = self._admission.find_current(thread) is None
        peers = self.peers if is_elsewhere else None
        if peers is not None and await peers.ask_owner(thread, "stop", run_id=run_id):
            return True
        if not is_elsewhere and run_id is None:
            return False
        arrives = self._admission.stop_arriving(thread, run_id)
        try:
            found = await self._ask_others("stop new", thread, run_id=run_id)
        except PeerLost:
            if not arrives:
                raise
            return True
        return arrives or found is not None

    async def _ask_others(self, question: str, thread: ThreadKey, **values: Any) -> Any:
        """Query all processes about a thread whose run may not be in the store yet.

        This includes processes that joined within the last second.
        """
        if self.peers is None:
            return None
        return await self.peers.ask_all(question, thread=[*thread], **values)

    async def history(self, thread: ThreadKey) -> tuple[Sequence[StoredRun], Log | None]:
        """Return the ended runs of a thread, and the log of its active run or `None`.

        The two are consistent: no event is missing or duplicated. The log can be read to its end,
        even if the run ends meanwhile.
        """
        elsewhere = None
        while True:
            current = self._admission.find_current(thread)
            if current is not None:
                log_id, log = current.log_id, await current.wait_for_log()
            else:
                log_id, log = await self._follow_elsewhere(thread, elsewhere)
            runs = await self._reader.read(thread, only_ended=True)
            if log is not None:
                return _runs_before(log_id, runs), log
            # a run that started, or even ended, while the store was read
            unfinished = next((run.log_id for run in runs if not run.ended), None)
            if unfinished is None:
                return runs, None
            if unfinished == elsewhere:  # no process has its log
                return await self.runs(thread), None
            elsewhere = unfinished

    async def _follow_elsewhere(
        self, thread: ThreadKey, unfinished: str | None
    ) -> tuple[str, Log | None]:
        """Return the log of another process's active run in a thread, or `None`."""
        if self.peers is None or unfinished is None:
            return "", None
        run = await self.peers.find_run(thread)
        if run is None:
            return "", None
        return run.log_id, await self.peers.follow(thread, run)

    async def runs(self, thread: ThreadKey) -> Sequence[StoredRun]:
        """Return the stored runs of a thread, oldest first; concurrent readers share them."""
        return await self._reader.read(thread)

    async def list(self, query: ThreadQuery) -> ThreadPage:
        """Return a page of threads. Raises `Misuse` for an invalid cursor."""
        return await convert_exits(self.store.list(query))

    async def update(
        self, thread: ThreadKey, *, name: str | None = None, archived: bool | None = None
    ) -> Thread:
        """Rename or archive a thread. Raises `NotFound`."""
        changed = await convert_exits(self.store.update(thread, name=name, archived=archived))
        if changed is None:
            raise NotFound("There is no such thread.")
        self.changes.note(thread)
        return changed

    async def delete(self, thread: ThreadKey) -> None:
        """Stop a thread's run and delete the thread.

        Raises `NotFound`, or `ThreadBusy` if the run does not end.
        """
        with self._admission.close(thread):
            self._admission.stop_waiting(thread, reason="deleted")
            with suppress(PeerLost):  # a run that is still active there is stopped once more
                await self._ask_others("clear", thread)
            if not await self._end(thread):
                raise ThreadBusy(
                    "This conversation is still being answered, and the answer does not end. "
                    "Please try again in a moment.",
                    hint="An agent has to let asyncio.CancelledError pass.",
                )
            if self._forget is not None:  # first: after a failure here, the deletion can be retried
                await convert_exits(self._forget(thread))
            if not await convert_exits(self.store.delete(thread)):
                raise NotFound("There is no such thread.")
            self.changes.note(thread)

    async def _end(self, thread: ThreadKey) -> bool:
        """Stop a thread's run, in whichever process it is. Returns `True` if it has ended."""
        has_ended = await self._end_here(thread)
        if not has_ended or self._admission.find_current(thread) is not None or self.peers is None:
            return has_ended
        return await self.peers.ask_owner(thread, "end", timeout=self.patience + 1) is not False

    async def _end_here(self, thread: ThreadKey) -> bool:
        """Stop the run of a deleted thread in this process. Returns `True` if it ends in time."""
        self._admission.stop(thread, reason="deleted")
        if (current := self._admission.find_current(thread)) is None:
            return True
        await asyncio.wait((current.ended,), timeout=self.patience)
        return current.ended.done()

    async def answer_stop(self, values: Mapping[str, Any]) -> bool:
        """Handle another process's request to stop a run of this process."""
        is_superseded = values.get("reason") == "superseded"
        reason: StopReason = "superseded" if is_superseded else "requested"
        return self._admission.stop(ThreadKey(*values["thread"]), values.get("run_id"), reason)

    async def answer_stop_new(self, values: Mapping[str, Any]) -> bool | None:
        """Stop a starting or queued run. Returns `None` if it is not in this process."""
        thread, run_id = ThreadKey(*values["thread"]), values.get("run_id")
        stopped = self._admission.stop(thread, run_id)
        return self._admission.stop_arriving(thread, run_id) or stopped or None

    async def answer_clear(self, values: Mapping[str, Any]) -> None:
        """Stop all current and queued runs of a deleted thread in this process."""
        thread = ThreadKey(*values["thread"])
        self._admission.stop_waiting(thread, reason="deleted")
        self._admission.stop(thread, reason="deleted")

    async def answer_end(self, values: Mapping[str, Any]) -> bool:
        """Stop a deleted thread's run in this process. Returns `True` if it has ended."""
        return await self._end_here(ThreadKey(*values["thread"]))

    async def answer_find(self, values: Mapping[str, Any]) -> str | None:
        """Return the thread identifier of a run of this process, or `None`."""
        return await self._find_thread(values["log_id"], values["user"])

    async def answer_stop_log(self, values: Mapping[str, Any]) -> bool | None:
        """Stop a run by its log. Returns `None` if it is not in this process."""
        if await self._find_thread(values["log_id"], values["user"]) is None:
            return None
        return self.stop(values["log_id"])

    async def drain(self) -> None:
        """Refuse all further runs, and wait until the active ones have ended."""
        self.runtime.close_admission()
        self.changes.close()
        if ends := [run.ended for run in self.runtime.active_runs()]:
            await asyncio.wait(ends)

    async def aclose(self) -> None:
        """Stop all runs and end all tasks. The store stays open: its creator closes it."""
        self.runtime.close_admission()
        self.changes.close()
        self._admission.stop_queues()
        await self.runtime.aclose()
        if self.peers is not None:
            await self.peers.aclose()
        await self.naming.aclose(self.patience)

    async def _prepare_request(self, run: Run) -> None:
        """Set the store for agents' checkpoints and the thread identifiers of a request."""
        try:
            has_users = self._thread_ids.has_users
            ids = await self.thread_ids() if has_users else run.request.thread_ids
            run.request = copy_with(run.request, checkpoints=self.store, thread_ids=ids)
        except Exception as error:  # raised by the store
            await report_error(self.runtime.hooks, error, run)
            raise

    def _note_stop(self, thread: ThreadKey, run: Run) -> None:
        if not self.runtime.is_closing:  # a stop by the server is not a client's stop
            self._idempotency.note_stop(thread, run)

    def _free(self, thread: ThreadKey, run: Run) -> None:
        """Admit the next run of a thread, and name the thread."""
        self._admission.release(thread, run)
        if run.state == "ended":
            self.naming.start(thread)


def _runs_before(log_id: str, runs: Sequence[StoredRun]) -> Sequence[StoredRun]:
    """Return the ended runs before this run or before another process's active run."""
    return [*takewhile(lambda run: run.log_id != log_id and run.ended, runs)]
