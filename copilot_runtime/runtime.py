"""Start, stop and follow runs. The only writer of a run's first and last event."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from time import monotonic
from typing import Any

from copilot_runtime.actions.frontend import Source, gather, offered
from copilot_runtime.errors import (
    AgentNotFound,
    Cancelled,
    ConfigurationFailed,
    CopilotError,
    ErrorContext,
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
from copilot_runtime.transcript import messages_of

logger = logging.getLogger(__name__)


class Runtime:
    """Drives each run in a task of its own, which ends before the runtime does.

    `chat` answers requests that name no agent. A bus that is a `Journal` keeps the runs of
    threads. Times are in seconds; `max_runs` of zero means any number at once.
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
        run_timeout: float = 600.0,
        max_runs: int = 0,
        ended: Callable[[RunInput], None] | None = None,
    ) -> None:
        self.chat = chat
        self.agents = agents if callable(agents) else dict(agents)
        self.bus = bus
        self.sources = tuple(sources)
        self.stages = tuple(stages)
        self.hooks = hooks or Hooks()
        self.run_timeout = run_timeout
        self.max_runs = max_runs
        self.ended = ended
        self._starting: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[str] = set()
        self._closing = False
        self._attached: set[str] = set()
        self._spawned: set[asyncio.Task[None]] = set()

    async def agents_for(self, caller: Caller) -> Mapping[str, Agent]:
        """Return the agents this caller may talk to."""
        return await call(self.agents, caller) if callable(self.agents) else self.agents

    async def agent(self, name: str | None, caller: Caller) -> Agent:
        """Return the agent of that name, or the plain chat. Raises `AgentNotFound`."""
        if name is None:
            return self.chat
        agents = await self.agents_for(caller)
        try:
            return agents[name]
        except KeyError:
            raise AgentNotFound(name, agents) from None

    async def start(self, run: RunInput) -> None:
        """Begin a run and return once its log exists.

        Raises what can be known before it starts: an unknown agent, a run too many, an
        adapter that cannot answer, a refusal of the `before_request` hook.
        """
        began, key = monotonic(), run.key
        try:
            self._admit(key)
        except CopilotError as error:
            await self._report(error, run, began)
            raise
        try:
            run, agent = await self._prepared(run, began)
            await self._begin(run, began)
            if not run.detached:
                self._attached.add(key)
            task = self._spawn(self._drive(run, agent, began), f"run:{key}")
            self._tasks[key] = task
            await asyncio.sleep(0)  # a task cancelled before its first step ends without a word
            if key not in self._starting:
                task.cancel()
        finally:
            self._starting.discard(key)

    def ending(self, key: str) -> bool:
        """Say whether a run has nothing more to do than to write its last event."""
        return key in self._ending

    def stop(self, key: str) -> bool:
        """End a run, and forget the log of an attached one. Never waits.

        Returns whether the run still went on.
        """
        was_starting = key in self._starting  # then `start` ends it, once it can
        self._starting.discard(key)
        was_attached = key in self._attached
        self._attached.discard(key)
        task = self._tasks.get(key)
        if task is None:
            if was_attached:
                self._spawn(self.bus.drop(key), f"drop:{key}")
            return False
        if not was_starting and not task.cancelling():
            task.cancel()
        return True

    def follow(self, key: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Read a run's log from a cursor on, until its last event."""
        return self.bus.read(key, after)

    async def aclose(self) -> None:
        """Stop all runs; wait until each has written its last event and told the hooks."""
        self._closing = True
        try:
            for key in [*self._tasks]:
                self.stop(key)
            await asyncio.gather(*self._spawned, return_exceptions=True)
        finally:
            self._closing = False  # an application may start again

    def _admit(self, key: str) -> None:
        """Take a place for a run. Raises when there is none, or the run has one."""
        if key in self._tasks or key in self._starting:
            raise Misuse(
                f"The run {key!r} is already under way.",
                hint="Give each run an id of its own.",
            )
        if self.max_runs and len({*self._tasks, *self._starting}) >= self.max_runs:
            raise LimitExceeded(
                f"All {self.max_runs} places are taken. Please try again in a moment.",
                hint="Raise max_concurrent_runs in the settings, or add a machine.",
                status_code=429,
            )
        self._starting.add(key)

    async def _prepared(self, run: RunInput, began: float) -> tuple[RunInput, Agent]:
        try:
            prepared, agent = await self._prepare(run)
            if run.key not in self._starting:
                raise Cancelled("The run was stopped before it began.")
        except Exception as error:
            await self._report(error, run, began)
            raise
        return prepared, agent

    async def _prepare(self, run: RunInput) -> tuple[RunInput, Agent]:
        if self.hooks.before_request is not None:
            run = await self._asked(run)
        agent = await self.agent(run.agent, Caller(user=run.user, headers=run.headers))
        for part in (*self.stages, agent):
            if check := getattr(part, "check", None):
                check(run)
        # after the hook, so that actions may depend on what it verified
        server = await gather(self.sources, run) if self.sources else []
        if run.agent is not None:
            run = replace(run, actions=offered(server, run.actions, for_agent=True))
        elif server:
            run = replace(run, actions=[*server, *run.actions])
        return run, agent

    async def _asked(self, run: RunInput) -> RunInput:
        """Return the run as the `before_request` hook wants it."""
        changed = await call(self.hooks.before_request, run)
        if changed is None:
            return run
        if not isinstance(changed, RunInput):
            raise ConfigurationFailed(
                f"The before_request hook returned a {type(changed).__name__}.",
                hint="It returns None, or a RunInput: dataclasses.replace(run, ...).",
            )
        # what the transport knows it by
        mine = {"run_id": run.run_id, "log": run.log, "thread_id": run.thread_id}
        return replace(changed, **mine, user=run.user, kept=run.kept)

    async def _begin(self, run: RunInput, began: float) -> None:
        """Open the log of a run."""
        messages: Sequence[Message] = ()
        begun = False
        try:
            if run.kept and (begin := getattr(self.bus, "begin", None)):
                messages = await begin(run)
                begun = True
            first = RunStarted(
                run_id=run.run_id, thread_id=run.thread_id, messages=messages, user=run.user
            )
            await self.bus.append(run.key, first)
        except BaseException as error:
            if begun:  # its thread waits for the end
                self._spawn(self._abandon(run.key, report_of(error)), f"abandon:{run.key}")
            if isinstance(error, Exception):
                await self._report(error, run, began)
            raise

    async def _abandon(self, key: str, report: ErrorReport) -> None:
        await call_quietly(self.bus.append, key, RunFailed(error=report))

    async def _drive(self, run: RunInput, agent: Agent, began: float) -> None:
        last: RunFinished | RunFailed | None = None
        error: BaseException | None = None
        deadline = asyncio.timeout(self.run_timeout)
        try:
            async with deadline, aclosing(self._events(run, agent)) as events:
                append, key = self.bus.append, run.key
                finished = RunFinished()
                async for event in events:
                    if isinstance(event, RunFinished):
                        finished = event
                        break
                    await append(key, event)
            last = finished
        except TimeoutError as caught:
            error = caught
            if deadline.expired():
                error = RunStalled(f"The answer took longer than {self.run_timeout:g} seconds.")
            last = RunFailed(error=report_of(error))
        except Exception as caught:
            error = caught
            last = RunFailed(error=report_of(error))
        finally:
            await self._end(run, last or self._stopped(), error, began)

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
        self._ending.add(run.key)
        try:
            await self.bus.append(run.key, last)
        finally:
            self._tasks.pop(run.key, None)
            self._ending.discard(run.key)
            if self.ended is not None:
                self.ended(run)
        await self._tell(run, last, error, began)
        if not run.detached and run.key not in self._attached:
            await self.bus.drop(run.key)

    async def _tell(
        self,
        run: RunInput,
        last: RunFinished | RunFailed,
        error: BaseException | None,
        began: float,
    ) -> None:
        """Let the hooks know how a run ended: one of error, stop and after_request."""
        if error is not None:
            await self._report(error, run, began)
        elif isinstance(last, RunFailed):
            await call_quietly(self.hooks.stop, run)
        elif self.hooks.after_request is not None:
            await call_quietly(self.hooks.after_request, run, messages_of(await self._log(run)))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    async def _log(self, run: RunInput) -> Sequence[Event]:
        return [event async for batch in self.bus.read(run.key) for event in batch.events]

    async def _report(self, error: BaseException, run: RunInput, began: float) -> None:
        """Tell the log and the `error` hook everything; the client hears only the report."""
        context = ErrorContext(
            thread_id=run.thread_id,
            run_id=run.run_id,
            operation=run.operation,
            agent=run.agent,
            node=run.node,
            url=run.url,
            latency=monotonic() - began,
            source="agent" if run.agent else "runtime",
            cause=error.__cause__,
        )
        if isinstance(error, CopilotError):
            hint = f" ({error.hint})" if error.hint else ""
            logger.warning("Run %s: %s%s", run.run_id, error.message, hint)
        else:
            logger.error("Run %s failed", run.run_id, exc_info=error)
        await call_quietly(self.hooks.error, error, context)
