"""Who may see and touch plans: the person they are for, and operators. The only place that decides.

A plan that somebody signed in for is theirs. A plan of nobody belongs to whoever knows its id, or
that of its thread, as the thread itself does. For all others it does not exist. Operators, whom
`transports/traces/access.py` knows, see and touch all.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, get_args

from starlette.types import Scope

from copilot_runtime.api.agent import Agents
from copilot_runtime.api.caller import Caller
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.extensions.planner.agent import PlannerAgent
from copilot_runtime.extensions.planner.engine import PlanEngine, check_retry
from copilot_runtime.extensions.planner.events import ANSWERS, ROOT, Answer, PlanEntry
from copilot_runtime.extensions.planner.feed import TaskText
from copilot_runtime.extensions.planner.log import PlanQuery, PlanSummary, build_missing_error
from copilot_runtime.extensions.planner.places import name_holder
from copilot_runtime.extensions.planner.plan import Plan, Status
from copilot_runtime.threads.store import ThreadKey

if TYPE_CHECKING:
    from copilot_runtime.extensions.access.limits.limiter import Limiter

MOST_PLANS = 200
"""Plans in one answer."""
MOST_NOTE = 20_000
"""Characters that a person may write beside an answer."""

_STATUSES: tuple[Status, ...] = ("running", "waiting", "finished", "failed", "stopped")
"""Where a plan can be."""

_REFUSALS: frozenset[Answer] = frozenset(("reject", "fail"))
"""Answers that give up what is asked about: like a stop, they are always possible."""

IsOperator = Callable[[Scope, Mapping[str, str], Caller], bool]


@dataclass(frozen=True, slots=True)
class PlanViewer:
    """Who asks for plans."""

    caller: Caller
    is_operator: bool = False

    def may_see(self, summary: PlanSummary) -> bool:
        """Return whether a plan whose id they know is there for them."""
        return self.is_operator or summary.user == self.caller.user


@dataclass(frozen=True, slots=True)
class PlanPage:
    """Plans, the newest first."""

    plans: Sequence[PlanSummary]
    next: str | None
    """The `before` of the next page, if there is one."""


class PlanAccess:
    """Has the plans of all planners for those who may see them.

    What somebody may not see is `NotFound`, in the words for what does not exist. All methods
    raise `StoreFailed` if plans cannot be read. What has a plan work counts as a run, and raises
    `QuotaExceeded` before it changes anything, if a `limiter` is given.
    """

    def __init__(
        self, agents: Agents, is_operator: IsOperator, limiter: "Limiter | None" = None
    ) -> None:
        self._agents = agents
        self._is_operator = is_operator
        self._limiter = limiter

    def identify(self, scope: Scope, headers: Mapping[str, str], caller: Caller) -> PlanViewer:
        """Return who sends a request."""
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
        """Return a page of plans. Raises `Misuse` for a status, cursor or limit that is none.

        Where nobody has signed in, and it is no operator, plans are listed by their thread alone.
        """
        if status and status not in _STATUSES:
            raise Misuse(f"status is {status[:40]!r}; it is one of: {', '.join(_STATUSES)}.")
        if not 1 <= limit <= MOST_PLANS:
            raise Misuse(f"limit is a number from 1 to {MOST_PLANS}.")
        user = viewer.caller.user
        query = PlanQuery(
            user=user,
            is_everybody=viewer.is_operator,
            thread_id=thread_id or None,
            status=next((one for one in _STATUSES if one == status), None),
            before=_decode_place(before) if before else None,
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
        plans = sorted(unique.values(), key=lambda summary: summary.place, reverse=True)
        page = plans[:limit]
        return PlanPage(page, _encode_place(page[-1]) if len(plans) > limit else None)

    async def get_plan(self, viewer: PlanViewer, plan_id: str) -> Plan:
        """Return a plan as it is now."""
        engine = await self._find_engine(viewer, plan_id)
        return await engine.get(plan_id)

    async def follow(
        self, viewer: PlanViewer, plan_id: str, after: int = 0
    ) -> AsyncGenerator[PlanEntry | TaskText, None]:
        """Yield what happened behind a number and what happens, to the end of the plan."""
        engine = await self._find_engine(viewer, plan_id)
        async with aclosing(engine.follow(plan_id, after)) as entries:
            async for entry in entries:
                yield entry

    async def stop(self, viewer: PlanViewer, plan_id: str, task_id: str = ROOT) -> Plan:
        """Stop a task with all below it, or the plan, and return the plan."""
        engine = await self._find_engine(viewer, plan_id)
        await engine.stop(plan_id, task_id)
        return await engine.get(plan_id)

    async def retry(self, viewer: PlanViewer, plan_id: str, task_id: str = ROOT) -> Plan:
        """Have a task done again that did not finish, or all such tasks, and return the plan.

        Counts as a question. Raises `Misuse` for a plan that is not over, and for a task that has
        finished.
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
        """Answer an open question, and return the plan. Raises `Misuse` for what is no answer.

        `payload` is for the assistant, if it was its question. To have done again what was
        interrupted counts as a question; other answers go on with what is counted.
        """
        engine = await self._find_engine(viewer, plan_id)
        question = (await engine.get(plan_id)).questions.get(question_id)
        answers: Sequence[str] = ANSWERS[question.kind] if question else get_args(Answer)
        chosen: Answer | None = next((one for one in answers if one == answer), None)
        if chosen is None:
            raise Misuse(
                f"{answer[:100]!r} is no answer. Answer with one of: {', '.join(answers)}."
            )
        if len(note) > MOST_NOTE:
            raise Misuse(f"The note has {len(note)} characters; at most {MOST_NOTE} fit.")
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
        """Count what has a plan work, as a run. Raises `QuotaExceeded`."""
        if self._limiter is None:
            yield
            return
        caller = viewer.caller
        release = await self._limiter.admit_run(
            caller.identity, caller.user, name_holder(plan_id), is_continuation=is_continuation
        )
        try:
            with engine.places.cover(plan_id, caller.identity, caller.user):
                yield
        finally:
            release()

    async def _find_engine(self, viewer: PlanViewer, plan_id: str) -> PlanEngine:
        """Return the engine that has a plan. Raises `NotFound`."""
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
        """Return the engines of the planners that are there for somebody, each once."""
        agents = self._agents
        every: Any = await call(agents, viewer.caller) if callable(agents) else agents
        if not isinstance(every, Mapping):  # a run of an agent says what is wrong with it
            return ()
        engines = [agent.engine for agent in every.values() if isinstance(agent, PlannerAgent)]
        return [*dict.fromkeys(engines)]


def _encode_place(summary: PlanSummary) -> str:
    return f"{summary.created_at!r}~{summary.id}"


def _decode_place(cursor: str) -> tuple[float, str]:
    """Return what `_encode_place` was given. Raises `Misuse`."""
    moment, separator, plan_id = cursor.partition("~")
    try:
        place = float(moment), plan_id
        if not separator or not isfinite(place[0]):
            raise ValueError(cursor)
        return place
    except ValueError:
        raise Misuse(f"before is {cursor[:100]!r}; it is the `next` of the page before.") from None
