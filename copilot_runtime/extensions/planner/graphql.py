"""The GraphQL fields of plans, with the same authorization as REST.

They exist only in a runtime that has a planner; otherwise this module is not imported.
"""

from dataclasses import asdict

import strawberry

from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsonvalue import as_object
from copilot_runtime.extensions.planner.events import ANSWERS, ROOT, QuestionAsked
from copilot_runtime.extensions.planner.http.access import PlanAccess, PlanViewer
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.view import describe_context, describe_plan
from copilot_runtime.transports.graphql.context import Context
from copilot_runtime.transports.graphql.schema import CopilotInfo
from copilot_runtime.transports.graphql.types import JSON, JSONObject

_MAX_FIELDS = 10
"""Maximum plan fields in one request, as each reads a plan from its log."""


@strawberry.type(description="A plan summary. Times are seconds since 1970")
class PlanSummary:
    id: str
    title: str = strawberry.field(description="The text of the request")
    status: str
    thread_id: str
    user: str | None
    created_at: float
    updated_at: float


@strawberry.type(description="Plans, the newest first; next is the before of the next page")
class PlanPage:
    plans: list[PlanSummary]
    next: str | None


@strawberry.type(description="How many tasks there are, and how many will do nothing more")
class PlanProgress:
    over: int
    finished: int
    total: int


@strawberry.type(description="A question of a plan to a person, who answers with answerPlan")
class PlanQuestion:
    id: str
    task_id: str
    kind: str = strawberry.field(
        description="approval, interrupted_call, interrupted_task, or interrupt of an assistant"
    )
    text: str
    answers: list[str] = strawberry.field(description="The answers that answerPlan accepts")
    context: list[JSONObject] = strawberry.field(
        description="What the task is about to use that is to be approved: task_id, name, output"
    )
    interrupt: JSONObject | None = strawberry.field(
        description="The question of an assistant: reason, value, message, response_schema"
    )


@strawberry.type(description="Whether the outcome of a task was what it should be")
class PlanEvaluation:
    round: int
    passed: bool
    missing: str


@strawberry.type(description="A task of a plan. Times are seconds since 1970")
class PlanTask:
    id: str
    parent_id: str | None = strawberry.field(description="The task that it is a part of")
    name: str
    purpose: str
    instructions: str
    applicability: str
    evaluation: str = strawberry.field(description="The criteria of its evaluation")
    depends_on: list[str]
    status: str
    assistant: str
    score: float | None = strawberry.field(description="How well the assistant fits, 1 at best")
    is_correction: bool
    evaluations: list[PlanEvaluation]
    rounds: int = strawberry.field(description="Rounds of corrections")
    reason: str = strawberry.field(description="Why it did not finish")
    calls: int = strawberry.field(description="Calls of tools")
    tokens: float
    dollars: float
    started_at: float | None
    ended_at: float | None
    output: str | None
    sources: list[str]


@strawberry.type(name="Plan", description="A plan with its tasks. Times are seconds since 1970")
class PlanWithTasks:
    id: str
    request: str
    status: str
    reason: str = strawberry.field(description="Why it did not finish")
    thread_id: str
    user: str | None
    created_at: float
    ended_at: float | None
    tokens: float
    dollars: float
    output: str | None
    sources: list[str]
    progress: PlanProgress
    questions: list[PlanQuestion]
    tasks: list[PlanTask] = strawberry.field(description="All tasks, each before its parts")
    tree: JSONObject = strawberry.field(description="The plan as a page gets it, with a tree")


@strawberry.type
class PlanQuery:
    @strawberry.field(
        description="Plans in short, the newest first: of a thread, and with a status. Where "
        "users are not authenticated, plans are listed by their thread alone"
    )
    async def plans(
        self,
        info: CopilotInfo,
        thread_id: str = "",
        status: str = "",
        before: str = "",
        limit: int = 50,
    ) -> PlanPage:
        access, viewer = _get_access(info.context)
        page = await access.list_plans(
            viewer, thread_id=thread_id, status=status, before=before, limit=limit
        )
        return PlanPage(plans=[PlanSummary(**asdict(one)) for one in page.plans], next=page.next)

    @strawberry.field(description="One plan; null without one")
    async def plan(self, info: CopilotInfo, id: str) -> PlanWithTasks | None:
        access, viewer = _get_access(info.context)
        try:
            return _build_plan(await access.get_plan(viewer, id))
        except NotFound:
            return None


