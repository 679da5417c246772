"""The execution of one plan on this server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, ContextVar
from typing import Protocol

from copilot_runtime.api.budget import Budget, Cost
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import CURRENT_RUN, RunSlot
from copilot_runtime.base.errors import CopilotError, NotFound, StoreFailed
from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.extensions.planner.budget import PlanBudgets
from copilot_runtime.extensions.planner.events import (
    ROOT,
    CallFinished,
    CallStarted,
    Outcome,
    PlanEntry,
    PlanEvent,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    StopRequested,
    TaskAssigned,
    TaskEnded,
    TaskEvaluated,
    TaskOutput,
    TaskPaused,
    TaskReopened,
    TasksAdded,
    TaskStarted,
    UsageAdded,
)
from copilot_runtime.extensions.planner.feed import PlanFeed
from copilot_runtime.extensions.planner.log import Lease, LeaseLost, PlanLog
from copilot_runtime.extensions.planner.plan import FINAL_STATUSES, Call, Plan, Status, TaskState
from copilot_runtime.extensions.planner.roles import Elector, Pause, Supervisor, Verdict, Worker
from copilot_runtime.extensions.planner.spans import PlanTracer
from copilot_runtime.extensions.planner.tasks import PlanRejected, Task, parse_tasks
from copilot_runtime.telemetry import Span, Telemetry, work_under

logger = logging.getLogger(__name__)

_MAX_ARGUMENTS = 500
"""Maximum characters of a call's arguments in a question about it."""

IN_TASK: ContextVar[bool] = ContextVar("in_task", default=False)
"""`True` within the execution of a task."""


OpenBudget = Callable[[str | None], Budget]
"""Returns the budget of a plan's owner."""


class _Ended(Exception):
    """Raised to end a task with an outcome other than `finished`."""

    def __init__(self, outcome: Outcome, reason: str, *events: PlanEvent) -> None:
        super().__init__(reason)
        self.outcome: Outcome = outcome
        self.reason = reason
        self.events = events


class RunServices(Protocol):
    """The parts of a `PlanEngine` that its plan runs use."""

    log: PlanLog
    elector: Elector
    worker: Worker
    supervisor: Supervisor
    telemetry: Telemetry
    open_budget: OpenBudget | None

    def notify(self, plan: Plan, entry: PlanEntry) -> None:
        """Pass an entry that the plan has applied to the listeners."""

    def forget(self, run: "PlanRun", failure: LeaseLost | StoreFailed | None) -> None:
        """Drop a run that has ended; `failure` is why the plan cannot continue here, or `None`."""


