"""Take a run's conversation and open questions from its thread."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from copilot_runtime.api.agent import Agent, HistoryOwner
from copilot_runtime.api.messages import ActionExecutionMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.runtime.history import restore_added_fields, restore_history, select_owner
from copilot_runtime.runtime.interrupts import check_agent, check_answers, find_asking_run
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadStore


class Continuation(NamedTuple):
    """A run with the conversation of its thread."""

    run: RunInput
    is_rewritten: bool = False
    """`True` if readers of the thread need a new snapshot of the conversation."""
    asking: StoredRun | None = None
    """The run whose questions this run answers, or `None`: only its agent gets the answers."""


@dataclass(frozen=True, slots=True)
class ThreadPolicy:
    """The thread store, and the default owner of the history of agents."""

    store: ThreadStore | None = None
    history: HistoryOwner = "client"

    def reads_thread(self, run: RunInput, agent: Agent | None) -> bool:
        """Return whether `continue_thread` needs the stored conversation."""
        is_needed = self._owns_history(agent) or (run.persist and bool(run.resume))
        return self.store is not None and (is_needed or _lacks_fields(run))

    def _owns_history(self, agent: Agent | None) -> bool:
        return select_owner(self.history, agent) == "server"

    async def continue_thread(self, run: RunInput, agent: Agent | None) -> Continuation:
        """Return a run with its stored conversation.

        Raises `Misuse` for an answer to a question that is not open in the thread. For runs that
        are not stored, only the agent can check answers.
        """
        if not self.reads_thread(run, agent) or self.store is None:
            return Continuation(run)
        runs = await self.store.runs(ThreadKey.of(run.user, run.thread_id))
        asking = None
        if run.persist and run.resume:
            await _check_answers(run, runs)
            asking = find_asking_run(runs)
        if not self._owns_history(agent):
            if _lacks_fields(run):
                run = replace(run, messages=restore_added_fields(run.messages, runs))
            return Continuation(run, asking=asking)
        if not (runs or run.persist):
            return Continuation(run, asking=asking)
        history = restore_history(run, runs)
        continued = replace(run, messages=history.messages)
        return Continuation(continued, history.is_rewritten and run.persist, asking)

    async def confirm_answers(self, run: RunInput) -> None:
        """Raise `Misuse` if a question was answered through another server meanwhile.

        The run's log is already open, so no other run of the thread can start.
        """
        if self.store is None or not (run.persist and run.resume):
            return
        stored = await self.store.runs(ThreadKey.of(run.user, run.thread_id))
        runs = [it for it in stored if it.log_id != run.log_id]
        await _check_answers(run, runs)
        if (asking := find_asking_run(runs)) is not None:
            check_agent(run, asking)


def _lacks_fields(run: RunInput) -> bool:
    """Return whether the messages of a run may lack fields that a v1 client does not send back."""
    return run.is_v1 and run.persist and ActionExecutionMessage in map(type, run.messages)


async def _check_answers(run: RunInput, runs: Sequence[StoredRun]) -> None:
    """Raise `Misuse` for an answer to a question that is not open in the previous runs.

    A thread without stored runs has no questions with identifiers. v1 clients send no identifiers:
    only the agent knows whether they answer a question from before a restart. Cancelling an unknown
    question is harmless.
    """
    if runs or any(it.interrupt_id is not None and it.status != "cancelled" for it in run.resume):
        await check_answers(run.resume, runs)