@strawberry.type
class PlanMutation:
    @strawberry.mutation(description="Stop a plan, or one task of it with all its parts")
    async def stop_plan(self, info: CopilotInfo, id: str, task_id: str = ROOT) -> PlanWithTasks:
        access, viewer = _get_access(info.context)
        return _build_plan(await access.stop(viewer, id, task_id))

    @strawberry.mutation(
        description="Have a task of a plan that is over done again, or all that did not finish"
    )
    async def retry_plan(self, info: CopilotInfo, id: str, task_id: str = ROOT) -> PlanWithTasks:
        access, viewer = _get_access(info.context)
        return _build_plan(await access.retry(viewer, id, task_id))

    @strawberry.mutation(
        description="Answer an open question. The note is why, or the result of a call that was "
        "done; the payload is what an assistant gets that has asked"
    )
    async def answer_plan(
        self,
        info: CopilotInfo,
        id: str,
        question_id: str,
        answer: str,
        note: str = "",
        payload: JSON | None = None,
    ) -> PlanWithTasks:
        access, viewer = _get_access(info.context)
        return _build_plan(await access.answer(viewer, id, question_id, answer, note, payload))


ROOTS = {"Query": PlanQuery, "Mutation": PlanMutation}


def _get_access(context: Context) -> tuple[PlanAccess, PlanViewer]:
    """Return the access to plans and the viewer. Raises `LimitExceeded` for too many fields."""
    context.count_field("plans", _MAX_FIELDS)
    request, plans = context.request, context.services.parts.find(PlanAccess)
    assert plans is not None
    return plans, plans.identify(request.scope, request.headers, request.caller)


def _build_plan(plan: Plan) -> PlanWithTasks:
    root, states = plan.root, [*plan.root.walk()][1:]
    return PlanWithTasks(
        id=plan.id,
        request=plan.created.request,
        status=plan.status,
        reason=root.reason,
        thread_id=plan.created.thread_id,
        user=plan.created.user,
        created_at=plan.created_at,
        ended_at=root.ended_at,
        tokens=root.tokens,
        dollars=root.dollars,
        output=root.output,
        sources=[*root.sources],
        progress=PlanProgress(
            over=sum(state.is_over for state in states),
            finished=sum(state.status == "finished" for state in states),
            total=len(states),
        ),
        questions=[
            _build_question(question, plan.tasks[question.task_id])
            for question in plan.questions.values()
        ],
        tasks=[*map(_build_task, states)],
        tree=JSONObject(describe_plan(plan)),
    )


def _build_question(question: QuestionAsked, state: TaskState) -> PlanQuestion:
    interrupt = as_object(question.interrupt)
    return PlanQuestion(
        id=question.question_id,
        task_id=question.task_id,
        kind=question.kind,
        text=question.text,
        answers=[*ANSWERS[question.kind]],
        context=[*map(JSONObject, describe_context(question, state))],
        interrupt=JSONObject(interrupt) if interrupt else None,
    )


def _build_task(state: TaskState) -> PlanTask:
    task, parent = state.task, state.parent
    return PlanTask(
        id=state.id,
        parent_id=None if parent is None or parent.id == ROOT else parent.id,
        name=task.name,
        purpose=task.purpose,
        instructions=task.instructions,
        applicability=task.applicability,
        evaluation=task.evaluation,
        depends_on=[*task.depends_on],
        status=state.status,
        assistant=state.assistant,
        score=state.score,
        is_correction=state.round > 0,
        evaluations=[
            PlanEvaluation(round=one.round, passed=one.passed, missing=one.missing)
            for one in state.evaluations
        ],
        rounds=state.rounds,
        reason=state.reason,
        calls=len(state.calls),
        tokens=state.tokens,
        dollars=state.dollars,
        started_at=state.started_at,
        ended_at=state.ended_at,
        output=state.output,
        sources=[*state.sources],
    )