class PlanRun:
    """Runs the tasks of a plan; siblings run concurrently, as far as limits and dependencies allow.

    Each step is stored first. After a crash, the server that takes the plan over does not repeat
    finished calls. For unfinished calls it asks a person, unless they are idempotent.
    """

    def __init__(self, engine: RunServices, plan: Plan, lease: Lease) -> None:
        self.plan = plan
        self._engine = engine
        self.lease = lease
        self.feed = PlanFeed()
        owner = engine.open_budget(plan.created.user) if engine.open_budget else None
        self.budgets = PlanBudgets(plan, owner)
        self._number = plan.number
        self._status: Status | None = "running" if plan.number == 1 else None
        """The stored status, or `None` if it is the unknown one that an earlier server stored."""
        self._is_ending = False
        self._slots = asyncio.Semaphore(plan.limits.concurrency)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self._answers: dict[str, asyncio.Future[None]] = {}
        self._answering: set[str] = set()
        self._stops: set[str] = set()
        """Ids of tasks that are being stopped."""
        self._is_closing = False
        self._failure: LeaseLost | StoreFailed | None = None
        self._tracer = PlanTracer(plan)
        self.ended: asyncio.Task[None]

    def start(self) -> None:
        """Start the plan, or resume its unfinished tasks."""
        self._tracer.open(self._engine.telemetry, self.lease.epoch)
        self.ended = asyncio.create_task(
            self._carry_out(),
            name=f"plan:{self.plan.id}",
            context=Context(),  # it outlives the run that created it
        )
        self._store_status()

    def cancel(self) -> None:
        """Suspend the plan in its current state."""
        self._is_closing = True
        self.ended.cancel()

    def fail(self, failure: LeaseLost | StoreFailed) -> None:
        """End the run, but not the plan, as it cannot continue on this server."""
        if self._failure is None:  # a second cancellation would interrupt the cleanup of tasks
            self._failure = failure
            self.ended.cancel()

    def append(self, *events: PlanEvent) -> "asyncio.Future[Sequence[PlanEntry]]":
        """Store events; when the returned future is done, the plan has applied them.

        The future raises `LeaseLost` or `StoreFailed`.
        """
        number = self._number + 1
        self._number += len(events)
        status = _find_status(events)
        self._is_ending |= status in FINAL_STATUSES
        future = self._engine.log.append(self.lease, number, events, status=status)
        if future.done():
            self._apply(future)
        else:
            future.add_done_callback(self._apply)
        return asyncio.shield(future)  # cancelling the caller does not cancel the write

    async def check_lease(self) -> None:
        """Raise `LeaseLost` or `StoreFailed`, and end the run, if the lease is not valid."""
        try:
            await self._engine.log.check_lease(self.lease)
        except (LeaseLost, StoreFailed) as error:
            self.fail(error)
            raise

    async def answer(self, event: QuestionAnswered) -> None:
        """Answer an open question. Raises `NotFound` if it is not open."""
        id = event.question_id
        if id not in self.plan.questions or id in self._answering:
            raise build_closed_error(id)
        self._answering.add(id)
        try:
            await self.append(event)
        finally:
            self._answering.discard(id)

    async def stop(self, task_id: str) -> None:
        """Stop a task with all its descendants; the root stands for the whole plan."""
        state = self.plan.tasks[task_id]
        if state.is_over:
            return
        await self.append(StopRequested(task_id=task_id))
        task = self._tasks.get(task_id)
        if task is not None and task_id not in self._stops:  # or it would interrupt its cleanup
            self._stops.add(task_id)
            task.cancel()

    async def _carry_out(self) -> None:
        try:
            await self._run_task(self.plan.root)
        except (LeaseLost, StoreFailed) as error:
            self._failure = self._failure or error
        finally:
            self.feed.close()
            self._tracer.close()
            self._engine.forget(self, None if self._is_closing else self._failure)

    async def _run_task(self, state: TaskState) -> None:
        """Run a task until it ends with any outcome. Raises `LeaseLost` or `StoreFailed`."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks[state.id] = task
        CURRENT_RUN.set(RunSlot(None, _TaskContext(self, state).budget))
        try:
            if not state.is_over:
                await self._try_task(state)
        except asyncio.CancelledError:
            if not task.cancelling():  # the cancellation came from within
                await self._end(state, "failed", "Something that it called was cancelled.")
            elif self._is_closing or not _is_stopping(state):
                raise
            else:
                task.uncancel()
                await self._end(state, "stopped", "A person stopped it.")
        finally:
            del self._tasks[state.id]
            self._get_end(state).set()

    async def _try_task(self, state: TaskState) -> None:
        try:
            await self._do_task(state)
        except _Ended as end:
            await self._end(state, end.outcome, end.reason, *end.events)
        except (LeaseLost, StoreFailed):
            raise
        except CopilotError as error:
            self._tracer.fail(state, error)
            await self._end(state, "failed", error.public)
        except Exception as error:
            self._tracer.fail(state, error)
            logger.exception("The task %r of the plan %s failed.", state.task.name, self.plan.id)
            await self._end(state, "failed", f"It failed with {type(error).__name__}.")

    async def _do_task(self, state: TaskState) -> None:
        if _is_stopping(state):
            raise _Ended("stopped", "A person stopped it.")
        await self._get_approval(state)
        while True:
            if state.children:
                if not state.attempts:
                    await self.append(TaskStarted(task_id=state.id))
                await self._run_children(state)
            elif state.output is None:
                await self._work(state)
                if state.is_over:
                    return
            if await self._is_good(state):
                break
        result = await self._summarize(state)
        if refusals := [child.task.name for child in _get_last_round(state) if _is_refused(child)]:
            names = ", ".join(map(repr, refusals))
            raise _Ended("stopped", f"A person refused a part of it: {names}.", *result)
        await self.append(*result, TaskEnded(task_id=state.id, outcome="finished"))

    async def _get_approval(self, state: TaskState) -> None:
        if state.task.needs_approval and not state.is_approved and state.refusal is None:
            what = "plan" if state.parent is None else f"task {state.task.name!r}"
            await self._ask(state, "approval", f"May the {what} begin? {state.task.purpose}")
        if state.refusal is not None:
            reason = f"A person refused it: {state.refusal}" if state.refusal else ""
            raise _Ended("stopped", reason or "A person refused it.")

    async def _run_children(self, state: TaskState) -> None:
        """Run all children, each after the siblings that it depends on."""
        by_name = {(child.round, child.task.name): child for child in state.children}
        tasks = [
            asyncio.create_task(self._run_child(child, by_name), name=f"task:{child.id}")
            for child in state.children
            if not child.is_over
        ]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise

    async def _run_child(
        self, state: TaskState, by_name: Mapping[tuple[int, str], TaskState]
    ) -> None:
        for name in state.task.depends_on:
            other = by_name[state.round, name]
            if not other.is_over:
                await self._get_end(other).wait()
            if other.status != "finished":
                reason = f"It needs {name!r}, which did not finish."
                await self._end(state, "skipped", reason)
                self._get_end(state).set()
                return
        await self._run_task(state)

    async def _work(self, state: TaskState) -> None:
        """Perform a task without subtasks, resuming it after each pause for people's answers."""
        while True:
            await self._settle_interruption(state)
            if state.output is not None or not await self._work_once(state):
                return

    async def _work_once(self, state: TaskState) -> bool:
        """Have an assistant perform a task. Returns `True` if it has paused."""
        async with self._slots:
            await self.budgets.find(state).check()
            events: list[PlanEvent] = []
            if not state.assistant:
                with self._work_under(state):
                    assistant, score, is_opaque = await self._engine.elector.elect(state, self.plan)
                events.append(
                    TaskAssigned(
                        task_id=state.id, assistant=assistant, score=score, is_opaque=is_opaque
                    )
                )
            await self.append(*events, TaskStarted(task_id=state.id))
            with self._work_under(state), _mark_task():
                result = await self.budgets.limit_time(
                    self._engine.worker.work(state, _TaskContext(self, state))
                )
            if isinstance(result, Pause):
                await self._pause(state, result)
                return True
            output = TaskOutput(task_id=state.id, output=result.output, sources=result.sources)
            if state.task.evaluation:
                await self.append(output)
            else:
                await self.append(output, TaskEnded(task_id=state.id, outcome="finished"))
            return False

    async def _pause(self, state: TaskState, pause: Pause) -> None:
        """Store the questions of a paused assistant; `_settle_interruption` awaits the answers."""
        questions = (
            QuestionAsked(
                question_id=new_id(),
                task_id=state.id,
                kind="interrupt",
                text=question.text,
                interrupt=question.interrupt,
            )
            for question in pause.questions
        )
        await self.append(TaskPaused(task_id=state.id, messages=pause.messages), *questions)

    async def _settle_interruption(self, state: TaskState) -> None:
        """Ask a person about calls that were unfinished when the previous server died.

        If the assistant was paused, only wait for the answers to its questions.
        """
        if state.is_paused:
            for id in [*state.questions]:
                await self._wait_for_answer(state, id)
            return
        calls = [
            call for call in state.calls.values() if call.result is None and not call.is_idempotent
        ]
        if not state.is_opaque:
            for call in calls:
                await self._ask(
                    state,
                    "interrupted_call",
                    f"The call of {_describe_call(call)} for the task {state.task.name!r} was "
                    "interrupted: it is unknown whether it was done.",
                    call.id,
                )
        elif state.attempts and not state.may_repeat and state.output is None:
            under_way = " and ".join(map(_describe_call, calls))
            await self._ask(
                state,
                "interrupted_task",
                f"The task {state.task.name!r} was interrupted, and what {state.assistant!r} had "
                "done by then is not known."
                + (f" Under way was the call of {under_way}." if under_way else ""),
            )
        if state.refusal is not None:
            raise _Ended("failed", state.refusal or "It was interrupted, and a person gave it up.")

    async def _is_good(self, state: TaskState) -> bool:
        """Return `True` if the output passes; otherwise add corrective tasks and return `False`.

        Raises `_Ended` if no correction is possible.
        """
        if state.verdict is not None and state.verdict.passed:
            return True
        has_failed = any(child.status != "finished" for child in _get_last_round(state))
        if not state.task.evaluation and not has_failed:
            return True
        await self.budgets.find(state).check()
        async with self._slots:
            with self._work_under(state):
                verdict = await self.budgets.limit_time(
                    self._engine.supervisor.evaluate(state, _TaskContext(self, state))
                )
        event = TaskEvaluated(
            task_id=state.id, round=state.rounds, passed=verdict.passed, missing=verdict.missing
        )
        if verdict.passed:
            await self.append(event)
            return True
        await self.append(event, self._correct(state, verdict, event))
        return False

    def _correct(self, state: TaskState, verdict: Verdict, event: TaskEvaluated) -> TasksAdded:
        """Return the corrective tasks of a verdict. Raises `_Ended` if there are none
        or too many.
        """
        missing = verdict.missing or "The outcome is not what it should be."
        if not verdict.corrections:
            raise _Ended("failed", missing, event)
        if state.rounds >= self.plan.limits.rounds:
            raise _Ended("failed", f"{missing} {_describe_rounds(state.rounds)}", event)
        try:
            tasks = self._parse_corrections(state, verdict.corrections)
        except PlanRejected as error:
            raise _Ended("failed", f"{missing} It cannot be corrected: {error}", event) from error
        return TasksAdded(task_id=state.id, tasks=tasks)

    def _parse_corrections(self, state: TaskState, corrections: JsonValue) -> tuple[Task, ...]:
        limits = self.plan.limits
        tasks = parse_tasks(corrections, limits, level=state.level + 1)
        if (width := len(state.children) + len(tasks)) > limits.width:
            raise PlanRejected(
                f"The task {state.task.name!r} would have {width} subtasks; at most {limits.width} "
                "are allowed, by `planner.width`."
            )
        total = len(self.plan.tasks) - 1 + sum(task.count() for task in tasks)
        if total > limits.tasks:
            raise PlanRejected(
                f"The plan would have {total} tasks; at most {limits.tasks} are allowed in all, "
                "by `planner.tasks`."
            )
        return tasks

    async def _summarize(self, state: TaskState) -> Sequence[PlanEvent]:
        """Return the aggregated output of a task with subtasks as an event; else nothing."""
        if not state.children:
            return ()
        async with self._slots:
            with self._work_under(state):
                result = await self.budgets.limit_time(
                    self._engine.supervisor.summarize(state, _TaskContext(self, state))
                )
        return (TaskOutput(task_id=state.id, output=result.output, sources=result.sources),)

    async def _ask(
        self, state: TaskState, kind: QuestionKind, text: str, call_id: str = ""
    ) -> None:
        """Ask a question unless it is already open, and wait for the answer."""
        for question in state.questions.values():
            if (question.kind, question.call_id) == (kind, call_id):
                id = question.question_id
                break
        else:
            id = new_id()
            await self.append(
                QuestionAsked(
                    question_id=id, task_id=state.id, kind=kind, text=text, call_id=call_id
                )
            )
        await self._wait_for_answer(state, id)

    async def _wait_for_answer(self, state: TaskState, question_id: str) -> None:
        if question_id in state.questions:
            new = asyncio.get_running_loop().create_future()
            await self._answers.setdefault(question_id, new)

    async def _end(
        self, state: TaskState, outcome: Outcome, reason: str, *events: PlanEvent
    ) -> None:
        ended = TaskEnded(task_id=state.id, outcome=outcome, reason=reason)
        if state.parent is None and not any(isinstance(event, TaskOutput) for event in events):
            events = (*events, *_gather_outputs(state))
        await self.append(*events, ended)

    def _apply(self, stored: "asyncio.Future[Sequence[PlanEntry]]") -> None:
        """Apply stored entries and publish them. Called in the order of their numbers."""
        if (error := stored.exception()) is not None:
            if isinstance(error, LeaseLost | StoreFailed):
                self.fail(error)
            return
        for entry in stored.result():
            self.plan.apply(entry)
            self._tracer.trace_entry(entry)
            self._engine.notify(self.plan, entry)
            self.feed.emit(entry)
            if isinstance(entry.event, QuestionAnswered):
                answer = self._answers.pop(entry.event.question_id, None)
                if answer is not None and not answer.done():
                    answer.set_result(None)
        self.budgets.follow()
        self._store_status()

    def _store_status(self) -> None:
        """Store the plan's status if it has changed, so that lists show it."""
        before, self._status = self._status, self.plan.status
        if self._status != before and not self._is_ending:
            future = self._engine.log.append(self.lease, self._number + 1, (), status=self._status)
            future.add_done_callback(_ignore_failure)

    def _work_under(self, state: TaskState) -> AbstractContextManager[Span]:
        """Return a context in which new spans are children of the task's span."""
        return work_under(self._tracer.find_span(state))

    def _get_end(self, state: TaskState) -> asyncio.Event:
        return self._ends.setdefault(state.id, asyncio.Event())


