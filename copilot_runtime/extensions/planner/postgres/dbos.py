"""Plans in PostgreSQL that are workflows of DBOS, too: its console shows them and stops them."""

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
    StopAsked,
    TaskEnded,
)
from copilot_runtime.extensions.planner.log import Lease, PlanSummary
from copilot_runtime.extensions.planner.postgres.log import PostgresPlanLog

logger = logging.getLogger(__name__)

_NAME = "copilot_plan"
_APP = "copilot-runtime"
_VERSION = "plans-1"
"""DBOS recovers workflows of the same version only: it rises when `_follow_plan` takes others."""

_POLL = 1.0
"""Seconds between two looks of a workflow at its plan."""


class DbosPlanLog(PostgresPlanLog):
    """Plans in PostgreSQL, each with a workflow of DBOS in the same database.

    The workflow follows its plan to the end: a step for each task that ended and each question.
    Who cancels it in DBOS stops the plan. Events and leases stay ours, because DBOS has nothing
    that keeps a server which is wrongly taken for dead from going on: both would do each step.

    DBOS is one for a process, and so is this log.
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
        # a workflow that has ended does not begin again: each time it is done has its own
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
        """Have DBOS do something: no plan fails because it cannot."""
        try:
            await asyncio.to_thread(work)
        except Exception as error:
            logger.warning("DBOS does not know what becomes of a plan: %s", error)

    def _start(self, workflow_id: str, plan_id: str, after: int) -> None:
        with self._dbos.SetWorkflowID(workflow_id):
            self._dbos.DBOS.start_workflow(_register(self._dbos.DBOS), plan_id, after)

    def _resume(self, plan_id: str) -> None:
        """Have the workflows of a plan go on here, whose server is dead."""
        found = self._dbos.DBOS.list_workflows(
            name=_NAME, workflow_id_prefix=plan_id, status=["PENDING", "ENQUEUED"]
        )
        for workflow in found:
            self._dbos.DBOS.resume_workflow(workflow.workflow_id)
        if not found:  # the server died right after it had stored the plan
            self._start(plan_id, plan_id, 0)

    def wait_for_change(self, plan_id: str, after: int) -> JsonObject:
        """Return what is new in a plan, in a thread of DBOS: the body of a step."""
        workflow_id = self._dbos.DBOS.workflow_id
        while not (change := self._call(self._find_change(plan_id, after))):
            if self._dbos.DBOS.get_workflow_status(workflow_id).status == "CANCELLED":
                self._call(self.add_command(plan_id, StopAsked(task_id=ROOT)))
                return {"after": after, "cancelled": True}
            self._has_ended.wait(_POLL)
        return change

    def _call(self, work: Any) -> Any:
        if self._has_ended.is_set() or self._loop is None:
            work.close()
            raise _Ended
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _find_change(self, plan_id: str, after: int) -> JsonObject:
        """Return the next end of a task, or the next question; empty if there is none yet."""
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
"""The log of this process. DBOS calls functions, which know no log."""


class _Ended(BaseException):
    """The server ends. DBOS stores nothing of it, so the workflow goes on elsewhere."""


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
    """Return the workflow, which DBOS knows for the whole process."""
    if dbos not in _REGISTERED:
        _REGISTERED[dbos] = dbos.workflow(name=_NAME)(_follow_plan)
    return _REGISTERED[dbos]


def _import_dbos() -> Any:
    try:
        return importlib.import_module("dbos")
    except ModuleNotFoundError as error:
        raise MissingPackage("The workflows of plans", "dbos", "dbos") from error
