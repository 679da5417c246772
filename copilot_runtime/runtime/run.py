"""A run: its state machine, and the operations to follow and stop it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextvars import Context, copy_context
from time import monotonic
from typing import Literal, assert_never

from copilot_runtime.api.bus import START, Batch, Bus, Cursor
from copilot_runtime.api.run_input import RunInput, RunSlot
from copilot_runtime.base.errors import STOPPED, Cancelled, NotFound
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.threads.log_ids import asks_same

RunState = Literal["starting", "running", "ending", "ended", "refused"]
"""State of a run: `starting` until it has a log, `ending` while its last event is written, and
`refused` if it never had a log."""

StopReason = Literal["requested", "superseded", "deleted"]
"""Reason for stopping a run: a client's stop, a newer question, or the deletion of its thread."""

Log = AsyncGenerator[Batch, None]
"""The events of a run in batches, to its end."""

_CANCEL_GRACE_SECONDS = 10.0
"""Grace period for a cancelled agent to clean up, before the next cancellation."""

_RELEASED = RunInput(thread_id="", run_id="", messages=(), log_id="released")


class Run:
    """A run, from its request to its end. Only the `Runtime` changes its state."""

    def __init__(self, request: RunInput, bus: Bus, release: "Callable[[Run], None]") -> None:
        loop = asyncio.get_running_loop()
        self.request = request
        """The client's request, later as changed by the `before_request` hook. Cleared once an
        ended run only waits for its reader."""
        self.thread_id = request.thread_id
        self.log_id = request.log_id
        self.state: RunState = "starting"
        self.started: asyncio.Future[None] = loop.create_future()
        """Resolved when the run leaves the state `starting`."""
        self.ended: asyncio.Future[None] = loop.create_future()
        """Resolved when the last event is in the log, or the run was refused."""
        self.stop_requested: asyncio.Future[StopReason] = loop.create_future()
        self.error: Exception | None = None
        """The error for which the log accepts no more events, or `None`."""
        self.context = copy_context()
        """Context variables of the run; the agent sees those that a hook sets."""
        self.created_at = monotonic()
        self.slot = RunSlot(None)
        """The part of the run that agent code may access."""
        self.task: asyncio.Task[None] | None = None
        """The task that drives the agent and writes the log."""
        self.span: Span = NO_SPAN
        self.trace_id = ""
        """Trace identifier of the run, also after its end; empty if it is not traced."""
        self.is_rewritten = False
        """`True` if readers of the thread need a new snapshot of the conversation."""
        self.is_attached = False
        """`True` while the request that started the run still reads its log."""
        self.is_cancelled = False
        """`True` if the task was cancelled because of a stop or a failed log."""
        self._cancel_timer: asyncio.TimerHandle | None = None
        self._bus = bus
        self._release = release

    @property
    def is_active(self) -> bool:
        """`True` if the run has not ended."""
        return self.state not in ("ended", "refused")

    @property
    def is_ending(self) -> bool:
        """`True` if the run has ended, was stopped, or is writing its last event."""
        return self.state in ("ending", "ended", "refused") or self.stop_requested.done()

    def follow(self, after: Cursor = START) -> Log:
        """Yield the log from a cursor to its last event. Raises `NotFound` without a log."""
        return self._bus.read(self.log_id, after)

    async def wait_for_log(self) -> Log | None:
        """Return the log once it exists; `None` if the run was refused or its log is gone."""
        await self.started
        try:
            return self.follow()
        except NotFound:
            return None

    def is_repeated_by(self, request: RunInput) -> bool:
        """Return `True` if a request repeats the request that started this run."""
        is_one_run = self.request.run_id == request.run_id and self.state != "refused"
        return is_one_run and asks_same(self.log_id, request.log_id)

    def stop(
        self,
        reason: StopReason = "requested",
        *,
        keep_log: bool = False,
        by_server: bool = False,
    ) -> bool:
        """Stop the run, and delete the log of an attached run. Never blocks.

        Readers get the first reason. With `keep_log`, the log stays until the request has read it.
        `by_server` is `True` if the server stops, not a user. Returns `True` if the run was still
        active.
        """
        if not self.stop_requested.done():
            self.stop_requested.set_result(reason)
        self.slot.is_stopped |= not by_server
        match self.state:
            case "starting":  # `Runtime.start` ends it as soon as it can
                return True
            case "running":
                self.is_attached &= keep_log
                self._cancel()
                return True
            case "ending":  # its last event has the outcome
                self.is_attached &= keep_log
                return False
            case "ended" | "refused":
                if self.is_attached:
                    self.is_attached = False
                    self._release(self)
                return False
            case _:
                assert_never(self.state)

    def build_cancellation(self) -> Cancelled:
        """Return the error that readers of a stopped run get."""
        reason = self.stop_requested.result() if self.stop_requested.done() else "requested"
        match reason:
            case "superseded":
                return Cancelled("A newer question in this thread replaced this answer.")
            case "deleted":
                return Cancelled("The thread was deleted.")
            case "requested" if self.state in ("starting", "refused"):
                return Cancelled("The run was stopped before it began.")
            case "requested":
                return Cancelled(STOPPED.message)
            case _:
                assert_never(reason)

    def fail(self, error: Exception) -> None:
        """End a run whose log accepts no more events, even if its agent is silent."""
        if self.state == "running" and not self.is_cancelled:
            self.error = error
            self._cancel()

    async def raise_cancellation(self) -> None:
        """Raise `CancelledError` if the agent swallowed a cancellation."""
        if self.is_cancelled:
            await asyncio.sleep(0)  # raises a cancellation that has not been delivered yet
            raise asyncio.CancelledError

    def finish(self, state: Literal["ended", "refused"]) -> None:
        """Mark the run as ended: its last event is in the log, or it never had a log."""
        self.state = state
        if self._cancel_timer is not None:
            self._cancel_timer.cancel()
        self.leave_starting()
        if not self.ended.done():
            self.ended.set_result(None)

    def leave_starting(self) -> None:
        """Mark that the log exists, or never will."""
        if self.state == "starting":
            self.state = "running"
        if not self.started.done():
            self.started.set_result(None)

    def release_request(self) -> None:
        """Release the objects that only the agent and the hooks needed.

        An attached run that is never stopped stays in memory as long as the server.
        """
        self.request = _RELEASED
        self.span = NO_SPAN
        self.context = Context()
        self.task = None

    def _cancel(self) -> None:
        # not `task.cancelling()`: anyio cancels a task briefly to end a scope in it
        if not self.is_cancelled:
            self.is_cancelled = True
            self._cancel_task()

    def _cancel_task(self) -> None:
        """Cancel the task now, and again later if its agent swallows the cancellation."""
        if self.task is not None and self.state == "running":
            self.task.cancel()
            loop = asyncio.get_running_loop()
            self._cancel_timer = loop.call_later(_CANCEL_GRACE_SECONDS, self._cancel_task)
