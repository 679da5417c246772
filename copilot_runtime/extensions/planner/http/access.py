"""Authorization of access to plans, for REST, GraphQL and gRPC.

A plan belongs to the user who created it. A plan of an anonymous user is accessible with its id or
its thread's id, as the thread itself is. For all others it does not exist. Operators have access to
all plans.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, get_args

from starlette.types import Scope

from copilot_runtime.api.agent import Agents
from copilot_runtime.api.identity import Caller
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.engine import PlanEngine, check_retry
from copilot_runtime.extensions.planner.events import ANSWERS, ROOT, Answer, PlanEntry
from copilot_runtime.extensions.planner.feed import TaskText
from copilot_runtime.extensions.planner.log import PlanQuery, PlanSummary, build_missing_error
from copilot_runtime.extensions.planner.plan import Plan, Status
from copilot_runtime.extensions.planner.slots import name_slot_holder
from copilot_runtime.threads.store import ThreadKey

if TYPE_CHECKING:
    from copilot_runtime.extensions.access.limits.limiter import Limiter

MAX_PLANS = 200
"""Maximum plans on a page."""
MAX_NOTE = 20_000
"""Maximum characters of an answer's note."""

_STATUSES: tuple[Status, ...] = ("running", "waiting", "finished", "failed", "stopped")
"""The possible statuses of a plan."""

_REFUSALS: frozenset[Answer] = frozenset(("reject", "fail"))
"""Answers that give a task up: like a stop, they count against no limit."""

IsOperator = Callable[[Scope, Mapping[str, str], Caller], bool]


@dataclass(frozen=True, slots=True)
class PlanViewer:
    """The caller of a request for plans."""

    caller: Caller
    is_operator: bool = False

    def may_see(self, summary: PlanSummary) -> bool:
        """Return `True` if the caller may see the plan, knowing its id."""
        return self.is_operator or summary.user == self.caller.user


@dataclass(frozen=True, slots=True)
class PlanPage:
    """A page of plans, newest first."""

    plans: Sequence[PlanSummary]
    next: str | None
    """The cursor of the next page, for `before`, or `None` on the last page."""