class _TaskContext:
    """Implements `roles.TaskContext` for one task."""

    def __init__(self, run: PlanRun, state: TaskState) -> None:
        self._run = run
        self._state = state
        self.budget = Budget(parent=run.budgets.find(state), record=self._record)

    @property
    def plan(self) -> Plan:
        return self._run.plan

    async def call_tool(
        self,
        call_id: str,
        tool: str,
        arguments: str,
        run: Callable[[], Awaitable[str]],
        *,
        is_idempotent: bool,
    ) -> str:
        call = self._state.calls.get(call_id)
        if call is not None and call.result is not None:
            return call.result
        if call is None:
            await self._run.append(
                CallStarted(
                    task_id=self._state.id,
                    call_id=call_id,
                    tool=tool,
                    arguments=arguments,
                    is_idempotent=is_idempotent,
                )
            )
        result = await run()
        await self._run.append(CallFinished(task_id=self._state.id, call_id=call_id, result=result))
        return result

    async def check_lease(self) -> None:
        await self._run.check_lease()

    async def add_usage(self, tokens: int, dollars: float = 0.0) -> None:
        await self.budget.settle(Cost(tokens, dollars))

    async def _record(self, cost: Cost) -> None:
        if cost.unpriced:
            self._run.budgets.warn_of_price()
        await self._run.append(
            UsageAdded(task_id=self._state.id, tokens=cost.tokens, dollars=cost.dollars)
        )

    def emit_text(self, delta: str) -> None:
        self._run.feed.emit_text(self._state.id, delta)


