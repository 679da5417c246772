"""Admit one run at a time to each thread across all processes; queue or refuse the others."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from typing import Literal

from copilot_runtime.base.errors import CopilotError, Interrupted, Misuse, NotFound, ThreadBusy
from copilot_runtime.runtime.interrupts import answers_same
from copilot_runtime.runtime.peers import Peers
from copilot_runtime.runtime.run import Log, Run, StopReason
from copilot_runtime.runtime.runtime import Runtime
from copilot_runtime.threads.log_ids import build_duplicate_error
from copilot_runtime.threads.store import RunningRun, ThreadKey

WhenBusy = Literal["refuse", "supersede", "queue"]
"""Policy for a request in a busy thread: refuse the request, stop the active run, or queue the
request. CopilotKit v1 requests are always queued: a client that abandons an answer may send the
next request before the server notices the disconnect."""

_MAX_QUEUE = 5
"""Maximum number of queued runs per thread; each holds a whole conversation."""

_PAUSE = 1.0
"""Seconds between two attempts to stop a run of a process that cannot be reached."""


class Admission:
    """Tracks each thread's current run in this process, and its queued runs."""

    def __init__(self, runtime: Runtime, when_busy: WhenBusy) -> None:
        self.peers: Peers | None = None
        """The cluster of processes that share the store, or `None`."""
        self._runtime = runtime
        self._when_busy: WhenBusy = when_busy
        self._current: dict[ThreadKey, Run] = {}
        """The current run of each thread."""
        self._queues: dict[ThreadKey, dict[str, Run]] = {}
        """Queued runs of each thread, by `log_id`."""
        self._next: dict[ThreadKey, Run] = {}
        """Current runs that wait for a run of another process."""
        self._arriving: dict[ThreadKey, dict[str, Run]] = {}
        """Announced runs that may still prove to be repeated requests, by `log_id`."""
        self._closed: set[ThreadKey] = set()
        """Threads that are being deleted."""

    async def admit(self, thread: ThreadKey, run: Run) -> None:
        """Make a run the current run of its thread; wait for its turn if necessary.

        Raises `ThreadBusy`, `Cancelled`, or `Misuse` if another run already answers the same
        question.
        """
        if thread in self._current:
            if any(other.is_repeated_by(run.request) for other in self.list_runs(thread)):
                raise build_duplicate_error(run.request.run_id)
            with self._queue(thread, run):
                while (before := self._current.get(thread)) is not None:
                    await self._wait_for_turn(before, run)
        if self._runtime.is_closing:
            raise Interrupted("The server stopped before it could answer.")
        if thread in self._closed:
            raise ThreadBusy("This conversation is being deleted.")
        self._current[thread] = run
        if self.peers is not None and await self.peers.has_others():
            await self._wait_for_others(self.peers, thread, run)

    async def wait_again(self, thread: ThreadKey, run: Run) -> bool:
        """Wait for a run that another process started first, if the policy allows that."""
        if self.peers is None or (self._when_busy == "refuse" and not run.request.is_v1):
            return False
        await self._wait_for_others(self.peers, thread, run)
        return True

    def release(self, thread: ThreadKey, run: Run) -> None:
        """Admit the next run of a thread."""
        if self._current.get(thread) is run:
            del self._current[thread]

    def find_current(self, thread: ThreadKey) -> Run | None:
        """Return a thread's current run unless it waits for another process, or `None`."""
        return None if thread in self._next else self._current.get(thread)

    def list_runs(self, thread: ThreadKey) -> Sequence[Run]:
        """Return a thread's current run and its queued runs in this process."""
        current = self.find_current(thread)
        return [*([current] if current else ()), *self._list_waiting(thread)]

    def stop(
        self, thread: ThreadKey, run_id: str | None = None, reason: StopReason = "requested"
    ) -> bool:
        """Stop a thread's current run in this process; queued runs continue.

        With a `run_id`, stop only that run, even if it is queued. Returns `True` if there was one.
        """
        was_active = run_id is not None and self.stop_waiting(thread, run_id)
        current = self.find_current(thread)
        if current is not None and run_id in (None, current.request.run_id):
            was_active = current.stop(reason) or was_active
        return was_active

    def stop_waiting(
        self, thread: ThreadKey, run_id: str | None = None, reason: StopReason = "requested"
    ) -> bool:
        """Stop one or all queued runs of a thread. Returns `True` if there was one."""
        was_active = False
        for run in self._list_waiting(thread):
            if run_id in (None, run.request.run_id):
                was_active |= not run.stop_requested.done()
                run.stop(reason)
        return was_active

    @contextmanager
    def announce(self, thread: ThreadKey, run: Run) -> Generator[None]:
        """Make a run stoppable before it is admitted."""
        self._arriving.setdefault(thread, {})[run.log_id] = run
        try:
            yield
        finally:
            arriving = self._arriving[thread]
            del arriving[run.log_id]
            if not arriving:
                del self._arriving[thread]

    def stop_arriving(self, thread: ThreadKey, run_id: str | None = None) -> bool:
        """Stop one or all announced runs that are not admitted yet.

        Returns `True` if there was one.
        """
        arriving = self._arriving.get(thread, {}).values()
        runs = [run for run in arriving if run_id in (None, run.request.run_id)]
        for run in runs:
            run.stop()
        return bool(runs)

    def stop_queues(self) -> None:
        """Stop all queued runs."""
        queued = (run for queue in self._queues.values() for run in queue.values())
        for run in [*self._next.values(), *queued]:
            run.stop()

    @contextmanager
    def close(self, thread: ThreadKey) -> Generator[None]:
        """Refuse runs in a thread while it is deleted. Raises `NotFound` if it already is."""
        if thread in self._closed:
            raise NotFound("There is no such thread.")
        self._closed.add(thread)
        try:
            yield
        finally:
            self._closed.discard(thread)

    def _list_waiting(self, thread: ThreadKey) -> Sequence[Run]:
        """Return the queued runs of a thread."""
        first = self._next.get(thread)
        return [*([first] if first else ()), *self._queues.get(thread, {}).values()]

    @contextmanager
    def _queue(self, thread: ThreadKey, run: Run) -> Generator[None]:
        """Keep a run in its thread's queue while it waits.

        Raises `ThreadBusy` if the queue is full.
        """
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

    async def _wait_for_turn(self, before: Run, run: Run) -> None:
        """Wait for the end of a run, if the policy allows that. Raises the errors of `admit`."""
        if answers_same(
            before.request, run.request
        ):  # a repeated request must not stop the first one, either
            raise Misuse(
                "This answer has been given already, and the agent works on it.",
                hint="An answer is only used once. Wait for its result.",
            )
        # a client may send the next request as soon as it has read the last event
        when_busy = self._find_policy(run)
        if when_busy == "refuse" and not before.is_ending:
            raise ThreadBusy(
                "This conversation is still being answered. Wait for the answer, or stop it.",
                hint="Set when_busy to queue or supersede to have it otherwise.",
            )
        if when_busy == "supersede":
            before.stop("superseded")
        ends = (before.ended, run.stop_requested)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self._check_stop(run)

    async def _wait_for_others(self, peers: Peers, thread: ThreadKey, run: Run) -> None:
        """Wait for another process's run in a thread, if the policy allows that."""
        try:
            while (before := await peers.find_run(thread)) is not None:
                when_busy = self._find_policy(run)
                if when_busy == "refuse" or before.run_id == run.request.run_id:
                    return  # only the store knows whether it is active, or the same run
                self._next[thread] = run
                with (
                    _supersede(peers, thread, before) if when_busy == "supersede" else nullcontext()
                ):
                    if (log := await peers.follow(thread, before)) is None:
                        return
                    await self._wait_for_end(log, run)
        finally:
            self._next.pop(thread, None)

    async def _wait_for_end(self, log: Log, run: Run) -> None:
        """Wait for the end of a log. Raises `Cancelled` or `Interrupted`."""
        end = asyncio.ensure_future(_read_to_end(log))
        await asyncio.wait((end, run.stop_requested), return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        self._check_stop(run)

    def _check_stop(self, run: Run) -> None:
        """Raise `Interrupted` if the server stops, and `Cancelled` if the run was stopped."""
        if self._runtime.is_closing:
            raise Interrupted("The server stopped before it could answer.")
        if run.stop_requested.done():
            raise run.build_cancellation()

    def _find_policy(self, run: Run) -> WhenBusy:
        return "queue" if run.request.is_v1 else self._when_busy


@contextmanager
def _supersede(peers: Peers, thread: ThreadKey, run: RunningRun) -> Generator[None]:
    """Keep trying to stop another process's run until that process can be reached."""
    task = asyncio.create_task(_stop(peers, thread, run), name="supersede")
    try:
        yield
    finally:
        task.cancel()


async def _stop(peers: Peers, thread: ThreadKey, run: RunningRun) -> None:
    while True:
        try:
            await peers.ask_owner(thread, "stop", run_id=run.run_id, reason="superseded")
            return
        except CopilotError:  # the outcome is unknown: the log shows whether it ended
            await asyncio.sleep(_PAUSE)


async def _read_to_end(log: Log) -> None:
    async with aclosing(log) as batches:
        async for _ in batches:
            pass
