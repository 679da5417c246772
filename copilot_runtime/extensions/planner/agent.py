"""The planner agent: has a model break a request into tasks, and streams the plan's progress."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from copilot_runtime.adapters.chat_span import stream_chat
from copilot_runtime.agents.instructions import (
    InstructedAgent,
    Instructions,
    build_system_message,
    check_instructions,
    resolve_instructions,
)
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import Adapter, ChatRequest
from copilot_runtime.api.budget import Budget, Cost
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Activity,
    AgentState,
    Event,
    Events,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    TextMessage,
    new_id,
)
from copilot_runtime.api.run_input import CURRENT_RUN, RunInput, find_budget
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.base.jsontext import join_pieces
from copilot_runtime.base.jsonvalue import (
    as_object,
    parse_text,
)
from copilot_runtime.extensions.planner.engine import PlanEngine
from copilot_runtime.extensions.planner.events import (
    PlanCreated,
    PlanEntry,
    QuestionAnswered,
)
from copilot_runtime.extensions.planner.feed import TaskText
from copilot_runtime.extensions.planner.log import PlanQuery
from copilot_runtime.extensions.planner.plan import Plan
from copilot_runtime.extensions.planner.questions import build_interrupt, find_question, read_answer
from copilot_runtime.extensions.planner.run import IN_TASK
from copilot_runtime.extensions.planner.spans import link_plan, start_plan_span
from copilot_runtime.extensions.planner.tasks import (
    PlanLimits,
    PlanRejected,
    Task,
    describe_task_schema,
    parse_tasks,
)
from copilot_runtime.extensions.planner.view import describe_plan
from copilot_runtime.extensions.planner.worker import PlanRequests

if TYPE_CHECKING:
    from copilot_runtime.extensions.planner.resources import TaskResources

CREATE_PLAN = "create_plan"
FOLLOW_PLAN = "follow_plan"
RETRY_PLAN = "retry_plan"

ACTIVITY = "plan"
"""The activity type of plans."""

_INSTRUCTIONS = (
    f"You plan. Break the request into tasks and call {CREATE_PLAN} once with all of them. Each "
    "task is done by an assistant that sees nothing of this conversation, so write into it all "
    "that it needs. Tasks run at the same time unless one depends on another. Say in `evaluation` "
    "what a good outcome looks like wherever that can be checked. Mark what cannot be taken back "
    "with `needs_approval`. A request that needs no work at all, you answer yourself."
)
_LAST_PLAN = (
    "The last plan of this conversation is {status}: {over} of its {total} tasks are over. It is "
    "for this request:\n\n{request}\n\n{tools}"
)
_ATTEMPTS = 3
"""Attempts of the model to write a valid plan."""

_MAX_PLAN = 1_000_000
"""Maximum characters of the tool arguments of a plan."""

_INTERVAL = 0.1
"""Minimum seconds between snapshots of a plan that changes."""

_INTERVAL_PER_TASK = 0.002
"""Additional seconds per task: stores and v1 clients get whole snapshots, not only changes."""

_STOP = 3.0
"""Maximum seconds to wait for the end of a stopped plan, for its last snapshot."""


class PlannerAgent(InstructedAgent):
    """Creates a plan, follows its execution, and ends with its output.

    Args:
    adapter: The adapter of the model that writes plans.
    engine: Runs plans, independently of the run that created them.
    requests: The requests of running plans.
    limits: Limits on the size of plans.
    instructions: Additional system instructions of the operator.
    needs_approval: `True` if a person must approve each plan first.
    evaluation: Criteria for the output of each plan; if empty, it is not evaluated.
    max_seconds: Seconds after which a run ends while its plan continues; `None` for never.
    description: The description of the agent.
    resources: Stores tasks as resources of the knowledge extension, if given.
    """

    def __init__(
        self,
        adapter: Adapter,
        engine: PlanEngine,
        requests: PlanRequests,
        *,
        limits: PlanLimits | None = None,
        instructions: Instructions | None = None,
        needs_approval: bool = False,
        evaluation: str = "",
        max_seconds: float | None = None,
        description: str = "Breaks a request into tasks and has assistants do them.",
        resources: "TaskResources | None" = None,
    ) -> None:
        check_instructions(instructions)
        self.adapter = adapter
        self.engine = engine
        self.requests = requests
        self.limits = limits or PlanLimits()
        self.instructions = instructions
        self.needs_approval = needs_approval
        self.evaluation = evaluation
        self.max_seconds = max_seconds
        self.description = description
        self._resources = resources
        self.capabilities = {
            "tools": {"supported": True, "clientProvided": False},
            "multiAgent": {"supported": True, "delegation": True},
            "humanInTheLoop": {
                "supported": True,
                "approvals": needs_approval,
                "interrupts": True,
            },
        }

    has_plans = True

    async def run(self, run: RunInput) -> Events:
        """Yield the model's text, then snapshots of the plan, and its output.

        Stopping the run stops the plan. If the run ends otherwise, the plan continues, even after a
        restart of the server, and the next run of the thread finds it. Raises `Misuse` within a
        task of a plan, and `PlanRejected` if the model does not write a valid plan.
        """
        if IN_TASK.get():
            raise Misuse(
                "A planner was given a task of a plan: its plan would be one below the other, "
                "without end. Give a task to an agent that does it, or plan it as subtasks."
            )
        deadline = None if self.max_seconds is None else monotonic() + self.max_seconds
        plan_id, answer = await self._answer_questions(run)
        if plan_id:
            stream = self._follow(plan_id, run, deadline, answer)
        else:
            stream = self._plan_and_follow(run, deadline)
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    async def _plan_and_follow(self, run: RunInput, deadline: float | None) -> Events:
        last_plan = await self._find_plan(run)
        if last_plan is not None and not last_plan.is_over:
            yield self._draw(last_plan, run)
            yield _show(last_plan)
        request = await self._build_request(run, last_plan)
        costs: list[Cost] = []

        async def record(cost: Cost) -> None:
            costs.append(cost)

        budget = Budget(parent=run.budget or find_budget(), record=record)
        for attempt in range(1, _ATTEMPTS + 1):
            calls: list[ActionExecutionMessage] = []
            cut: set[str] = set()
            async with aclosing(self._write_plan(request, run, budget, calls, cut)) as events:
                async for event in events:
                    yield event
            if not calls:
                return
            try:
                plan_id = await self._take_call(run, calls, cut, last_plan, costs)
            except PlanRejected as error:
                if attempt == _ATTEMPTS:
                    raise
                request = _reject(request, calls, error)
                continue
            async with aclosing(self._follow(plan_id, run, deadline)) as events:
                async for event in events:
                    yield event
            return

    async def _take_call(
        self,
        run: RunInput,
        calls: Sequence[ActionExecutionMessage],
        cut: set[str],
        last_plan: Plan | None,
        costs: Sequence[Cost],
    ) -> str:
        """Carry out the model's tool call, and return the id of the plan. Raises `PlanRejected`."""
        call = calls[0]
        if cut:
            raise PlanRejected(
                "The answer was cut off within the call.",
                hint="Write a shorter plan, or raise max_tokens.",
            )
        if len(calls) > 1:
            raise PlanRejected(f"Make one call: {CREATE_PLAN} takes all tasks.")
        if last_plan is not None and call.name == FOLLOW_PLAN:
            return last_plan.id
        if last_plan is not None and call.name == RETRY_PLAN:
            self.requests.add(last_plan.id, run)
            await self.engine.retry(last_plan.id)
            return last_plan.id
        created, plan_id = self._create(run, call, costs), new_id()
        self.requests.add(plan_id, run)
        try:
            await self.engine.submit(created, plan_id=plan_id)
        except BaseException:
            self.requests.forget(plan_id)
            raise
        return plan_id

    async def _find_plan(self, run: RunInput) -> Plan | None:
        """Return the thread's last plan, or `None` if it finished and the thread has its output."""
        found = await self.engine.log.list_plans(
            PlanQuery(user=run.user, thread_id=run.thread_id, limit=1)
        )
        if not found:
            return None
        plan = await self.engine.get(found[0].id)
        if plan.status != "finished":
            return plan
        outcome = _name_outcome(plan)
        return None if any(message.id == outcome for message in run.messages) else plan

    async def _write_plan(
        self,
        request: ChatRequest,
        run: RunInput,
        budget: Budget,
        calls: list[ActionExecutionMessage],
        cut: set[str],
    ) -> Events:
        """Yield the model's events, and append its calls to `calls`, cut off ones also to `cut`."""
        span = start_plan_span(run.span, run.agent_name)
        stream = stream_chat(self.adapter, request, span, agent=run.span, budget=budget)
        try:
            async with aclosing(_read_plan(stream, calls, cut)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            span.fail(error)
            raise
        finally:
            span.end()

    def _create(
        self, run: RunInput, call: ActionExecutionMessage, costs: Sequence[Cost]
    ) -> PlanCreated:
        """Parse the plan in the arguments of a tool call. Raises `PlanRejected`."""
        if call.name != CREATE_PLAN:
            raise PlanRejected(f"There is no {call.name[:100]!r} here. Call {CREATE_PLAN}.")
        fields = parse_text(call.arguments or "{}")
        if not isinstance(fields, dict):
            raise PlanRejected(
                f"The arguments of {CREATE_PLAN} are no JSON object.",
                hint='Write all of it, such as {"tasks": [{"name": "…", "purpose": "…"}]}.',
            )
        tasks: tuple[Task, ...] = parse_tasks(fields.get("tasks"), self.limits)
        return PlanCreated(
            request=_find_question(run.messages),
            tasks=tasks,
            limits=self.limits,
            evaluation=self.evaluation,
            needs_approval=self.needs_approval,
            thread_id=run.thread_id,
            run_id=run.run_id,
            user=run.user,
            agent=run.agent_name,
            requests=len(costs),
            tokens=sum(cost.tokens for cost in costs),
            dollars=sum(cost.dollars for cost in costs),
        )

    async def _follow(
        self, plan_id: str, run: RunInput, deadline: float | None, answer: int | None = None
    ) -> Events:
        """Yield snapshots of a plan until it ends, waits for people, or the deadline has passed.

        `answer` is the number of the event by which a person has just resumed the plan.
        """
        try:
            with self.engine.slots.share(plan_id, run.identity, run.user):
                plan = await self.engine.get(plan_id)
                link_plan(run.span, plan.id, plan.created.traceparent)
                number = plan.number
                yield self._draw(plan, run)
                yield _show(plan)
                async with aclosing(self._watch(plan, number, deadline, answer)) as changes:
                    async for _ in changes:
                        yield self._draw(plan, run)
                        yield _show(plan)
        except (asyncio.CancelledError, GeneratorExit):
            slot = CURRENT_RUN.get(None)
            if slot is not None and slot.is_stopped:
                slot.closing_events = await self._stop(plan_id, run)
            raise
        for event in _conclude(plan):
            yield event

    async def _watch(
        self, plan: Plan, number: int, deadline: float | None, answer: int | None
    ) -> AsyncGenerator[None, None]:
        """Yield whenever a snapshot of a changed plan is due.

        `number` is the last event of the previous snapshot. Ends when the plan ends or waits for
        people, or at the deadline. After an answer, it waits for at least one change, as the plan
        may still have the status `waiting` when the answer is stored.
        """
        if plan.is_over or (plan.status == "waiting" and answer is None):
            if plan.number != number:
                yield
            return
        entries: asyncio.Queue[PlanEntry | None] = asyncio.Queue()
        after = number if answer is None else answer
        reader = asyncio.create_task(self._read_entries(plan.id, after, entries))
        drawn, is_stale = monotonic(), False
        try:
            while not _is_at_rest(plan) or not is_stale:
                interval = max(_INTERVAL, len(plan.tasks) * _INTERVAL_PER_TASK)
                due = drawn + interval if is_stale else None
                limits = [moment for moment in (due, deadline) if moment is not None]
                try:
                    async with asyncio.timeout(min(limits) - monotonic() if limits else None):
                        entry = await entries.get()
                except TimeoutError:
                    if is_stale:
                        yield
                    if deadline is not None and monotonic() >= deadline:
                        return
                    drawn, is_stale = monotonic(), False
                    continue
                while entry is not None:
                    plan.apply(entry)  # no effect for a plan that runs here: it has applied it
                    is_stale = True
                    if entries.empty():
                        break
                    entry = entries.get_nowait()
                if entry is None and not plan.is_over:
                    await reader  # raises why
                    return
            yield
        finally:
            reader.cancel()
            await asyncio.wait([reader])

    async def _read_entries(
        self, plan_id: str, after: int, entries: "asyncio.Queue[PlanEntry | None]"
    ) -> None:
        """Put the entries of a plan after a number into a queue, followed by `None`."""
        try:
            async with aclosing(self.engine.follow(plan_id, after)) as items:
                async for item in items:
                    if not isinstance(item, TaskText):
                        entries.put_nowait(item)
        finally:
            entries.put_nowait(None)

    async def _stop(self, plan_id: str, run: RunInput) -> Sequence[Event]:
        """Stop a plan, and return its last snapshot."""
        await self.engine.stop(plan_id)
        plan = await self.engine.get(plan_id)
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(_STOP),
                aclosing(self.engine.follow(plan_id, plan.number)) as items,
            ):
                async for item in items:
                    if isinstance(item, PlanEntry):
                        plan.apply(item)
                    if plan.is_over:
                        break
        return (self._draw(plan, run), _show(plan))

    def _draw(self, plan: Plan, run: RunInput) -> AgentState:
        return AgentState(
            agent=run.agent_name,
            state={**as_object(run.agent_input.state), "plan": describe_plan(plan)},
            node=plan.status,
            thread_id=run.thread_id,
            run_id=run.run_id,
            running=not plan.is_over,
        )

    async def open(self) -> None:
        """Open the engine, which takes over the plans of dead servers."""
        await self.engine.open()
        if self._resources is not None:
            await self._resources.open()

    def find_failing_checks(self) -> Sequence[str]:
        return ("plans",) if self.engine.failures else ()

    async def aclose(self) -> None:
        """Close the engine, which suspends its plans."""
        await self.engine.aclose()
        if self._resources is not None:
            await self._resources.aclose()

    async def _answer_questions(self, run: RunInput) -> tuple[str, int | None]:
        """Apply a person's answers; return the plan's id and the number of the resuming answer.

        The number is `None` if all tasks concerned still wait for other answers. A question that
        was answered elsewhere, as on the page of plans, takes no answer: this run shows what came
        of it. The id is empty if there is nothing to show: the person has written something new.
        Raises `Misuse` or `NotFound` if there is no plan or an answer does not fit.
        """
        found, number = "", None
        for resume in run.resume:
            plan, question = await find_question(self.engine, resume, run)
            if question is None:
                is_new = _find_question(run.messages) != plan.created.request
                if not (resume.status == "cancelled" and is_new):
                    found = found or plan.id
                continue
            id = question.question_id
            before, others = plan.number, plan.tasks[question.task_id].questions.keys() - {id}
            answer, note, payload = read_answer(resume, question.kind)
            await self.engine.answer(plan.id, id, answer, note=note, user=run.user, payload=payload)
            found = plan.id
            if not others:
                number = await self._find_answer(plan.id, before, id)
        return found, number

    async def _find_answer(self, plan_id: str, after: int, question_id: str) -> int:
        """Return the number of an answer, or `after` if the plan's server has not
        applied it yet.
        """
        for entry in await self.engine.log.read(plan_id, after):
            if isinstance(entry.event, QuestionAnswered) and entry.event.question_id == question_id:
                return entry.number
        return after

    async def _build_request(self, run: RunInput, last_plan: Plan | None) -> ChatRequest:
        instructions = await resolve_instructions(self.instructions, run)
        system = build_system_message(
            run.run_id,
            instructions="\n\n".join(
                filter(None, (_INSTRUCTIONS, _describe_last_plan(last_plan), instructions))
            ),
            context=run.context,
            state=None,
            passages=(),
        )
        return ChatRequest(
            messages=[*system, *run.messages],
            instructions=instructions,
            actions=[
                Action(
                    name=CREATE_PLAN,
                    description="Plan the tasks that together do what was asked for.",
                    parameters=describe_task_schema(self.limits),
                ),
                *_list_tools(last_plan),
            ],
            parameters=run.parameters,
            thread_id=run.thread_id,
            run_id=run.run_id,
            agent=run.agent,
            user=run.user,
            message_id=new_id(),
        )


