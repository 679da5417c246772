"""Deduplicate repeated requests by the client's run identifier within a thread."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import Cancelled, NotFound, ThreadBusy
from copilot_runtime.runtime.admission import Admission
from copilot_runtime.runtime.interrupts import answers_question
from copilot_runtime.runtime.reader import replay_run
from copilot_runtime.runtime.run import Log, Run
from copilot_runtime.threads.log_ids import LogStatus, asks_same
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadStore

ReadRuns = Callable[[ThreadKey], Awaitable[Sequence[StoredRun]]]
FollowRun = Callable[[ThreadKey, str], Awaitable[Log]]
"""Returns the log of a run of a thread, in whichever process it is. Raises `NotFound`."""

_MAX_WITHDRAWN = 1_000
"""Maximum number of runs remembered as stopped before they started."""


class Idempotency:
    """Finds the run that an earlier copy of the same request has started.

    A different question with the same identifier is a different run.
    """

    def __init__(
        self, store: ThreadStore, admission: Admission, runs: ReadRuns, follow_run: FollowRun
    ) -> None:
        self._store = store
        self._admission = admission
        self._runs = runs
        self._follow_run = follow_run
        self._withdrawn: dict[tuple[ThreadKey, str], tuple[str, str]] = {}
        """The last runs that were stopped before they started, by thread and run identifier: the
        identifier of the log and the message for the readers."""

    async def find_here(self, request: RunInput) -> Log | None:
        """Return the log of a repeated request's run if it is active or queued in this process.

        Returns `None` if there is no such run. Raises `Cancelled` if it was stopped before it
        started.
        """
        thread = ThreadKey.of(request.user, request.thread_id)
        for run in self._admission.list_runs(thread):
            if run.is_repeated_by(request):
                request.identity.require("runs:start")
                if (log := await run.wait_for_log()) is not None:
                    return log
        withdrawn = self._withdrawn.get((thread, request.run_id))
        if withdrawn is not None and asks_same(withdrawn[0], request.log_id):
            raise Cancelled(withdrawn[1])
        return None

    async def find_in_store(self, request: RunInput) -> Log | None:
        """Return the log of a repeated request's run from the store, or `None`."""
        logs = await convert_exits(
            self._store.find_logs(ThreadKey.of(request.user, request.thread_id), request.run_id)
        )
        same = [log for log in logs if asks_same(log.log_id, request.log_id)]
        return await self._read_log(request, same[-1]) if same else None

    def note_stop(self, thread: ThreadKey, run: Run) -> None:
        """Remember a run that was stopped before it started, in case of a repeated request."""
        if run.state == "refused" and run.stop_requested.done():
            message = run.build_cancellation().message
            self._withdrawn[thread, run.request.run_id] = run.log_id, message
            if len(self._withdrawn) > _MAX_WITHDRAWN:
                del self._withdrawn[next(iter(self._withdrawn))]

    async def _read_log(self, request: RunInput, found: LogStatus) -> Log | None:
        """Return the log of the run that an earlier copy of the request started.

        Returns `None` if the request needs a new run: it answers a question that is open again, or
        the thread was deleted.
        """
        request.identity.require("runs:start")
        thread = ThreadKey.of(request.user, request.thread_id)
        if not found.ended:
            with suppress(NotFound):
                return await self._follow_run(thread, found.log_id)
            await convert_exits(self._store.end_dead_run(thread, found.log_id))
        runs = await self._runs(thread)
        if await answers_question(request.resume, runs):
            return None
        run = next((run for run in runs if run.log_id == found.log_id), None)
        if run is not None and not run.ended:
            raise ThreadBusy(
                "This question is being answered by another server process, which cannot be "
                "reached at the moment. Please try again."
            )
        return None if run is None else replay_run(run)
