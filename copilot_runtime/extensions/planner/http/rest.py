"""OpenAPI declarations of the plan routes, for `/docs`; `endpoint.py` handles the requests."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from copilot_runtime.transports.rest_route import declare_routes, describe_body, describe_stream

_PLAN = "ck-0af7651916cd43dd8448eb211c80319c"
_TASK = {
    "id": "1.2",
    "name": "Compare the fares",
    "purpose": "Find the cheapest of the three.",
    "status": "running",
    "assistant": "analyst",
    "score": 0.82,
}
Status = Literal["running", "waiting", "finished", "failed", "stopped"]


class PlanSummaryModel(BaseModel):
    """The summary of a plan. Times are seconds since 1970."""

    id: str = Field(examples=[_PLAN])
    user: str | None = Field(examples=["ann"])
    thread_id: str = Field(examples=["thread-1"])
    created_at: float = Field(examples=[1767268800.5])
    updated_at: float = Field(examples=[1767268812.0])
    status: Status = Field(examples=["running"])
    title: str = Field(examples=["Plan a trip to Oslo."])


class PlanPageModel(BaseModel):
    """Plans, the newest first; `next` is the `before` of the next page."""

    plans: list[PlanSummaryModel]
    next: str | None = Field(examples=[None])
    is_operator: bool = Field(description="Whether these are plans of all users.", examples=[False])
    user: str | None = Field(description="Who asks; null without a login.", examples=["ann"])


class PlanProgress(BaseModel):
    """The number of tasks: all, ended, and finished successfully."""

    over: int = Field(examples=[3])
    finished: int = Field(examples=[3])
    total: int = Field(examples=[7])


class PlanModel(BaseModel):
    """A plan and the tree of its tasks; each may have `tasks` itself."""

    id: str = Field(examples=[_PLAN])
    request: str = Field(examples=["Plan a trip to Oslo."])
    status: Status = Field(examples=["running"])
    reason: str = Field(examples=[""])
    progress: PlanProgress
    tokens: int = Field(
        description="Of all requests to models, planning included.", examples=[4210]
    )
    dollars: float = Field(examples=[0.0124])
    created_at: float = Field(examples=[1767268800.5])
    ended_at: float | None = Field(examples=[None])
    questions: list[dict[str, Any]] = Field(examples=[[]])
    tasks: list[dict[str, Any]] = Field(examples=[[_TASK]])
    number: int = Field(description="Of its last event.", examples=[31])
    user: str | None = Field(examples=["ann"])
    thread_id: str = Field(examples=["thread-1"])
    run_id: str = Field(examples=["run-1"])
    agent: str = Field(examples=["planner"])
    trace_id: str = Field(examples=["4bf92f3577b34da6a3ce929d0e0e4736"])
    limits: dict[str, Any] = Field(examples=[{"depth": 5, "width": 20, "tasks": 200}])


class TaskModel(BaseModel, extra="allow"):
    """A task with all its fields."""

    id: str = Field(examples=["1.2"])
    name: str = Field(examples=["Compare the fares"])
    purpose: str = Field(examples=["Find the cheapest of the three."])
    status: str = Field(examples=["finished"])
    calls: list[dict[str, Any]] = Field(
        examples=[[{"id": "call-1", "tool": "find_fares", "arguments": "{}", "result": "[12, 30]"}]]
    )
    evaluations: list[dict[str, Any]] = Field(
        examples=[[{"round": 0, "passed": False, "missing": "No currency."}]]
    )
    questions: list[dict[str, Any]] = Field(examples=[[]])
    sources: list[str] = Field(examples=[[]])


class AnswerRequest(BaseModel):
    """A person's answer; only the first question of a plan or task needs no `question_id`.

    Answer an approval with `approve` or `reject`; an interrupted call or task with `retry`, `done`
    (with its result as the note) or `fail`; a question of an assistant with `resolve` or `cancel`.
    """

    question_id: str = Field(default="", examples=["ck-1f"])
    answer: str = Field(examples=["approve"])
    note: str = Field(default="", examples=["Book it."])
    payload: Any = Field(default=None, description="For an assistant that asked.", examples=[None])


class PlanListQuery(BaseModel):
    """Filters and position of a list of plans."""

    thread_id: str = Field("", description="Plans of a thread.")
    status: str = Field("", description="running, waiting, finished, failed or stopped.")
    before: str = Field("", description="The `next` of the previous page.")
    limit: str = Field("", description="Maximum number of plans, from 1 to 200.")


_EVENTS = {
    **describe_stream("Server-sent events, each with JSON that has a `type`; the id is `number`."),
    204: {"description": "The plan is over, and nothing is behind that number."},
}
PlanId = Annotated[str, Path(examples=[_PLAN])]
TaskId = Annotated[str, Path(examples=["1.2"])]


@declare_routes("plans", "/plans")
def rest_routes(plans: APIRouter) -> None:
    """Declare the routes of plans."""

    @plans.get("", response_model=PlanPageModel)
    async def list_plans(query: Annotated[PlanListQuery, Query()]) -> None:
        """List your plans, newest first; operators see the plans of all users."""

    @plans.get("/{plan}/events", response_class=Response, responses=_EVENTS)
    async def stream(plan: PlanId, after: str = "") -> None:
        """Stream the events of a plan after a number, with the text of its tasks, to its end."""

    @plans.get("/{plan}", response_model=PlanModel)
    async def show(plan: PlanId) -> None:
        """Get the current state of a plan."""

    @plans.get("/{plan}/tasks/{task}", response_model=TaskModel)
    async def show_task(plan: PlanId, task: TaskId) -> None:
        """Get all fields of a task: its calls, its output and its evaluations."""

    body = describe_body(AnswerRequest)

    @plans.post("/{plan}/stop", response_model=PlanModel)
    async def stop(plan: PlanId) -> None:
        """Stop a plan. It has no effect if the plan has ended."""

    @plans.post("/{plan}/retry", response_model=PlanModel)
    async def retry(plan: PlanId) -> None:
        """Retry all unfinished tasks of an ended plan."""

    @plans.post("/{plan}/answer", response_model=PlanModel, openapi_extra=body)
    async def answer(plan: PlanId) -> None:
        """Answer a question of a plan."""

    @plans.post("/{plan}/tasks/{task}/stop", response_model=PlanModel)
    async def stop_task(plan: PlanId, task: TaskId) -> None:
        """Stop a task and its subtasks."""

    @plans.post("/{plan}/tasks/{task}/retry", response_model=PlanModel)
    async def retry_task(plan: PlanId, task: TaskId) -> None:
        """Retry an unfinished task, and the tasks that were skipped for it."""

    @plans.post("/{plan}/tasks/{task}/answer", response_model=PlanModel, openapi_extra=body)
    async def answer_task(plan: PlanId, task: TaskId) -> None:
        """Answer a question of a task."""
