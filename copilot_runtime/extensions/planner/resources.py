"""Stores tasks as resources of the knowledge extension, below the message that requested the plan.

common.User.ann/common.Conversation.t1/common.Message.r1/plan.Task.p1/plan.Task.2/plan.Task.1

is the first subtask of the second task of the plan p1, which the run r1 of the thread t1 created.
The output of a task is the message `output` below it. So tasks have the owner of their conversation
and are deleted with it.
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
from copilot_runtime.extensions.planner.log import PlanLog, PlanQuery
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.publish import MESSAGE, identify_message, identify_task
from copilot_runtime.extensions.planner.tasks import PROPERTIES
from copilot_runtime.threads.store import ThreadKey

OUTPUT = "output"
"""The name of the message with a task's output."""

_RETRY = 5.0
"""Seconds before a failed write is retried."""
_CLOSE_TIMEOUT = 5.0
"""Maximum seconds to wait for pending writes at shutdown."""
_MAX_PLANS = 200
"""Number of recent plans that are checked at startup."""
_MAX_OUTPUTS = 500
"""Maximum outputs of a conversation that are compared with a task."""
_MAX_PASSAGES = 3
_MAX_LENGTH = 4000
"""Maximum characters of an output that are compared and recalled."""
_MIN_SCORE = 0.15

logger = logging.getLogger(__name__)


class TaskResources:
    """Plan listener that stores tasks as resources, and recalls outputs of earlier plans.

    Writes are asynchronous and never fail a plan: failed ones are retried, and those that a dead
    server missed are made up when the next one starts. Nothing is written for deleted threads.
    """

    def __init__(self, knowledge: Knowledge, log: PlanLog) -> None:
        self._knowledge = knowledge
        self._log = log
        self._embedder = HashingEmbedder()
        self._pending: dict[str, tuple[Plan, Collection[str]]] = {}
        """Plans by id, with the ids of tasks that need a write."""
        self._plans: set[str] = set()
        """Ids of running plans whose tasks this server has written completely once."""
        self._writer: asyncio.Task[None] | None = None
        self._starter: asyncio.Task[None] | None = None
        self._is_failing = False

    def on_entry(self, plan: Plan, entry: PlanEntry) -> None:
        """Queue a write of the tasks that an entry has changed."""
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
        """Start to write tasks that earlier servers have missed."""
        self._starter = asyncio.create_task(
            self._catch_up(), name="plans: resources", context=Context()
        )
        self._starter.add_done_callback(retrieve_exception)

    async def flush(self) -> None:
        """Wait for all queued writes."""
        for task in (self._starter, self._writer):
            if task is not None:
                await asyncio.wait((task,))

    async def aclose(self) -> None:
        """Finish queued writes within a time limit, and cancel the rest."""
        tasks = [task for task in (self._starter, self._writer) if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def recall(self, state: TaskState, plan: Plan) -> Sequence[Passage]:
        """Return the most relevant outputs of the conversation's earlier plans, best first.

        They are compared by a local embedder; nothing is sent to a provider.
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
        resources = await self._knowledge.resources.get(outputs[-_MAX_OUTPUTS:])
        texts = [one.content[:_MAX_LENGTH] for one in resources]
        if not texts:
            return ()
        vectors = await self._embedder.embed(texts)
        (query,) = await self._embedder.embed_queries([describe_task(state.task)])
        scores = (vectors @ query).tolist()
        ranked = sorted(zip(scores, texts, resources, strict=True), key=lambda row: -row[0])
        return [
            Passage(id=one.uri, title=str(one.fields.get("title") or ""), text=text, score=score)
            for score, text, one in ranked[:_MAX_PASSAGES]
            if score >= _MIN_SCORE
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
            except Exception:  # no caller awaits this task
                logger.exception("The tasks of the plan %s are not kept as resources.", plan.id)

    async def _write(self, plan: Plan, ids: Collection[str]) -> None:
        """Write tasks, and the plan itself last, so that its presence implies that of the tasks."""
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
        """Write recent ended plans that are missing or outdated."""
        try:
            query = PlanQuery(all_users=True, limit=_MAX_PLANS)
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
    """Return the ids of the tasks whose resources an entry changes."""
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
    """Return the resources of a task and, if it has one, of its output."""
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