async def _read_plan(stream: Events, calls: list[ActionExecutionMessage], cut: set[str]) -> Events:
    """Yield all events but calls, which are appended to `calls`; `cut` gets those without end."""
    names: dict[str, str] = {}
    arguments: dict[str, list[str]] = {}
    size = 0
    async with aclosing(stream) as events:
        async for event in events:
            match event:
                case ActionExecutionStart(call_id=id, name=name):
                    names[id], arguments[id] = name, []
                    cut.add(id)
                case ActionExecutionArgs(call_id=id, delta=delta):
                    arguments[id].append(delta)
                    if (size := size + len(delta)) > _MAX_PLAN:
                        raise PlanRejected(
                            f"The model wrote a plan of more than {_MAX_PLAN} characters."
                        )
                case ActionExecutionEnd(call_id=id):
                    cut.discard(id)
                case _:
                    yield event
    calls += [
        ActionExecutionMessage(id=id, name=name, arguments=join_pieces(arguments[id]))
        for id, name in names.items()
    ]


def _reject(
    request: ChatRequest, calls: Sequence[ActionExecutionMessage], error: CopilotError
) -> ChatRequest:
    """Return the request for another attempt, with the error as the result of the call."""
    messages: list[Message] = [*request.messages]
    for call in calls:
        messages += [
            call,
            ResultMessage(
                id=f"result-{call.id}", call_id=call.id, name=call.name, result=error.public
            ),
        ]
    return replace(request, messages=messages, message_id=new_id())


