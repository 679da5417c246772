"""Start, stop and follow runs. The only writer of a run's first and last event."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from contextvars import Context
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, TypeVar, cast

from copilot_runtime.actions.sources import Source, as_sources, gather_actions
from copilot_runtime.adapters.budget import settle_usage
from copilot_runtime.adapters.message_content import render_answer, render_question
from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import Agent, Agents, Middleware, StageFunction, SupportsRun
from copilot_runtime.api.argument_checks import as_stage, complete
from copilot_runtime.api.bus import START, Batch, Bus, Cursor, LogWriter
from copilot_runtime.api.events import (
    Event,
    Events,
    MessagesSnapshot,
    RunFailed,
    RunFinished,
    RunStarted,
)
from copilot_runtime.api.hooks import Hooks, call, call_quietly, trace_early_calls
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.retrieval import FileStore
from copilot_runtime.api.run_input import CURRENT_RUN, RunInput
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.concurrency import (
    convert_exits,
    has_running_loop,
    is_being_cancelled,
    retrieve_exception,
    run_to_end,
    wait_at_most,
)
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import (
    Cancelled,
    ConfigurationFailed,
    CopilotError,
    Interrupted,
    LimitExceeded,
    Misuse,
    RunStalled,
    build_error_report,
)
from copilot_runtime.base.expiry import ExpiryQueue
from copilot_runtime.base.formatting import format_count
from copilot_runtime.base.secrets import carry_properties
from copilot_runtime.runtime.observer import RunObserver, RunObservers
from copilot_runtime.runtime.page_policy import PagePolicy
from copilot_runtime.runtime.prepare import HandoffPolicy, PendingRun, RunPreparer, get_agent
from copilot_runtime.runtime.report import report_error
from copilot_runtime.runtime.run import Run
from copilot_runtime.runtime.thread_policy import ThreadPolicy
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.genai import end_run_span, name_agent, start_run_span
from copilot_runtime.telemetry.logs import (
    build_run_fields,
    reset_log_fields,
    set_log_fields,
    swap_log_fields,
)
from copilot_runtime.telemetry.span import set_current_span
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, Telemetry
from copilot_runtime.threads.log_ids import DuplicateRun
from copilot_runtime.threads.validation import ThreadConflict

logger = logging.getLogger(__name__)

T = TypeVar("T")

Wait = Callable[[], Awaitable[bool]]
"""Waits for the thread's turn. Returns `False` if it could not be acquired."""

_MOST_CONFLICTS = 5
"""Maximum number of times a run waits again after losing the race for its thread."""

_REPORTED_LATER = (DuplicateRun, ThreadConflict)
"""Errors of opening a log that the caller may still handle, so that they are not reported yet."""

_LOG_TTL = 30.0
"""Retention of an ended run's log, in seconds, for readers that are reconnecting."""


