"""One run: its state, its end, and the ways to follow and to stop it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextvars import Context, copy_context
from time import monotonic
from typing import Literal, assert_never

from copilot_runtime.api.bus import START, Batch, Bus, Cursor
from copilot_runtime.api.current_run import RunSlot
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import STOPPED, Cancelled, NotFound
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.threads.log_ids import asks_same

RunState = Literal["starting", "running", "ending", "ended", "refused"]
"""A run is `starting` until it has a log, and `ending` while its last event is written. One that
is `refused` never had a log."""

StopReason = Literal["requested", "superseded", "deleted"]
"""Why a run is stopped: somebody asks for that, a newer question takes its place, or its thread is
deleted."""

Log = AsyncGenerator[Batch, None]
"""The events of a run in batches, to its end."""

_PATIENCE = 10.0
"""Seconds in which a cancelled agent may clean up. Then it is cancelled again."""

_RELEASED = RunInput(thread_id="", run_id="", messages=(), log_id="released")


class Run:
    """A run from its request to its end. Only the `Runtime` moves it from state to state."""

    def __init__(self, request: RunInput, bus: Bus, release: "Callable[[Run], None]") -> None:
        loop = asyncio.get_running_loop()
        self.request = request
        """As the client sent it, and then as the `before_request` hook returned it. Once the run
        has ended and only waits for its reader, nothing is left of it."""
        self.thread_id = request.thread_id
        self.log_id = request.log_id
        self.state: RunState = "starting"
        self.started: asyncio.Future[None] = loop.create_future()
        """Done when the run is no longer `starting`."""
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when the last event is in the log, or the run was refused."""
        self.stop_requested: asyncio.Future[StopReason] = loop.create_future()
        self.error: Exception | None = None
        """Why the log takes no more events."""
        self.context = copy_context()
        """What a hook sets here is there for the agent."""
        self.created_at = monotonic()
        self.slot = RunSlot(None)
        """What code of the agent sees of the run."""
        self.task: asyncio.Task[None] | None = None
        """Drives the agent and writes the log."""
        self.span: Span = NO_SPAN
        self.trace_id = ""
        """The trace of the run, also after it has ended; empty if it is not traced."""
        self.is_rewritten = False
        """Whether the readers of its thread have to be sent the conversation anew."""
        self.is_attached = False
        """Whether the request that started the run still needs its log."""
        self.is_cancelled = False
        """Whether the task was cancelled, because somebody stopped the run or the log failed."""
        self._cancel_timer: asyncio.TimerHandle | None = None
        self._bus = bus
        self._release = release

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return self.state not in ("ended", "refused")

    @property
    def is_ending(self) -> bool:
        """Whether the run has ended, or soon will: it was stopped, or writes its last event."""
        return self.state in ("ending", "ended", "refused") or self.stop_requested.done()

    def follow(self, after: Cursor = START) -> Log:
        """Read the log from a cursor on, until its last event. Raises `NotFound` without a log."""
        return self._bus.read(self.log_id, after)

    async def wait_for_log(self) -> Log | None:
        """Return the log, once there is one; None if there is none, or none any more."""
        await self.started
        try:
            return self.follow()
        except NotFound:
            return None

    def is_repeated_by(self, request: RunInput) -> bool:
        """Return whether the run was begun by the same request, which came again."""
        is_one_run = self.request.run_id == request.run_id and self.state != "refused"
        return is_one_run and asks_same(self.log_id, request.log_id)

    def stop(
        self,
        reason: StopReason = "requested",
        *,
        keep_log: bool = False,
        by_server: bool = False,
    ) -> bool:
        """End the run, and delete the log of an attached one. Never waits.

        Its readers are told the first reason. With `keep_log`, the log stays until the request
        has read it. `by_server` is whether the server ends, and nobody has stopped the run.
        Returns whether the run still went on.
        """
        if not self.stop_requested.done():
            self.stop_requested.set_result(reason)
        self.slot.is_stopped |= not by_server
        match self.state:
            case "starting":  # `Runtime.start` ends it, once it can
                return True
            case "running":
                self.is_attached &= keep_log
                self._cancel()
                return True
            case "ending":  # its last event says how it ended
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
        """Return the error of a run that was stopped: what its readers are told."""
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
        """End a run whose log takes no more events: its agent may be silent for long."""
        if self.state == "running" and not self.is_cancelled:
            self.error = error
            self._cancel()

    async def raise_cancellation(self) -> None:
        """Raise `CancelledError` after a cancellation that the agent caught."""
        if self.is_cancelled:
            await asyncio.sleep(0)  # raises one that has not been delivered yet
            raise asyncio.CancelledError

    def finish(self, state: Literal["ended", "refused"]) -> None:
        """Note that the last event is in the log, or that there will be no log."""
        self.state = state
        if self._cancel_timer is not None:
            self._cancel_timer.cancel()
        self.leave_starting()
        if not self.ended.done():
            self.ended.set_result(None)

    def leave_starting(self) -> None:
        """Note that the log exists, or never will."""
        if self.state == "starting":
            self.state = "running"
        if not self.started.done():
            self.started.set_result(None)

    def release_request(self) -> None:
        """Free what only the agent and the hooks needed.

        An attached run that nobody stops is in memory as long as the server.
        """
        self.request = _RELEASED
        self.span = NO_SPAN
        self.context = Context()
        self.task = None

    def _cancel(self) -> None:
        # not by `task.cancelling()`: anyio cancels a task for a moment to end a scope in it
        if not self.is_cancelled:
            self.is_cancelled = True
            self._cancel_task()

    def _cancel_task(self) -> None:
        """Cancel the task now, and again later if its agent caught that and goes on."""
        if self.task is not None and self.state == "running":
            self.task.cancel()
            loop = asyncio.get_running_loop()
            self._cancel_timer = loop.call_later(_PATIENCE, self._cancel_task)