def _show(plan: Plan) -> Activity:
    return Activity(
        message_id=f"plan-{plan.id}", activity_type=ACTIVITY, content=describe_plan(plan)
    )


def _is_at_rest(plan: Plan) -> bool:
    """Return `True` if the plan has ended or waits for people."""
    return plan.is_over or plan.status == "waiting"


def _describe_last_plan(plan: Plan | None) -> str:
    if plan is None:
        return ""
    states = [*plan.tasks.values()][1:]
    return _LAST_PLAN.format(
        status=plan.status,
        over=sum(state.is_over for state in states),
        total=len(states),
        request=plan.created.request,
        tools="\n".join(f"{tool.name}: {tool.description}" for tool in _list_tools(plan)),
    )


def _list_tools(plan: Plan | None) -> Sequence[Action]:
    """Return the tools of the model for the conversation's last plan."""
    if plan is None:
        return ()
    return (_FOLLOW, _RETRY) if plan.status in ("failed", "stopped") else (_FOLLOW,)


def _name_outcome(plan: Plan) -> str:
    """Return the id of the message with the plan's output; a retry changes it."""
    return f"outcome-{plan.id}-{plan.number}"


def _conclude(plan: Plan) -> Sequence[Event]:
    """Return the last events of a run: the output of an ended plan, the interrupts of a plan that
    waits for answers, or a message that the plan continues.
    """
    if plan.status == "waiting":
        return [build_interrupt(plan, question) for question in plan.questions.values()]
    root = plan.root
    if not plan.is_over:
        states = [*plan.tasks.values()][1:]
        over = sum(state.is_over for state in states)
        id = new_id()
        text = (
            f"The plan goes on: {over} of {len(states)} tasks are over. Ask how far it is to see "
            "more."
        )
    else:
        id = _name_outcome(plan)
        text = root.output or ""
        if root.status != "finished":
            text = f"{_UNDONE[root.status]} {root.reason}\n\n{text}".strip()
    if not text:
        return []
    return [
        TextMessageStart(message_id=id),
        TextMessageContent(message_id=id, content=text),
        TextMessageEnd(message_id=id),
    ]


_FOLLOW = Action(
    name=FOLLOW_PLAN,
    description="Show the person how far the last plan is, and what comes out of it.",
    parameters={"type": "object", "properties": {}},
)
_RETRY = Action(
    name=RETRY_PLAN,
    description="Have the tasks of the last plan done again that did not finish.",
    parameters={"type": "object", "properties": {}},
)

_UNDONE = {
    "failed": "The plan could not be carried out to its end.",
    "stopped": "The plan was stopped.",
    "skipped": "The plan was not carried out.",
}


def _find_question(messages: Sequence[Message]) -> str:
    """Return the text of the user's last message."""
    return next(
        (
            message.content
            for message in reversed(messages)
            if isinstance(message, TextMessage) and message.role == "user"
        ),
        "",
    )