class Runtime:
    """Drives each run in its own task. All tasks end before the runtime does.

    `chat` answers requests that name no agent. Times are in seconds; `max_runs` of zero removes the
    limit of concurrent runs. `grace` is how long `aclose` waits for runs to end. The `observers`
    may refuse a run, and are called at its start and its end.
    """

    def __init__(
        self,
        chat: SupportsRun,
        agents: Agents,
        bus: Bus,
        *,
        sources: Sequence[Source] = (),
        stages: Sequence[StageFunction] = (),
        hooks: Hooks | None = None,
        handoff: HandoffPolicy | None = None,
        pages: PagePolicy | None = None,
        threads: ThreadPolicy | None = None,
        files: FileStore | None = None,
        middleware: Sequence[Middleware] = (),
        run_timeout: float = 600.0,
        max_runs: int = 0,
        grace: float = 10.0,
        telemetry: Telemetry = NO_TELEMETRY,
        observers: Sequence[RunObserver] = (),
    ) -> None:
        self.telemetry = telemetry
        self._observers = RunObservers(observers)
        self.chat = complete(Agent, chat)
        self.agents = agents if callable(agents) else _complete_agents(agents)
        self.bus = bus
        self.sources = [part for source in sources for part in as_sources(source)]
        self.stages = [as_stage(stage) for stage in stages]
        self.middleware = middleware
        self.hooks = hooks or Hooks()
        self.run_timeout = run_timeout
        self.max_runs = max_runs
        self.grace = grace
        self._threads = threads or ThreadPolicy()
        self._preparer = RunPreparer(
            chat=self.chat,
            agents=None if callable(self.agents) else self.agents,
            find_agents=self.agents_for,
            sources=self.sources,
            stages=self.stages,
            hooks=self.hooks,
            handoff=handoff or HandoffPolicy(),
            pages=pages or PagePolicy(),
            threads=self._threads,
            files=files,
            middleware=middleware,
        )
        self._runs: dict[str, Run] = {}
        """Active runs by `log_id`, and ended runs whose log a request still reads."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._old_logs = ExpiryQueue(_LOG_TTL, self._drop_log)
        self._deadlines = ExpiryQueue(run_timeout, self._stall)
        self.is_closing = False
        self.is_draining = False
        """`True` if the runtime will soon refuse runs: load balancers should avoid it."""

    def open(self) -> None:
        """Accept runs again after `aclose`."""
        self.is_closing = False

    def close_admission(self) -> None:
        """Refuse all further runs with `Interrupted`; active runs continue."""
        self.is_closing = True

    async def agents_for(self, caller: Caller) -> Mapping[str, Agent]:
        """Return the agents available to a caller, by name."""
        if not callable(self.agents):
            return self.agents
        deadline = asyncio.timeout(self.run_timeout)
        try:
            async with deadline:
                agents = await call(self.agents, caller)
        except TimeoutError as error:
            raise (self._build_stall_error() if deadline.expired() else error) from None
        if not isinstance(agents, Mapping):
            raise ConfigurationFailed(
                f"The agents function returned a {type(agents).__name__}.",
                hint="It returns a mapping of names to agents.",
            )
        return _complete_agents(agents)

    async def agent(self, name: str | None, caller: Caller) -> Agent:
        """Return the agent of that name, or the plain chat. Raises `AgentNotFound`."""
        if name is None:
            return self.chat
        return get_agent(await self.agents_for(caller), name)

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the server's actions for this run; their names are unique."""
        return await gather_actions(self.sources, run) if self.sources else []

    def create(self, request: RunInput) -> Run:
        """Return a run that has not been launched."""
        return Run(request, self.bus, self._release)

    async def start(self, request: RunInput, agent: SupportsRun | None = None) -> Run:
        """Start a run and return it once its log exists. A given `agent` answers it.

        Raises the errors that are known before the start: an unknown agent, an exceeded limit of
        runs, an adapter that cannot answer, a refusal of the `before_request` hook.
        """
        run = self.create(request)
        await self.launch(run, agent)
        return run

    async def launch(
        self, run: Run, agent: SupportsRun | None = None, wait: Wait | None = None
    ) -> None:
        """Launch a run that `create` returned, as `start` does.

        If another process started a run in the thread first, `wait` can wait for the thread's turn.
        """
        if self.telemetry.is_recording:
            self._start_span(run)
        fields = build_run_fields(run.request.thread_id, run.request.run_id, run.span)
        run.context.run(set_log_fields, fields)
        if run.request.properties:
            run.context.run(carry_properties, run.request.properties)
        token = swap_log_fields(fields)
        try:
            await self._launch(run, agent, wait)
        except BaseException as error:
            end_run_span(run.span, "refused", error)
            if not isinstance(error, DuplicateRun):
                self._observers.on_refusal(run, error)
            raise
        finally:
            reset_log_fields(token)
            if run.task is None and run.is_active:
                run.finish("refused")
            else:
                run.leave_starting()
                if run.stop_requested.done():
                    run.stop()

    def _start_span(self, run: Run) -> None:
        """Start the trace of a run; spans of hooks, agents and actions are its children."""
        request = run.request
        agent = self._find_agent(request)
        span = start_run_span(
            self.telemetry,
            agent=request.agent_name,
            thread_id=request.thread_id,
            run_id=request.run_id,
            protocol="graphql" if request.is_v1 else "agui",
            request_type=request.request_type,
            user=request.user,
            url=agent.url if agent is not None else "",
            provider=agent.provider if agent is not None else "",
            parent=request.parent,
        )
        if span.keeps_content:
            question = render_question(request.messages)
            span.set_content({semconv.INPUT_MESSAGES: question or None})
        run.span, run.trace_id = span, span.trace_id
        run.request = copy_with(request, span=span)
        run.context.run(set_current_span, span)
        trace_early_calls(span)

    def _find_agent(self, request: RunInput) -> Agent | None:
        """Return the agent of a request, as far as it is known before preparation."""
        if callable(self.agents) or request.agent is None:
            return None
        return self.agents.get(request.agent)

    async def _launch(self, run: Run, agent: SupportsRun | None, wait: Wait | None) -> None:
        try:
            self._check_start(run)
        except CopilotError as error:
            await report_error(self.hooks, error, run)
            raise
        self._runs[run.log_id] = run
        try:
            await self._ask_observers(run)
            pending, writer = await self._begin(run, agent, wait)
            run.is_attached = not run.request.detached
            run.slot.run, run.slot.budget = run.request, run.request.budget
            if run.request.persist:
                run.slot.wait_for_storage = partial(self.bus.wait_for_storage, run.log_id)
            run.context.run(CURRENT_RUN.set, run.slot)
            work = self._drive(run, pending.agent, writer)
            run.task = self._spawn(work, f"run:{run.log_id}", run.context)
        except BaseException:
            del self._runs[run.log_id]
            raise
        await asyncio.sleep(0)  # a task that is cancelled before its first step ends silently

    async def _begin(
        self, run: Run, agent: SupportsRun | None, wait: Wait | None
    ) -> tuple[PendingRun, LogWriter]:
        """Prepare a run and open its log; retry if another run of its thread was faster."""
        request = run.request
        for conflicts in count(1):
            pending = await self._prepare(run, agent)
            run.request, run.is_rewritten = pending.request, pending.is_rewritten
            if run.span.is_recording:
                name_agent(
                    run.span, run.request.agent_name, url=pending.url, provider=pending.provider
                )
            try:
                return pending, await self._open_log(run)
            except ThreadConflict:
                if wait is None or conflicts > _MOST_CONFLICTS or not await wait():
                    try:
                        # of two concurrent answers the second never counts, so it does not wait
                        await convert_exits(self._threads.confirm_answers(run.request))
                        raise
                    except Exception as error:
                        await report_error(self.hooks, error, run)
                        raise
                run.request = request
        raise AssertionError("a count has no end")

    async def authorize(self, request: RunInput) -> RunInput:
        """Check a request that is not a run, and return it as changed by the hook.

        Raises the errors that would prevent its caller from starting a run.
        """
        request.identity.require("runs:start")
        self._check_open()
        async with asyncio.timeout(self.run_timeout):
            return await convert_exits(self._preparer.authorize_run(request))

    def stop(self, log_id: str) -> bool:
        """Stop a run, and delete the log of an attached run. Never blocks.

        Returns `True` if the run was still active.
        """
        run = self._runs.get(log_id)
        return run is not None and run.stop()

    def follow(self, log_id: str, after: Cursor = START) -> AsyncGenerator[Batch, None]:
        """Yield the events of a run's log from a cursor to the end of the run."""
        return self.bus.read(log_id, after)

    async def open_log(self, log_id: str) -> AsyncGenerator[Batch, None]:
        """Return the log of a run from its start, once it exists. Raises `NotFound`."""
        if (run := self._runs.get(log_id)) is not None:
            await run.started
        return self.bus.read(log_id)

    async def aclose(self) -> None:
        """Stop all runs; wait until each has written its last event and called the hooks.

        Runs that have not ended after `grace` seconds, or when this is cancelled, are abandoned.
        """
        self.close_admission()
        self._old_logs.clear()
        self._deadlines.clear()
        if cut_off := self.active_runs():
            count = format_count(len(cut_off), "answer")
            logger.info("Cut off %s as %s", count, Interrupted.code)
        for run in cut_off:
            logger.debug("Cut off in thread %s: run %s", run.request.thread_id, run.request.run_id)
            run.stop(keep_log=True, by_server=True)
        deadline = monotonic() + self.grace
        try:
            while (work := self._unfinished_work()) and (left := deadline - monotonic()) > 0:
                await asyncio.wait(work, timeout=left)
        finally:
            self._abandon_tasks()

    def _unfinished_work(self) -> "list[asyncio.Future[Any]]":
        starting = (run.started for run in self.active_runs())
        return [*self._tasks, *(started for started in starting if not started.done())]

    def _abandon_tasks(self) -> None:
        for task in self._tasks:
            logger.error("%s does not end, and is abandoned", task.get_name())
            # `asyncio.run` would wait for it forever
            asyncio._unregister_task(task)  # documented for event-loop integrations like this
        self._tasks.clear()

    def active_runs(self) -> list[Run]:
        """Return the runs that have not ended."""
        return [run for run in self._runs.values() if run.is_active]

    def _check_start(self, run: Run) -> None:
        """Raise if the run limit is reached, the run is active, or the caller lacks permission."""
        run.request.identity.require("runs:start")
        self._check_open()
        if (other := self._runs.get(run.log_id)) is not None and other.is_active:
            raise Misuse(
                f"The run {run.log_id!r} is already active.",
                hint="Give each run an id of its own.",
            )
        if self.max_runs and len(self.active_runs()) >= self.max_runs:
            raise LimitExceeded(
                f"All {self.max_runs} run slots are in use. Please try again in a moment.",
                hint="Raise max_concurrent_runs in the settings, or add a machine.",
                status_code=429,
            )

    def _check_open(self) -> None:
        if self.is_closing:
            raise Interrupted("The server stopped before it could answer.")

    async def _ask_observers(self, run: Run) -> None:
        """Raise an observer's refusal of a run after reporting it to the `error` hook."""
        try:
            await self._observers.admit(run)
        except Exception as error:
            await report_error(self.hooks, error, run)
            raise

    async def _prepare(self, run: Run, agent: SupportsRun | None) -> PendingRun:
        """Prepare a run. A timeout or a stop ends the wait even if the preparation hangs."""
        try:
            prepare, request = self._preparer.prepare_run, run.request
            is_immediate = self._preparer.is_immediate(request, agent)
            work = convert_exits(prepare(request, agent, is_immediate=is_immediate))
            if is_immediate and not run.stop_requested.done():
                return run.context.run(run_to_end, work)
            return await self._prepare_in_task(run, work)
        except Exception as error:
            await report_error(self.hooks, error, run)
            raise

    async def _prepare_in_task(self, run: Run, work: Coroutine[Any, Any, PendingRun]) -> PendingRun:
        task = self._spawn(work, f"prepare:{run.log_id}", run.context)
        try:
            await wait_at_most(self.run_timeout, task, run.stop_requested)
            if run.stop_requested.done():
                raise run.build_cancellation()
            if not task.done():
                raise self._build_stall_error()
            if task.cancelled():
                raise RuntimeError("The preparation of a run was cancelled from outside.")
            return task.result()
        finally:
            if task.done():
                retrieve_exception(task)
            else:
                task.add_done_callback(retrieve_exception)
                task.cancel()
            del task  # otherwise the error's traceback keeps the request in memory

    async def _open_log(self, run: Run) -> LogWriter:
        """Open the log of a run and write its first event."""
        request, writer = run.request, None
        actions = request.actions if request.persist else ()
        try:
            writer = await convert_exits(self.bus.begin(request))
            await convert_exits(self._threads.confirm_answers(request))
            started = RunStarted(
                run_id=request.run_id,
                thread_id=request.thread_id,
                messages=writer.messages,
                user=request.user,
                server_actions=tuple(action.name for action in actions if not action.in_browser),
                click=request.click,
            )
            await convert_exits(writer.append(started))
            if run.is_rewritten:
                await convert_exits(writer.append(MessagesSnapshot(messages=request.messages)))
        except BaseException as error:
            if writer is not None and request.persist:  # the next run waits for its end
                last = RunFailed(error=build_error_report(error))
                self._spawn(call_quietly(writer.append, last), f"abandon:{run.log_id}")
            if isinstance(error, Exception) and not isinstance(error, _REPORTED_LATER):
                await report_error(self.hooks, error, run)
            raise
        self._observers.on_start(run, started)
        return writer

    async def _drive(self, run: Run, agent: Agent, writer: LogWriter) -> None:
        last: RunFinished | RunFailed | None = None
        error: BaseException | None = None
        writer.failed.add_done_callback(lambda failed: run.fail(failed.result()))
        self._deadlines.add(run.log_id)
        try:
            async with aclosing(self._events(run.request, agent)) as events:
                append = writer.append
                finished = RunFinished()
                async for event in events:
                    if run.is_cancelled:
                        break
                    if isinstance(event, RunFinished):
                        finished = event
                        break
                    await append(event)
            await run.raise_cancellation()
            last = finished
        except Cancelled as caught:  # the run was stopped on the remote agent's server
            last = RunFailed(error=caught.report())
        except asyncio.CancelledError as caught:
            error = run.error
            if error is None:
                if run.is_cancelled or is_being_cancelled():
                    raise
                error = caught  # raised by the agent itself, without a stop
            last = RunFailed(error=build_error_report(error))
        except BaseException as caught:  # an agent must not end the server
            error = caught
            last = RunFailed(error=build_error_report(error))
        finally:
            self._deadlines.remove(run.log_id)
            last = last or self._build_stop_event(run)
            try:
                if has_running_loop():  # otherwise it was abandoned, and is being garbage-collected
                    last, error = await self._end(run, writer, last, error)
            finally:
                run.slot.run, run.slot.budget = None, run.request.budget
                self._observers.on_end(run, last, is_lost=writer.is_lost)
                if run.span.is_recording:
                    end_run_span(run.span, _name_outcome(last), error)
                if run.is_attached:  # and stays in memory until its reader disconnects
                    run.release_request()

    def _stall(self, log_id: str) -> None:
        """End a run whose agent takes too long."""
        if (run := self._runs.get(log_id)) is not None:
            run.fail(self._build_stall_error())

    def _build_stall_error(self) -> RunStalled:
        return RunStalled(f"The answer took longer than {self.run_timeout:g} seconds.")

    def _build_stop_event(self, run: Run) -> RunFailed:
        """Return the last event of a run that was stopped or ends with the server."""
        if self.is_closing:
            return RunFailed(
                error=Interrupted("The server stopped before the answer did.").report()
            )
        return RunFailed(error=run.build_cancellation().report())

    def _events(self, run: RunInput, agent: Agent) -> Events:
        events = agent.run(run)
        if run.budget is not None:
            events = settle_usage(run.budget, events)
        for stage in self.stages:
            events = stage(events, run)
        return events

    async def _end(
        self,
        run: Run,
        writer: LogWriter,
        last: RunFinished | RunFailed,
        error: BaseException | None,
    ) -> tuple[RunFinished | RunFailed, BaseException | None]:
        """Write the last event. Returns the one that readers see: the log may refuse a success."""
        run.state = "ending"
        try:
            with suppress(CopilotError):  # the log accepts only its end
                for event in run.slot.closing_events:
                    await writer.append(event)
            await writer.append(last)
        finally:
            if not run.is_attached:
                del self._runs[run.log_id]
            run.finish("ended")
        if writer.failed.done() and isinstance(last, RunFinished):
            error = writer.failed.result()
            last = RunFailed(error=build_error_report(error))
        # at once: the log is deleted if its reader has disconnected
        if run.span.keeps_content:
            answer = fold_messages(await _read_log(run))
            reason = "stop" if isinstance(last, RunFinished) else None
            run.span.set_content({semconv.OUTPUT_MESSAGES: render_answer(answer, reason) or None})
        await self._call_end_hook(run, last, error)
        request = run.request
        if not request.detached and not run.is_attached:
            await self.bus.drop(run.log_id)
        elif request.detached and request.persist and not request.is_v1 and not self.is_closing:
            # v1 subscriptions reconnect to the log itself, all other clients to the thread
            self._old_logs.add(run.log_id)
        return last, error

    def _release(self, run: Run) -> None:
        """Remove an attached run that has ended, and delete its log."""
        if self._runs.get(run.log_id) is run:
            del self._runs[run.log_id]
            self._drop_log(run.log_id)

    def _drop_log(self, log_id: str) -> None:
        work = self.bus.drop(log_id)
        if self.bus.drops_at_once:
            run_to_end(work)
        else:
            self._spawn(work, f"drop:{log_id}")

    async def _call_end_hook(
        self, run: Run, last: RunFinished | RunFailed, error: BaseException | None
    ) -> None:
        """Call the hook for the outcome of a run: `error`, `stop` or `after_request`."""
        if error is not None:
            await report_error(self.hooks, error, run)
        elif isinstance(last, RunFailed):
            await call_quietly(self.hooks.stop, run.request, name="stop", parent=run.span)
        elif self.hooks.after_request is not None:
            events = await _read_log(run)
            await call_quietly(
                self.hooks.after_request,
                run.request,
                fold_messages(events),
                name="after_request",
                parent=run.span,
            )

    def _spawn(
        self, work: Coroutine[Any, Any, T], name: str, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _complete_agents(agents: Mapping[str, SupportsRun]) -> Mapping[str, Agent]:
    if all(isinstance(agent, Agent) for agent in agents.values()):
        return cast("Mapping[str, Agent]", agents)  # the mapping may be more than a plain dict
    return {name: complete(Agent, agent) for name, agent in agents.items()}


async def _read_log(run: Run) -> Sequence[Event]:
    return [event async for batch in run.follow() for event in batch.events]


def _name_outcome(last: RunFinished | RunFailed) -> str:
    """Return the outcome of a run for metrics: `finished`, `stopped` or `failed`."""
    if isinstance(last, RunFinished):
        return "finished"
    return "stopped" if last.error.code == Cancelled.code else "failed"