@contextmanager
def _mark_task() -> Generator[None]:
    token = IN_TASK.set(True)
    try:
        yield
    finally:
        IN_TASK.reset(token)


def build_closed_error(question_id: str) -> NotFound:
    """Return the error for a question that is not open or does not exist."""
    return NotFound(f"The question {question_id[:100]!r} is not open.")


def ends_plan(entry: PlanEntry) -> bool:
    """Return `True` if an entry ends its plan."""
    return isinstance(entry.event, TaskEnded) and entry.event.task_id == ROOT


def _find_status(events: Sequence[PlanEvent]) -> Status | None:
    """Return the plan's status after events that end or reopen it, else `None`."""
    for event in events:
        if isinstance(event, TaskEnded) and event.task_id == ROOT:
            return event.outcome
        if isinstance(event, TaskReopened):
            return "running"
    return None


def _ignore_failure(future: "asyncio.Future[Sequence[PlanEntry]]") -> None:
    """Retrieve and drop an exception: the next event reports that the store fails."""
    if not future.cancelled():
        future.exception()


def _gather_outputs(state: TaskState) -> Sequence[TaskOutput]:
    """Return the outputs of a task's descendants as its own; nothing if there are none."""
    texts = [*_list_outputs(state)]
    sources = dict.fromkeys(source for one in state.walk() for source in one.sources)
    output = TaskOutput(task_id=state.id, output="\n\n".join(texts), sources=tuple(sources))
    return (output,) if texts else ()


