"""Start, stop and follow runs. The only writer of a run's first and last event."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from contextvars import Context
from time import monotonic
from typing import Any, TypeVar

from copilot_runtime.actions.sources import Source, gather_actions
from copilot_runtime.errors import (
    Cancelled,
    ConfigurationFailed,
    CopilotError,
    ErrorReport,
    Interrupted,
    LimitExceeded,
    Misuse,
    RunStalled,
    report_of,
)
from copilot_runtime.events import Event, RunFailed, RunFinished, RunStarted
from copilot_runtime.hooks import Hooks, call, call_quietly
from copilot_runtime.interfaces import (
    START,
    Action,
    Agent,
    Agents,
    Batch,
    Bus,
    Caller,
    Cursor,
    Events,
    Journal,
    RunInput,
    Stage,
)
from copilot_runtime.messages import Message
from copilot_runtime.runtime.prepare import (
    Acting,
    Beginning,
    agent_of,
    is_cancelled,
    noted,
    prepared,
)
from copilot_runtime.runtime.report import report_to
from copilot_runtime.transcript import messages_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOG_KEPT = 30.0
"""Seconds for which those who were told of a run may still ask for a log that its thread has."""


class Runtime:
    """Drives each run in a task of its own, which ends before the runtime does.

    `chat` answers requests that name no agent. A bus that is a `Journal` keeps the runs of
    threads. Times are in seconds; `max_runs` of zero means any number at once. `grace` is how
    long `aclose` waits for what does not end.
    """

    def __init__(
        self,
        chat: Agent,
        agents: Agents,
        bus: Bus | Journal,
        *,
        sources: Sequence[Source] = (),
        stages: Sequence[Stage] = (),
        hooks: Hooks | None = None,
        acting: Acting | None = None,
        run_timeout: float = 600.0,
        max_runs: int = 0,
        grace: float = 10.0,
        ended: Callable[[RunInput], None] | None = None,
    ) -> None:
        self.chat = chat
        self.agents = agents if callable(agents) else dict(agents)
        self.bus = bus
        self.sources = tuple(sources)
        self.stages = tuple(stages)
        self.hooks = hooks or Hooks()
        self.acting = acting or Acting()
        self.run_timeout = run_timeout
        self.max_runs = max_runs
        self.grace = grace
        self.ended = ended
        self._starting: dict[str, Beginning] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[str] = set()
        self._closing = False
        self._attached: set[str] = set()
        self._spawned: set[asyncio.Task[Any]] = set()
        self._breaks: dict[str, Exception] = {}
        """Why runs are ended whose logs take no more."""
        self._forgetting: dict[str, asyncio.TimerHandle] = {}
        if hasattr(bus, "broken"):
            bus.broken = self._broken  # pyright: ignore[reportAttributeAccessIssue]

    def open(self) -> None:
        """Take runs again, after `aclose`."""
        self._closing = False

    async def agents_for(self, caller: Caller) -> Mapping[str, Agent]:
        """Return the agents this caller may talk to."""
        if not callable(self.agents):
            return self.agents
        deadline = asyncio.timeout(self.run_timeout)
        try:
            async with deadline:
                agents = await call(self.agents, caller)
        except TimeoutError as error:
            raise (self._stalled() if deadline.expired() else error) from None
        if not isinstance(agents, Mapping):
            raise ConfigurationFailed(
                f"The agents function returned a {type(agents).__name__}.",
                hint="It returns a mapping of names to agents.",
            )
        return agents

    async def agent(self, name: str | None, caller: Caller) -> Agent:
        """Return the agent of that name, or the plain chat. Raises `AgentNotFound`."""
        if name is None:
            return self.chat
        return agent_of(await self.agents_for(caller), name)

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the server's actions for this run, of which each name has one."""
        return await gather_actions(self.sources, run) if self.sources else []

    async def start(self, run: RunInput, agent: Agent | None = None) -> None:
        """Begin a run and return once its log exists. An `agent` given here answers it.

        Raises what can be known before it starts: an unknown agent, a run too many, an
        adapter that cannot answer, a refusal of the `before_request` hook.
        """
        began, log_id = monotonic(), run.log_id
        try:
            self._admit(log_id)
        except CopilotError as error:
            await report_to(self.hooks, error, run, began)
            raise
        beginning = self._starting[log_id] = Beginning()
        try:
            run, answering = await self._prepared(run, agent, beginning, began)
            await self._begin(run, began)
            if not run.detached:
                self._attached.add(log_id)
            task = self._spawn(
                self._drive(run, answering, began), f"run:{log_id}", beginning.context
            )
            self._tasks[log_id] = task
            await asyncio.sleep(0)  # a task cancelled before its first step ends without a word
        finally:
            del self._starting[log_id]
            beginning.over.set_result(None)
            if beginning.error is not None:
                self._broken(log_id, beginning.error)
            elif beginning.stopped.done():
                self.stop(log_id)

    def ending(self, log_id: str) -> bool:
        """Say whether a run has nothing more to do than to write its last event."""
        return log_id in self._ending

    def stop(self, log_id: str) -> bool:
        """End a run, and forget the log of an attached one. Never waits.

        Returns whether the run still went on.
        """
        if (beginning := self._starting.get(log_id)) is not None:
            beginning.stop()  # `start` ends it, once it can
            return True
        was_attached = log_id in self._attached
        self._attached.discard(log_id)
        task = self._tasks.get(log_id)
        if task is None:
            if was_attached:
                self._spawn(self.bus.drop(log_id), f"drop:{log_id}")
            return False
        if log_id in self._ending:  # its last event is on the way, and says how it ended
            return False
        if not task.cancelling():
            task.cancel()
        return True

    def follow(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Read a run's log from a cursor on, until its last event."""
        return self.bus.read(log_id, after)

    async def aclose(self) -> None:
        """Stop all runs; wait until each has written its last event and told the hooks.

        What has not ended after `grace` seconds is left behind.
        """
        self._closing = True
        for timer in self._forgetting.values():
            timer.cancel()
        self._forgetting.clear()
        for log_id in {*self._starting, *self._tasks}:
            self.stop(log_id)
        deadline = monotonic() + self.grace
        while work := [*self._spawned, *(one.over for one in self._starting.values())]:
            if (left := deadline - monotonic()) <= 0:
                self._leave_behind()
                return
            await asyncio.wait(work, timeout=left)

    def _leave_behind(self) -> None:
        for task in self._spawned:
            logger.error("%s does not end, and is left behind", task.get_name())
            # `asyncio.run` would wait for it without end
            asyncio._unregister_task(task)  # documented for the likes of us

    def _admit(self, log_id: str) -> None:
        """Raise when there is no place for a run, or it has one."""
        if self._closing:
            raise Interrupted("The server stopped before it could answer.")
        if log_id in self._tasks or log_id in self._starting:
            raise Misuse(
                f"The run {log_id!r} is already under way.",
                hint="Give each run an id of its own.",
            )
        if self.max_runs and len({*self._tasks, *self._starting}) >= self.max_runs:
            raise LimitExceeded(
                f"All {self.max_runs} places are taken. Please try again in a moment.",
                hint="Raise max_concurrent_runs in the settings, or add a machine.",
                status_code=429,
            )

    async def _prepared(
        self, run: RunInput, agent: Agent | None, beginning: Beginning, began: float
    ) -> tuple[RunInput, Agent]:
        """Ask whoever has a say in a run. They may never answer: nobody has to wait for them."""
        work = prepared(
            run,
            agent,
            self.hooks,
            self.chat,
            self.agents_for,
            self.acting,
            self.stages,
            self.sources,
        )
        task = self._spawn(work, f"prepare:{run.log_id}", beginning.context)
        task.add_done_callback(noted)
        try:
            waiting = (task, beginning.stopped)
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait(waiting, timeout=self.run_timeout, return_when=first)
            if beginning.stopped.done():
                raise Cancelled("The run was stopped before it began.")
            if not task.done():
                raise self._stalled()
            if task.cancelled():
                raise RuntimeError("What prepares a run was cancelled, and not by us.")
            return task.result()
        except Exception as error:
            await report_to(self.hooks, error, run, began)
            raise
        finally:
            task.cancel()

    async def _begin(self, run: RunInput, began: float) -> None:
        """Open the log of a run."""
        messages: Sequence[Message] = ()
        begun = False
        try:
            if run.persist and (begin := getattr(self.bus, "begin", None)):
                messages = await begin(run)
                begun = True
            first = RunStarted(
                run_id=run.run_id, thread_id=run.thread_id, messages=messages, user=run.user
            )
            await self.bus.append(run.log_id, first)
        except BaseException as error:
            if begun:  # its thread waits for the end
                self._spawn(self._abandon(run.log_id, report_of(error)), f"abandon:{run.log_id}")
            if isinstance(error, Exception):
                await report_to(self.hooks, error, run, began)
            raise

    async def _abandon(self, log_id: str, report: ErrorReport) -> None:
        await call_quietly(self.bus.append, log_id, RunFailed(error=report))

    async def _drive(self, run: RunInput, agent: Agent, began: float) -> None:
        last: RunFinished | RunFailed | None = None
        error: BaseException | None = None
        deadline = asyncio.timeout(self.run_timeout)
        try:
            async with deadline, aclosing(self._events(run, agent)) as events:
                append, log_id = self.bus.append, run.log_id
                finished = RunFinished()
                async for event in events:
                    if isinstance(event, RunFinished):
                        finished = event
                        break
                    await append(log_id, event)
            last = finished
        except TimeoutError as caught:
            error = self._stalled() if deadline.expired() else caught
            last = RunFailed(error=report_of(error))
        except asyncio.CancelledError as caught:
            error = self._breaks.get(run.log_id)
            if error is None:
                if is_cancelled():
                    raise
                error = caught  # the agent's own, and nobody stopped it
            last = RunFailed(error=report_of(error))
        except (Exception, SystemExit) as caught:  # an agent does not end the server
            error = caught
            last = RunFailed(error=report_of(error))
        finally:
            await self._end(run, last or self._stopped(), error, began)

    def _broken(self, log_id: str, error: Exception) -> None:
        """End a run whose log takes no more: its agent may be silent for long."""
        if (beginning := self._starting.get(log_id)) is not None:
            beginning.error = error
            return
        task = self._tasks.get(log_id)
        if task is not None and log_id not in self._ending and not task.cancelling():
            self._breaks[log_id] = error
            task.cancel()

    def _stalled(self) -> RunStalled:
        return RunStalled(f"The answer took longer than {self.run_timeout:g} seconds.")

    def _stopped(self) -> RunFailed:
        """Return the end of a run that somebody ended, or that ends with us."""
        if self._closing:
            return RunFailed(
                error=Interrupted("The server stopped before the answer did.").report()
            )
        return RunFailed(error=Cancelled("The run was stopped.").report())

    def _events(self, run: RunInput, agent: Agent) -> Events:
        events = agent.run(run)
        for stage in self.stages:
            events = stage(events, run)
        return events

    async def _end(
        self,
        run: RunInput,
        last: RunFinished | RunFailed,
        error: BaseException | None,
        began: float,
    ) -> None:
        self._ending.add(run.log_id)
        try:
            await self.bus.append(run.log_id, last)
        finally:
            self._tasks.pop(run.log_id, None)
            self._ending.discard(run.log_id)
            self._breaks.pop(run.log_id, None)
            if self.ended is not None:
                self.ended(run)
        await self._tell(run, last, error, began)
        if not run.detached and run.log_id not in self._attached:
            await self.bus.drop(run.log_id)
        elif run.detached and run.persist and not run.is_v1 and not self._closing:
            # v1 subscriptions come back to the log itself, all others to the thread
            loop = asyncio.get_running_loop()
            self._forgetting[run.log_id] = loop.call_later(_LOG_KEPT, self._forget, run.log_id)

    def _forget(self, log_id: str) -> None:
        del self._forgetting[log_id]
        self._spawn(self.bus.drop(log_id), f"drop:{log_id}")

    async def _tell(
        self,
        run: RunInput,
        last: RunFinished | RunFailed,
        error: BaseException | None,
        began: float,
    ) -> None:
        """Let the hooks know how a run ended: one of error, stop and after_request."""
        if error is not None:
            await report_to(self.hooks, error, run, began)
        elif isinstance(last, RunFailed):
            await call_quietly(self.hooks.stop, run)
        elif self.hooks.after_request is not None:
            await call_quietly(self.hooks.after_request, run, messages_of(await self._log(run)))

    def _spawn(
        self, work: Coroutine[Any, Any, T], name: str, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name, context=context)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    async def _log(self, run: RunInput) -> Sequence[Event]:
        return [event async for batch in self.bus.read(run.log_id) for event in batch.events]
