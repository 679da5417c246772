"""What a run takes from the thread that it continues: its conversation, and its open questions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from copilot_runtime.api.agent import Agent, HistoryOwner
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.runtime.history import restore_history, select_owner
from copilot_runtime.runtime.interrupts import check_agent, check_answers, find_asking_run
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadStore


class Continuation(NamedTuple):
    """A run with the conversation of its thread."""

    run: RunInput
    is_rewritten: bool = False
    """Whether the readers of the thread have to be sent the conversation anew."""
    asking: StoredRun | None = None
    """The run whose questions it answers: its agent alone gets the answers."""


@dataclass(frozen=True, slots=True)
class ThreadPolicy:
    """Where threads are, and whose conversation agents get that do not say it themselves."""

    store: ThreadStore | None = None
    history: HistoryOwner = "client"

    async def continue_thread(self, run: RunInput, agent: Agent | None) -> Continuation:
        """Return a run with its conversation.

        Raises `Misuse` for an answer to no open question of the thread. Of runs that are stored
        nowhere, only the agent knows what it asked.
        """
        owns_history = select_owner(self.history, agent) == "server"
        answers = run.persist and bool(run.resume)
        if self.store is None or not (owns_history or answers):
            return Continuation(run)
        runs = await self.store.runs(ThreadKey.of(run.user, run.thread_id))
        asking = None
        if answers:
            await _check_answers(run, runs)
            asking = find_asking_run(runs)
        if not owns_history or not (runs or run.persist):
            return Continuation(run, asking=asking)
        history = restore_history(run, runs)
        continued = replace(run, messages=history.messages)
        return Continuation(continued, history.is_rewritten and run.persist, asking)

    async def confirm_answers(self, run: RunInput) -> None:
        """Raise `Misuse` if an answer was given meanwhile, by way of another server.

        The log of the run has begun, so that no other run of the thread can.
        """
        if self.store is None or not (run.persist and run.resume):
            return
        stored = await self.store.runs(ThreadKey.of(run.user, run.thread_id))
        runs = [it for it in stored if it.log_id != run.log_id]
        await _check_answers(run, runs)
        if (asking := find_asking_run(runs)) is not None:
            check_agent(run, asking)


async def _check_answers(run: RunInput, runs: Sequence[StoredRun]) -> None:
    """Raise `Misuse` for an answer to no open question of the runs before.

    A thread that is not here has asked nothing that has an id. Pages of v1 send none: whether
    they answer a question of before a restart, say, only the agent knows. To give up what nobody
    asked is harmless.
    """
    if runs or any(it.interrupt_id is not None and it.status != "cancelled" for it in run.resume):
        await check_answers(run.resume, runs)
