"""What a run takes from the thread that it continues: its conversation, and its open questions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from copilot_runtime.interfaces import Agent, HistoryOwner, RunInput
from copilot_runtime.runtime.history import restore_history, select_owner
from copilot_runtime.runtime.interrupts import check_answers
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadStore


@dataclass(frozen=True, slots=True)
class ThreadPolicy:
    """Where threads are, and whose conversation agents get that do not say it themselves."""

    store: ThreadStore | None = None
    history: HistoryOwner = "client"

    async def continue_thread(self, run: RunInput, agent: Agent | None) -> tuple[RunInput, bool]:
        """Return a run with its conversation, and whether readers have to be sent that anew.

        Raises `Misuse` for an answer to no open question of the thread. Of runs that are stored
        nowhere, only the agent knows what it asked.
        """
        owns_history = select_owner(self.history, agent) == "server"
        answers = run.persist and bool(run.resume)
        if self.store is None or not (owns_history or answers):
            return run, False
        runs = await self.store.runs(ThreadKey(run.user or "", run.thread_id))
        if answers:
            await _check_answers(run, runs)
        if not owns_history or not (runs or run.persist):
            return run, False
        history = restore_history(run, runs)
        return replace(run, messages=history.messages), history.is_rewritten and run.persist

    async def confirm_answers(self, run: RunInput) -> None:
        """Raise `Misuse` if an answer was given meanwhile, by way of another server.

        The log of the run has begun, so that no other run of the thread can.
        """
        if self.store is None or not (run.persist and run.resume):
            return
        runs = await self.store.runs(ThreadKey(run.user or "", run.thread_id))
        await _check_answers(run, [it for it in runs if it.log_id != run.log_id])


async def _check_answers(run: RunInput, runs: Sequence[StoredRun]) -> None:
    """Raise `Misuse` for an answer to no open question of the runs before.

    A thread that is not here has asked nothing that has an id. Pages of v1 send none: whether
    they answer a question of before a restart, say, only the agent knows. To give up what nobody
    asked is harmless.
    """
    if runs or any(it.interrupt_id is not None and it.status != "cancelled" for it in run.resume):
        await check_answers(run.resume, runs)