def _list_outputs(state: TaskState) -> Iterator[str]:
    """Yield the outputs that finished, or that were never evaluated, the latter with the reason."""
    if state.output and (state.status == "finished" or not state.evaluations):
        yield state.output if state.status == "finished" else f"{state.reason}\n\n{state.output}"
        return
    for child in state.children:
        yield from _list_outputs(child)


def _is_stopping(state: TaskState) -> bool:
    return any(one.is_stopping for one in state.path())


def _is_refused(state: TaskState) -> bool:
    """Return `True` if a person rejected the task or one of its subtasks, and so stopped it."""
    return state.status == "stopped" and (
        state.refusal is not None or any(map(_is_refused, _get_last_round(state)))
    )


def _get_last_round(state: TaskState) -> Sequence[TaskState]:
    """Return the children of the last round of corrections, which determine the outcome."""
    last = max((child.round for child in state.children), default=0)
    return [child for child in state.children if child.round == last]


def _describe_call(call: Call) -> str:
    """Return the tool and the shortened arguments of a call for a question about it."""
    text = call.arguments
    if len(text) > _MAX_ARGUMENTS:
        text = f"{text[:_MAX_ARGUMENTS]}…"
    return f"{call.tool!r} with {text}"


def _describe_rounds(rounds: int) -> str:
    word = "round" if rounds == 1 else "rounds"
    return f"It is so after {rounds} {word} of corrections, the most by `planner.rounds`."