class PlanAccess:
    """Access to the plans of all planners, with authorization.

    A plan that the caller may not see raises the same `NotFound` as one that does not exist. All
    methods raise `StoreFailed` if the store is not available. With a `limiter`, operations that
    resume a plan count as runs, and raise `QuotaExceeded` before they change anything.
    """

    def __init__(
        self, agents: Agents, is_operator: IsOperator, limiter: "Limiter | None" = None
    ) -> None:
        self._agents = agents
        self._is_operator = is_operator
        self._limiter = limiter

    def identify(self, scope: Scope, headers: Mapping[str, str], caller: Caller) -> PlanViewer:
        """Return the viewer of a request."""
        return PlanViewer(caller, self._is_operator(scope, headers, caller))

    async def list_plans(
        self,
        viewer: PlanViewer,
        *,
        thread_id: str = "",
        status: str = "",
        before: str = "",
        limit: int = 50,
    ) -> PlanPage:
        """Return a page of plans. Raises `Misuse` for an invalid status, cursor or limit.

        For an anonymous caller who is not an operator, the list is empty without a `thread_id`.
        """
        if status and status not in _STATUSES:
            raise Misuse(f"status is {status[:40]!r}; it is one of: {', '.join(_STATUSES)}.")
        if not 1 <= limit <= MAX_PLANS:
            raise Misuse(f"limit is a number from 1 to {MAX_PLANS}.")
        user = viewer.caller.user
        query = PlanQuery(
            user=user,
            all_users=viewer.is_operator,
            thread_id=thread_id or None,
            status=next((one for one in _STATUSES if one == status), None),
            before=_decode_cursor(before) if before else None,
            limit=limit + 1,
        )
        if user is None and not (viewer.is_operator or thread_id):
            return PlanPage((), None)
        found = [
            summary
            for engine in await self._list_engines(viewer)
            for summary in await engine.log.list_plans(query)
        ]
        unique = {summary.id: summary for summary in found}  # planners may share a file
        plans = sorted(unique.values(), key=lambda summary: summary.sort_key, reverse=True)
        page = plans[:limit]
        return PlanPage(page, _encode_cursor(page[-1]) if len(plans) > limit else None)

    async def get_plan(self, viewer: PlanViewer, plan_id: str) -> Plan:
        """Return the current state of a plan."""
        engine = await self._find_engine(viewer, plan_id)
        return await engine.get(plan_id)

    async def follow(
        self, viewer: PlanViewer, plan_id: str, after: int = 0
    ) -> AsyncGenerator[PlanEntry | TaskText, None]:
        """Yield all entries after a number, then live entries and text, until the plan ends."""
        engine = await self._find_engine(viewer, plan_id)
        async with aclosing(engine.follow(plan_id, after)) as entries:
            async for entry in entries:
                yield entry

    async def stop(self, viewer: PlanViewer, plan_id: str, task_id: str = ROOT) -> Plan:
        """Stop a task with its subtasks, or the whole plan; return the plan."""
        engine = await self._find_engine(viewer, plan_id)
        await engine.stop(plan_id, task_id)
        return await engine.get(plan_id)

    async def retry(self, viewer: PlanViewer, plan_id: str, task_id: str = ROOT) -> Plan:
        """Retry a task that did not finish, or all such tasks; return the plan.

        Counts as a new run. Raises `Misuse` if the plan has not ended or the task has finished.
        """
        engine = await self._find_engine(viewer, plan_id)
        check_retry(await engine.get(plan_id), task_id)
        async with self._admit(viewer, engine, plan_id, is_continuation=False):
            await engine.retry(plan_id, task_id)
        return await engine.get(plan_id)

    async def answer(
        self,
        viewer: PlanViewer,
        plan_id: str,
        question_id: str,
        answer: str,
        note: str = "",
        payload: JsonValue = None,
    ) -> Plan:
        """Answer an open question; return the plan. Raises `Misuse` if the answer does not fit.

        `payload` is the response to the assistant, if it asked the question. The answer `retry`
        counts as a new run; other answers continue a run that was counted.
        """
        engine = await self._find_engine(viewer, plan_id)
        question = (await engine.get(plan_id)).questions.get(question_id)
        answers: Sequence[str] = ANSWERS[question.kind] if question else get_args(Answer)
        chosen: Answer | None = next((one for one in answers if one == answer), None)
        if chosen is None:
            raise Misuse(
                f"{answer[:100]!r} is no answer. Answer with one of: {', '.join(answers)}."
            )
        if len(note) > MAX_NOTE:
            raise Misuse(f"The note has {len(note)} characters; at most {MAX_NOTE} fit.")
        user = viewer.caller.user
        async with AsyncExitStack() as stack:
            if question is not None and chosen not in _REFUSALS:
                is_continuation = chosen != "retry"
                admission = self._admit(viewer, engine, plan_id, is_continuation=is_continuation)
                await stack.enter_async_context(admission)
            await engine.answer(plan_id, question_id, chosen, note=note, user=user, payload=payload)
        return await engine.get(plan_id)

    @asynccontextmanager
    async def _admit(
        self, viewer: PlanViewer, engine: PlanEngine, plan_id: str, *, is_continuation: bool
    ) -> AsyncGenerator[None]:
        """Count an operation that resumes a plan as a run. Raises `QuotaExceeded`."""
        if self._limiter is None:
            yield
            return
        caller = viewer.caller
        release = await self._limiter.admit_run(
            caller.identity, caller.user, name_slot_holder(plan_id), is_continuation=is_continuation
        )
        try:
            with engine.slots.share(plan_id, caller.identity, caller.user):
                yield
        finally:
            release()

    async def _find_engine(self, viewer: PlanViewer, plan_id: str) -> PlanEngine:
        """Return the engine whose log has a plan. Raises `NotFound`."""
        for engine in await self._list_engines(viewer):
            try:
                summary = await engine.log.find(plan_id)
            except NotFound:
                continue
            if viewer.may_see(summary):
                return engine
        raise build_missing_error(plan_id)

    async def forget_thread(self, thread: ThreadKey) -> None:
        """Stop and delete the plans of a thread."""
        for engine in await self._list_engines(PlanViewer(Caller(user=thread.owner or None))):
            await engine.forget_thread(thread)

    async def _list_engines(self, viewer: PlanViewer) -> Sequence[PlanEngine]:
        """Return the distinct engines of the planners that the viewer may use."""
        agents = self._agents
        every: Any = await call(agents, viewer.caller) if callable(agents) else agents
        if not isinstance(every, Mapping):  # running an agent reports this error
            return ()
        engines = [agent.engine for agent in every.values() if isinstance(agent, PlannerAgent)]
        return [*dict.fromkeys(engines)]


def _encode_cursor(summary: PlanSummary) -> str:
    return f"{summary.created_at!r}~{summary.id}"


def _decode_cursor(cursor: str) -> tuple[float, str]:
    """Decode a cursor of `_encode_cursor`. Raises `Misuse` if it is malformed."""
    moment, separator, plan_id = cursor.partition("~")
    try:
        place = float(moment), plan_id
        if not separator or not isfinite(place[0]):
            raise ValueError(cursor)
        return place
    except ValueError:
        raise Misuse(f"before is {cursor[:100]!r}; it is the `next` of the page before.") from None
