"""Keeps tasks as resources, below the message that asked for them, as the entries of plans tell.

    common.User.ann/common.Conversation.t1/common.Message.r1/plan.Task.p1/plan.Task.2/plan.Task.1

is the first task of the second one of the plan p1, which the run r1 of the thread t1 has made. What
came of a task is the message `output` below it. So tasks belong to whom the conversation belongs,
and go with it.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextvars import Context
from datetime import UTC, datetime

from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.identifiers import Identifier, contains
from copilot_runtime.extensions.knowledge.policies import build_actor
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.extensions.planner.election import describe_task
from copilot_runtime.extensions.planner.events import (
    ROOT,
    PlanCreated,
    PlanEntry,
    TaskAssigned,
    TaskEnded,
    TaskOutput,
    TaskReopened,
    TasksAdded,
)
from copilot_runtime.extensions.planner.identity import MESSAGE, identify_message, identify_task
from copilot_runtime.extensions.planner.log import PlanLog, PlanQuery
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.tasks import PROPERTIES
from copilot_runtime.threads.store import ThreadKey

OUTPUT = "output"
"""What the message with the outcome of a task is called."""

_RETRY = 5.0
"""Seconds until resources are written again that could not be."""
_PATIENCE = 5.0
"""Seconds for which the end of the server waits for them."""
_MOST_PLANS = 200
"""So many of the latest plans are looked at when the server starts."""
_MOST_OUTPUTS = 500
"""So many outcomes of a conversation are compared with a task."""
_MOST_PASSAGES = 3
_LONGEST = 4000
"""Characters of an outcome that are compared, and that a task is shown."""
_LEAST_SCORE = 0.15

logger = logging.getLogger(__name__)


class TaskResources:
    """Follows plans with resources, and finds outcomes of earlier plans.

    It may be behind, and harms no plan: what cannot be written is tried again, and what a server
    that died had not written is written when the next one starts. A thread that was deleted gets
    no resources any more.
    """

    def __init__(self, knowledge: Knowledge, log: PlanLog) -> None:
        self._knowledge = knowledge
        self._log = log
        self._embedder = HashingEmbedder()
        self._pending: dict[str, tuple[Plan, Collection[str]]] = {}
        """Plans by id, with the tasks that are to be written."""
        self._plans: set[str] = set()
        """Plans of which this server has written everything that came before."""
        self._writer: asyncio.Task[None] | None = None
        self._starter: asyncio.Task[None] | None = None
        self._is_failing = False

    def feed(self, plan: Plan, entry: PlanEntry) -> None:
        """Take what happened to a plan; it is written soon."""
        ids = _find_changes(plan, entry)
        if plan.id not in self._plans:
            ids = [*plan.tasks]
        if not ids or not plan.created.thread_id:
            return
        self._plans.add(plan.id)
        if plan.is_over:
            self._plans.discard(plan.id)
        self._add(plan, ids)

    async def open(self) -> None:
        """Begin to write what a server before this one has not."""
        self._starter = asyncio.create_task(
            self._catch_up(), name="plans: resources", context=Context()
        )
        self._starter.add_done_callback(retrieve_exception)

    async def flush(self) -> None:
        """Wait until all is written that was fed."""
        for task in (self._starter, self._writer):
            if task is not None:
                await asyncio.wait((task,))

    async def aclose(self) -> None:
        """Write what is not written yet, as far as that is possible soon."""
        tasks = [task for task in (self._starter, self._writer) if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def recall(self, state: TaskState, plan: Plan) -> Sequence[Passage]:
        """Return what earlier plans of the conversation found and a task may need, the best first.

        Nothing is sent to a provider of embeddings.
        """
        created = plan.created
        if not created.thread_id:
            return ()
        actor = build_actor(created.user, created.thread_id, agent=state.assistant)
        found = await self._knowledge.resources.find_by_prefix(
            actor.conversation, access=self._knowledge.access(actor)
        )
        own = str(identify_task(plan, ROOT))
        outputs = [
            one
            for one in found
            if (one.type, one.name) == (MESSAGE, OUTPUT) and not contains(own, str(one))
        ]
        resources = await self._knowledge.resources.get(outputs[-_MOST_OUTPUTS:])
        texts = [one.content[:_LONGEST] for one in resources]
        if not texts:
            return ()
        vectors = await self._embedder.embed(texts)
        (query,) = await self._embedder.embed_queries([describe_task(state.task)])
        scores = (vectors @ query).tolist()
        ranked = sorted(zip(scores, texts, resources, strict=True), key=lambda row: -row[0])
        return [
            Passage(id=one.uri, title=str(one.fields.get("title") or ""), text=text, score=score)
            for score, text, one in ranked[:_MOST_PASSAGES]
            if score >= _LEAST_SCORE
        ]

    def _add(self, plan: Plan, ids: Collection[str]) -> None:
        _, others = self._pending.get(plan.id, (plan, ()))
        self._pending[plan.id] = (plan, {*others, *ids})
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(
                self._write_all(), name="plans: resources", context=Context()
            )
            self._writer.add_done_callback(retrieve_exception)

    async def _write_all(self) -> None:
        while self._pending:
            plan, ids = self._pending.pop(next(iter(self._pending)))
            try:
                await self._write(plan, ids)
                self._is_failing = False
            except CopilotError as error:
                newest, others = self._pending.get(plan.id, (plan, ()))
                self._pending[plan.id] = (newest, {*others, *ids})
                if not self._is_failing:
                    logger.warning("Tasks are not kept as resources for now: %s", error.message)
                self._is_failing = True
                await asyncio.sleep(_RETRY)
            except Exception:  # nobody awaits this task
                logger.exception("The tasks of the plan %s are not kept as resources.", plan.id)

    async def _write(self, plan: Plan, ids: Collection[str]) -> None:
        """Write tasks, the plan itself last: if that is there, all before it is."""
        created, resources = plan.created, self._knowledge.resources
        thread = ThreadKey.of(created.user, created.thread_id)
        if not await self._has_thread(thread):
            return
        states = [plan.tasks[id] for id in ids if id != ROOT]
        await resources.put_many(one for state in states for one in _build_resources(plan, state))
        if ROOT in ids:
            message = Resource(identify_message(plan), created.request, role="user")
            await resources.put_many([message, *_build_resources(plan, plan.root)])
        if not await self._has_thread(thread):  # it was deleted meanwhile
            await self._knowledge.forget_thread(*thread)

    async def _has_thread(self, thread: ThreadKey) -> bool:
        threads = self._knowledge.threads
        return threads is None or await threads.get(thread) is not None

    async def _catch_up(self) -> None:
        """Write the latest plans that are over, where that has not been done."""
        try:
            query = PlanQuery(is_everybody=True, limit=_MOST_PLANS)
            for summary in await self._log.list_plans(query):
                if summary.is_over and summary.thread_id:
                    plan = Plan(summary.id)
                    for entry in await self._log.read(summary.id):
                        plan.apply(entry)
                    if not await self._is_written(plan):
                        self._add(plan, plan.tasks)
        except CopilotError as error:
            logger.warning("Tasks of earlier plans are not kept as resources: %s", error.message)

    async def _is_written(self, plan: Plan) -> bool:
        found = await self._knowledge.resources.get([identify_task(plan, ROOT)])
        return bool(found) and found[0].fields.get("status") == plan.root.status


def _find_changes(plan: Plan, entry: PlanEntry) -> Sequence[str]:
    """Return the tasks whose resources are others after an entry."""
    match entry.event:
        case PlanCreated() | TaskReopened():
            return [*plan.tasks]
        case TasksAdded(task_id=id):
            return [state.id for state in plan.tasks[id].walk()]
        case TaskAssigned(task_id=id) | TaskOutput(task_id=id) | TaskEnded(task_id=id):
            return [id]
        case _:
            return ()


def _build_resources(plan: Plan, state: TaskState) -> Sequence[Resource]:
    """Return a task as a resource, and what came of it."""
    task, identifier = state.task, identify_task(plan, state.id)
    fields: JsonObject = {
        "title": task.name,
        **{name: getattr(task, name) for name in PROPERTIES},
        "depends_on": [*task.depends_on] or None,
        "assistant": str(Identifier("common.Assistant", state.assistant))
        if state.assistant
        else None,
        "status": state.status,
        "reason": state.reason or None,
        "completed": state.is_over,
        "completed_at": None
        if state.ended_at is None
        else datetime.fromtimestamp(state.ended_at, UTC).isoformat(),
    }
    resources = [Resource(identifier, describe_task(task), fields=drop_none(fields))]
    if state.output is not None:
        resources.append(
            Resource(
                Identifier(MESSAGE, OUTPUT, str(identifier)),
                state.output,
                role="assistant",
                fields={"title": task.name, "sources": [*state.sources]},
            )
        )
    return resources
