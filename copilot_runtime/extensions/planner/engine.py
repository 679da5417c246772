"""The engine that runs plans. Each step is stored before it is taken, so a crash loses none."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from time import time

from copilot_runtime.api.messages import new_id
from copilot_runtime.base.errors import (
    CopilotError,
    Misuse,
    NotFound,
    StoreFailed,
    StoreReadOnly,
)
from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.base.outages import log_failures
from copilot_runtime.extensions.planner.events import (
    ANSWERS,
    ROOT,
    Answer,
    PlanCreated,
    PlanEntry,
    QuestionAnswered,
    StopRequested,
    TaskReopened,
)
from copilot_runtime.extensions.planner.feed import Queue, TaskText
from copilot_runtime.extensions.planner.log import (
    MAX_DELETIONS,
    Lease,
    LeaseLost,
    PlanCommand,
    PlanLog,
    PlanQuery,
    PlanSummary,
    build_lost_error,
)
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.roles import Elector, Supervisor, Worker
from copilot_runtime.extensions.planner.run import (
    OpenBudget,
    PlanRun,
    build_closed_error,
    ends_plan,
)
from copilot_runtime.extensions.planner.slots import PlanSlots
from copilot_runtime.telemetry import NO_TELEMETRY, Telemetry, find_current_span, semconv
from copilot_runtime.threads.store import ThreadKey

logger = logging.getLogger(__name__)

_RESTART = 5.0
"""Seconds until a plan whose store failed is restarted."""

_RECOVERY = 2.0
"""Seconds between scans for plans of dead servers."""

_DELETION = 3600.0
"""Seconds between deletions of old plans."""

_CLOSE_TIMEOUT = 10.0
"""Maximum seconds to wait at shutdown for tasks that a database may block."""

_POLL = 0.5
"""Seconds between polls of a plan that runs on another server."""

_COMMAND_POLLS = 10
"""Number of polls for the effect of a command that another server carries out."""

EntryListener = Callable[[Plan, PlanEntry], None]
"""Called on the event loop for each entry of a plan that runs on this server, after the entry was
stored and applied. It must not block; an exception is logged."""


class PlanEngine:
    """Accepts plans, runs them concurrently, and takes over those of dead servers.

    Args:
    log: The store of plans.
    elector: Elects the assistant of a task.
    worker: Performs tasks that have no subtasks.
    supervisor: Evaluates outputs, and aggregates those of subtasks.
    clock: Returns seconds since 1970.
    on_end: Called with the id of each plan that no longer runs here.
    retention: Seconds after which an ended plan is deleted; 0 for never.
    telemetry: Traces and counts plans. A plan submitted within a span uses the span's telemetry.
    """

    def __init__(
        self,
        log: PlanLog,
        elector: Elector,
        worker: Worker,
        supervisor: Supervisor,
        *,
        clock: Callable[[], float] = time,
        on_end: Callable[[str], None] | None = None,
        retention: float = 0,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.log = log
        self.elector = elector
        self.worker = worker
        self.supervisor = supervisor
        self.clock = clock
        self.telemetry = telemetry
        self.retention = retention
        self.slots = PlanSlots()
        self.open_budget: OpenBudget | None = None
        self._on_end = on_end
        self._listeners: tuple[EntryListener, ...] = ()
        self._runs: dict[str, PlanRun] = {}
        self._replaced: set[asyncio.Task[None]] = set()
        """Ended runs of plans that another server took over and that have been restarted here."""
        self._restarts: dict[str, asyncio.Task[None]] = {}
        self.failures: dict[str, CopilotError] = {}
        """Errors that suspend plans until their store is available, by plan id; "" is the store."""
        self._watchers: list[asyncio.Task[None]] = []
        telemetry.observe(semconv.PLANS_OPEN, lambda: len(self._runs))
        telemetry.observe(semconv.PLAN_QUESTIONS_OPEN, self._count_questions)

    def listen(self, listener: EntryListener) -> Callable[[], None]:
        """Add a listener for all entries of plans that run here; return a function that
        removes it.
        """
        self._listeners = (*self._listeners, listener)

        def end() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

    def notify(self, plan: Plan, entry: PlanEntry) -> None:
        """Pass an entry that the plan has applied to all listeners."""
        self.slots.update(plan)
        for listener in self._listeners:
            with log_failures(logger, "A listener of plans failed"):
                listener(plan, entry)

    async def open(self) -> None:
        """Open the log, and resume the plans that no server runs.

        On a full disk, that is tried again in the background. Raises `StoreFailed` otherwise.
        """
        try:
            await self.log.open()
            await self.recover()
        except StoreReadOnly as error:
            self._note_failure(error)
        if not self._watchers:
            self._watchers = [
                asyncio.create_task(self._watch(), name="plans:watch", context=Context()),
                asyncio.create_task(
                    self._watch_commands(), name="plans:commands", context=Context()
                ),
                asyncio.create_task(self._delete_old(), name="plans:delete", context=Context()),
            ]

    async def recover(self) -> Sequence[str]:
        """Take over the plans of dead servers; return their ids."""
        leases = await self.log.claim()
        for lease in leases:
            if (restart := self._restarts.pop(lease.plan_id, None)) is not None:
                restart.cancel()  # another server took it over and has died
                self.failures.pop(lease.plan_id, None)
            try:
                self._launch(await self._load(lease.plan_id), lease)
            except StoreFailed as error:
                self._postpone(lease, error)
            except CopilotError as error:
                logger.error("The plan %s cannot go on: %s", lease.plan_id, error.message)
            except Exception:  # the other plans are claimed as well and must be launched
                logger.exception("The plan %s cannot go on.", lease.plan_id)
        return [lease.plan_id for lease in leases]

    async def submit(self, created: PlanCreated, *, plan_id: str | None = None) -> str:
        """Store a plan, start it, and return its id."""
        plan = Plan(plan_id or new_id())
        span = find_current_span()
        if span.telemetry is not None and not created.traceparent:
            self.telemetry = span.telemetry
            created = replace(created, traceparent=span.context.traceparent)
        summary = PlanSummary(
            id=plan.id,
            user=created.user,
            thread_id=created.thread_id,
            created_at=self.clock(),
            updated_at=self.clock(),
            status="running",
            title=created.request[:200],
        )
        lease, entries = await self.log.create(summary, [created])
        self._begin(plan, lease, entries)
        return plan.id

    async def get(self, plan_id: str) -> Plan:
        """Return the current state of a plan. Raises `NotFound`."""
        run = self._runs.get(plan_id)
        return run.plan if run is not None else await self._load(plan_id)

    async def follow(
        self, plan_id: str, after: int = 0
    ) -> AsyncGenerator[PlanEntry | TaskText, None]:
        """Yield all entries after a number, then live entries and text, until the plan ends.

        Raises `NotFound`.
        """
        queue: Queue | None = None
        run = self._runs.get(plan_id)
        if run is not None:
            queue = run.feed.subscribe()
        try:
            while True:
                is_over = (await self.log.find(plan_id)).is_over
                entries = await self.log.read(plan_id, after)
                for entry in entries:
                    if queue is not None and run is not None and entry.number > run.plan.number:
                        break  # the queue will have it
                    after = entry.number
                    yield entry
                    if ends_plan(entry) and entry is entries[-1]:  # it was not retried
                        return
                if queue is None and is_over and not entries:
                    return
                if queue is None:
                    await asyncio.sleep(_POLL)
                    if (run := self._runs.get(plan_id)) is not None:  # it runs here now
                        queue = run.feed.subscribe()
                    continue
                while (item := await queue.get()) is not None:
                    if isinstance(item, PlanEntry):
                        if item.number <= after:
                            continue
                        after = item.number
                    yield item
                    if isinstance(item, PlanEntry) and ends_plan(item):
                        return
                queue = None  # it no longer runs on this server
        finally:
            if run is not None and queue is not None:
                run.feed.unsubscribe(queue)

    async def answer(
        self,
        plan_id: str,
        question_id: str,
        answer: Answer,
        *,
        note: str = "",
        user: str | None = None,
        payload: JsonValue = None,
    ) -> None:
        """Answer an open question. Raises `NotFound`, or `Misuse` if the answer does not fit.

        `payload` is the response to the assistant, if it asked the question.
        """
        plan = await self.get(plan_id)
        question = plan.questions.get(question_id)
        if question is None:
            raise build_closed_error(question_id)
        if answer not in ANSWERS[question.kind]:
            raise Misuse(
                f"The answer {answer[:100]!r} does not fit. Answer with one of: "
                f"{', '.join(ANSWERS[question.kind])}."
            )
        event = QuestionAnswered(
            question_id=question_id, answer=answer, note=note, user=user, payload=payload
        )
        if (run := self._runs.get(plan_id)) is not None:
            await run.answer(event)
            return
        outcome = await self._command(
            plan_id, plan.number, event, lambda entry: _answers(entry, event)
        )
        if outcome is not None and outcome.event != event:  # it was answered concurrently
            raise build_closed_error(question_id)

    async def stop(self, plan_id: str, task_id: str = ROOT) -> None:
        """Stop a task or the whole plan; no effect if it has ended. Raises `NotFound`."""
        plan = await self.get(plan_id)
        state = _find_task(plan, task_id)
        if (run := self._runs.get(plan_id)) is not None:
            await run.stop(task_id)
        elif not (state.is_over or plan.is_over):
            event = StopRequested(task_id=task_id)
            await self._command(plan_id, plan.number, event, lambda entry: entry.event == event)

    async def retry(self, plan_id: str, task_id: str = ROOT) -> None:
        """Retry a task that did not finish, and the tasks that were skipped for it.

        For the plan itself, retry all unfinished tasks. Raises `NotFound`, or `Misuse` if the plan
        has not ended or the task has finished.
        """
        if (run := self._runs.get(plan_id)) is not None and run.plan.is_over:
            await asyncio.wait([run.ended])
        plan = await self.get(plan_id)
        check_retry(plan, task_id)
        lease, entries = await self.log.claim_plan(
            plan_id, plan.number + 1, [TaskReopened(task_id=task_id)]
        )
        self._begin(plan, lease, entries)

    async def forget_thread(self, thread: ThreadKey) -> None:
        """Stop the running plans of a thread, and delete all its ended plans."""
        query = PlanQuery(user=thread.owner or None, thread_id=thread.id, limit=MAX_DELETIONS)
        while plans := await self.log.list_plans(query):
            for summary in plans:
                if not summary.is_over:
                    await self.stop(summary.id)
                    if (run := self._runs.get(summary.id)) is not None:
                        await asyncio.wait([run.ended], timeout=_COMMAND_POLLS * _POLL)
            query = replace(query, before=plans[-1].sort_key)
        while await self.log.delete_plans(thread=thread):
            pass

    async def aclose(self) -> None:
        """Suspend all plans: the next server that opens the log resumes them."""
        runs = [*self._runs.values()]
        for run in runs:
            run.cancel()
        restarts = [*self._restarts.values(), *self._watchers]
        self._watchers.clear()
        for restart in restarts:
            restart.cancel()
        tasks = [*(run.ended for run in runs), *self._replaced, *restarts]
        if tasks:
            done, _ = await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT)
            await asyncio.gather(*done, return_exceptions=True)  # retrieve their exceptions
        await self.log.aclose()

    def forget(self, run: PlanRun, failure: LeaseLost | StoreFailed | None) -> None:
        """Remove a run that has ended here; restart it later if its store failed."""
        if self._runs.get(run.plan.id) is not run:  # the plan was restarted here meanwhile
            return
        del self._runs[run.plan.id]
        self.slots.drop(run.plan.id)
        if self._on_end is not None:
            self._on_end(run.plan.id)
        match failure:
            case None:
                pass
            case LeaseLost():
                logger.info("Another server carries out the plan %s now.", run.plan.id)
            case StoreFailed():
                self._postpone(run.lease, failure)

    def _count_questions(self) -> int:
        return sum(len(run.plan.questions) for run in self._runs.values())

    async def _watch(self) -> None:
        """Take over plans of servers that die while this one runs."""
        while True:
            await asyncio.sleep(_RECOVERY)
            try:
                await self._drop_stale()
                await self.recover()
                self.failures.pop("", None)
            except CopilotError as error:
                self._note_failure(error)
            except Exception:  # the loop must survive, or it would never take over a plan again
                logger.exception("Plans of other servers cannot be looked for.")

    def _note_failure(self, error: CopilotError) -> None:
        if "" not in self.failures:
            logger.warning("Plans of other servers cannot be looked for: %s", error.message)
        self.failures[""] = error

    async def _delete_old(self) -> None:
        """Delete plans past their retention, once an hour."""
        while self.retention:
            count = 0
            with log_failures(logger, "Old plans were not deleted"):
                while number := await self.log.delete_plans(before=self.clock() - self.retention):
                    count += number
            if count:
                logger.info(
                    "Deleted %d plans that were over for %d seconds.", count, self.retention
                )
            await asyncio.sleep(min(self.retention, _DELETION))

    async def _watch_commands(self) -> None:
        """Carry out commands for plans of this server that other servers accepted."""
        while True:
            await asyncio.sleep(_POLL)
            if not self._runs:
                continue
            with log_failures(logger, "Commands for plans cannot be read"):
                for command in await self.log.read_commands():
                    await self._carry_out(command)

    async def _carry_out(self, command: PlanCommand) -> None:
        run = self._runs.get(command.plan_id)
        if run is None and not (await self.log.find(command.plan_id)).is_over:
            return  # it is restarted soon
        if run is not None:
            with suppress(NotFound):  # it was answered or has ended meanwhile
                match command.event:
                    case QuestionAnswered():
                        await run.answer(command.event)
                    case StopRequested():
                        await run.stop(command.event.task_id)
        await self.log.remove_command(command.id)

    async def _command(
        self,
        plan_id: str,
        after: int,
        event: StopRequested | QuestionAnswered,
        is_done: Callable[[PlanEntry], bool],
    ) -> PlanEntry | None:
        """Store a command for the server that runs the plan, and wait for its effect.

        Returns the entry for which `is_done` is true or that ended the plan, or `None` if there was
        none in time: the command stays stored, and is carried out later.
        """
        await self.log.add_command(plan_id, event)
        for _ in range(_COMMAND_POLLS):
            for entry in await self.log.read(plan_id, after):
                if is_done(entry) or ends_plan(entry):
                    return entry
                after = entry.number
            await asyncio.sleep(_POLL)
        return None

    async def _drop_stale(self) -> None:
        """End runs of plans that another server took over because it considered this one dead."""
        runs = {run.lease: run for run in self._runs.values()}
        for lease in await self.log.find_stale([*runs]) if runs else ():
            runs[lease].fail(build_lost_error(lease.plan_id))

    def _postpone(self, lease: Lease, failure: StoreFailed) -> None:
        """Restart a plan when its store is available again."""
        logger.error("The plan %s cannot go on: %s", lease.plan_id, failure.message)
        self.failures[lease.plan_id] = failure
        self._restarts[lease.plan_id] = asyncio.create_task(
            self._restart(lease), name=f"plan:{lease.plan_id}:restart", context=Context()
        )

    async def _restart(self, lease: Lease) -> None:
        plan = None
        while plan is None:
            await asyncio.sleep(_RESTART)
            try:
                # the new lease refuses pending writes of the old one, so that their numbers are
                # free
                lease = await self.log.renew(lease)
                plan = await self._load(lease.plan_id)
            except StoreFailed as error:
                self.failures[lease.plan_id] = error
            except CopilotError as error:
                logger.error("The plan %s does not go on here: %s", lease.plan_id, error.message)
                break
        del self._restarts[lease.plan_id], self.failures[lease.plan_id]
        if plan is not None:
            self._launch(plan, lease)

    async def _load(self, plan_id: str) -> Plan:
        plan = Plan(plan_id)
        for entry in await self.log.read(plan_id):
            try:
                plan.apply(entry)
            except Exception as error:  # written by a newer version, or corrupted
                raise CopilotError(
                    f"The plan {plan_id} cannot be read at its event {entry.number}.",
                    hint="A newer version may have written it, or its store was changed.",
                ) from error
        return plan

    def _begin(self, plan: Plan, lease: Lease, entries: Sequence[PlanEntry]) -> None:
        for entry in entries:
            plan.apply(entry)
            self.notify(plan, entry)
        self._launch(plan, lease)

    def _launch(self, plan: Plan, lease: Lease) -> None:
        self.slots.update(plan)
        run = PlanRun(self, plan, lease)
        before, self._runs[plan.id] = self._runs.get(plan.id), run
        if before is not None:
            before.cancel()
            self._replaced.add(before.ended)
            before.ended.add_done_callback(self._replaced.discard)
        run.start()


def check_retry(plan: Plan, task_id: str) -> None:
    """Raise `NotFound` or `Misuse` if a task cannot be retried."""
    state = _find_task(plan, task_id)
    if not plan.is_over:
        raise Misuse("The plan is not over yet.", hint="Stop it first, or wait for its end.")
    if state.status == "finished":
        raise Misuse(f"The task {state.task.name!r} has finished.")


def _find_task(plan: Plan, task_id: str) -> TaskState:
    try:
        return plan.tasks[task_id]
    except KeyError:
        raise NotFound(f"The plan has no task {task_id[:100]!r}.") from None


def _answers(entry: PlanEntry, event: QuestionAnswered) -> bool:
    """Return `True` if an entry is an answer to the same question."""
    return (
        isinstance(entry.event, QuestionAnswered) and entry.event.question_id == event.question_id
    )
