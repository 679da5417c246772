"""The plan log in PostgreSQL with DBOS workflows, so that DBOS's console shows and stops plans."""

import asyncio
import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    MissingPackage,
    StoreFailed,
)
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.planner.events import (
    ROOT,
    PlanEntry,
    PlanEvent,
    QuestionAsked,
    StopRequested,
    TaskEnded,
)
from copilot_runtime.extensions.planner.log import Lease, PlanSummary
from copilot_runtime.extensions.planner.postgres.log import PostgresPlanLog

logger = logging.getLogger(__name__)

_NAME = "copilot_plan"
_APP = "copilot-runtime"
_VERSION = "plans-1"
"""DBOS recovers only workflows of the same version: increase it with the parameters of
`_follow_plan`."""

_POLL = 1.0
"""Seconds between a workflow's polls of its plan."""


class DbosPlanLog(PostgresPlanLog):
    """Plans in PostgreSQL, each with a DBOS workflow in the same database.

    The workflow follows its plan to the end, with a step for each ended task and each question.
    Cancelling it in DBOS stops the plan. Events and leases stay in our tables, because DBOS has no
    fencing: a server that is wrongly considered dead would continue, and each step would run twice.

    DBOS is a singleton of the process, and so is this log.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._address = url
        self._dbos = _import_dbos()
        self._is_launched = False
        self._has_ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def _open(self) -> None:
        await super()._open()
        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.to_thread(self._launch)
        except BaseException as error:
            await super().aclose()
            if isinstance(error, Exception) and not isinstance(error, CopilotError):
                raise StoreFailed(
                    f"DBOS cannot be started: {error}",
                    hint="Its tables are in the schema dbos of the same database, where the user "
                    "must be allowed to make a schema.",
                    public="The plans cannot be used.",
                ) from error
            raise

    def _launch(self) -> None:
        DBOS = self._dbos.DBOS  # noqa: N806  # its name
        if _OPEN:
            raise ConfigurationFailed("DBOS is one for a process: two planners cannot have it.")
        assert self._server is not None
        _OPEN.append(self)
        try:
            dbos = DBOS(
                config={
                    "name": _APP,
                    "system_database_url": self._address,
                    "application_version": _VERSION,
                    "executor_id": str(self._server.id),
                    "log_level": "WARNING",
                    "run_admin_server": False,
                }
            )
            if dbos._launched:
                raise ConfigurationFailed(
                    "The program uses DBOS itself, which is one for a process.",
                    hint="Keep plans in postgresql://..., or serve them in another process.",
                )
            _register(DBOS)
            self._launch_or_destroy(DBOS)
        except BaseException:
            _OPEN.remove(self)
            raise
        self._is_launched = True

    def _launch_or_destroy(self, dbos: Any) -> None:
        try:
            dbos.launch()
        except BaseException:
            dbos.destroy()
            raise

    async def create(
        self, summary: PlanSummary, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        lease, entries = await super().create(summary, events)
        await self._try(lambda: self._start(lease.plan_id, lease.plan_id, 0))
        return lease, entries

    async def claim(self) -> Sequence[Lease]:
        leases = await super().claim()
        for lease in leases:
            await self._try(lambda plan_id=lease.plan_id: self._resume(plan_id))
        return leases

    async def claim_plan(
        self, plan_id: str, number: int, events: Sequence[PlanEvent]
    ) -> tuple[Lease, Sequence[PlanEntry]]:
        lease, entries = await super().claim_plan(plan_id, number, events)
        # an ended workflow cannot be restarted: each retry has a workflow of its own
        await self._try(lambda: self._start(f"{plan_id}:{lease.epoch}", plan_id, number))
        return lease, entries

    async def aclose(self) -> None:
        if self._is_launched:
            self._is_launched = False
            self._has_ended.set()
            await asyncio.to_thread(self._dbos.DBOS.destroy)
            self._has_ended.clear()
            _OPEN.remove(self)
        await super().aclose()

    async def _try(self, work: Callable[[], None]) -> None:
        """Call DBOS in a thread; an error is logged, and never fails a plan."""
        try:
            await asyncio.to_thread(work)
        except Exception as error:
            logger.warning("DBOS does not know what becomes of a plan: %s", error)

    def _start(self, workflow_id: str, plan_id: str, after: int) -> None:
        with self._dbos.SetWorkflowID(workflow_id):
            self._dbos.DBOS.start_workflow(_register(self._dbos.DBOS), plan_id, after)

    def _resume(self, plan_id: str) -> None:
        """Resume the workflows of a dead server's plan on this server."""
        found = self._dbos.DBOS.list_workflows(
            name=_NAME, workflow_id_prefix=plan_id, status=["PENDING", "ENQUEUED"]
        )
        for workflow in found:
            self._dbos.DBOS.resume_workflow(workflow.workflow_id)
        if not found:  # the server died right after it stored the plan
            self._start(plan_id, plan_id, 0)

    def wait_for_change(self, plan_id: str, after: int) -> JsonObject:
        """Wait for the next change of a plan and return it: the body of a step, in a
        DBOS thread.
        """
        workflow_id = self._dbos.DBOS.workflow_id
        while not (change := self._call(self._find_change(plan_id, after))):
            if self._dbos.DBOS.get_workflow_status(workflow_id).status == "CANCELLED":
                self._call(self.add_command(plan_id, StopRequested(task_id=ROOT)))
                return {"after": after, "cancelled": True}
            self._has_ended.wait(_POLL)
        return change

    def _call(self, work: Any) -> Any:
        if self._has_ended.is_set() or self._loop is None:
            work.close()
            raise _Ended
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _find_change(self, plan_id: str, after: int) -> JsonObject:
        """Return the next end of a task or the next question, or an empty object if
        there is none.
        """
        for entry in await self.read(plan_id, after):
            match entry.event:
                case TaskEnded(task_id=id, outcome=outcome, reason=reason):
                    outcomes: JsonObject = {"task": id, "outcome": outcome, "reason": reason}
                    return {"after": entry.number, **outcomes, "is_over": id == ROOT}
                case QuestionAsked(task_id=id, text=text):
                    return {"after": entry.number, "task": id, "question": text}
                case _:
                    pass
        return {}


_OPEN: list[DbosPlanLog] = []
"""The open log of this process, for the workflow function, which DBOS calls without it."""


class _Ended(BaseException):
    """Raised in workflows at shutdown. DBOS stores no result, so another server resumes them."""


def _follow_plan(plan_id: str, after: int) -> str:
    """Follow a plan to its end, and return its outcome."""
    DBOS = _import_dbos().DBOS  # noqa: N806  # its name
    while True:
        if not _OPEN:
            raise _Ended
        step: JsonObject = DBOS.run_step(
            {"name": "follow"}, _OPEN[0].wait_for_change, plan_id, after
        )
        after = step["after"]
        if step.get("is_over"):
            return step["outcome"]


_REGISTERED: dict[Any, Any] = {}


def _register(dbos: Any) -> Any:
    """Return the workflow function, registered once per process."""
    if dbos not in _REGISTERED:
        _REGISTERED[dbos] = dbos.workflow(name=_NAME)(_follow_plan)
    return _REGISTERED[dbos]


def _import_dbos() -> Any:
    try:
        return importlib.import_module("dbos")
    except ModuleNotFoundError as error:
        raise MissingPackage("The workflows of plans", "dbos", "dbos") from error
