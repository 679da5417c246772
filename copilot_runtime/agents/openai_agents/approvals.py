"""Tools of OpenAI's Agents SDK that need a person's approval: interrupts and paused runs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from copilot_runtime.agents.agui import encode_resumes
from copilot_runtime.agents.agui_inprocess import parse_decision
from copilot_runtime.errors import Misuse
from copilot_runtime.events import Interrupt
from copilot_runtime.interfaces import RunInput
from copilot_runtime.messages import ResultMessage

if TYPE_CHECKING:
    from agents import RunState
    from agents.items import ToolApprovalItem

_PREFIX = "approve:"
_MAX_RUNS = 1_000
"""Largest number of paused runs."""

_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


@dataclass(frozen=True, slots=True)
class PausedRun:
    """A run that ended with calls; those of the tools in `external` need no approval."""

    state: "RunState[Any]"
    calls: Sequence["ToolApprovalItem"]
    external: Collection[str]

    @property
    def approvals(self) -> Mapping[str, "ToolApprovalItem"]:
        """The calls that a person has to approve, by the ids of their interrupts."""
        return {
            f"{_PREFIX}{call.call_id}": call
            for call in self.calls
            if call.tool_name not in self.external
        }

    def build_interrupts(self) -> list[Interrupt]:
        return [_build_interrupt(id, call) for id, call in self.approvals.items()]

    def resume(self, run: RunInput) -> Mapping[str, str]:
        """Approve or reject calls by the run's answers; return the names of these by their ids.

        Raises `Misuse`, and changes nothing, for an answer to no interrupt, and for one that is
        neither an approval nor a rejection.
        """
        approvals = self.approvals
        decisions: list[tuple[ToolApprovalItem, str | None]] = []
        answers, _ = encode_resumes(run.resume)
        for answer in answers:
            call = approvals.get(answer["interruptId"])
            if call is None:
                raise no_pending_approval()
            decisions.append((call, _read_rejection(answer)))
        if not decisions:
            raise no_pending_approval()
        for call, rejection in decisions:
            if rejection is None:
                self.state.approve(call)
            else:
                self.state.reject(call, rejection_message=rejection)
        self._add_results(run)
        return {call.call_id or "": call.tool_name or "" for call, _ in decisions}

    def _add_results(self, run: RunInput) -> None:
        """Add the results of the external calls; the SDK takes them as rejections."""
        results = {
            one.call_id: one.result for one in run.messages if isinstance(one, ResultMessage)
        }
        for call in self.calls:
            if call.tool_name in self.external and call.call_id in results:
                self.state.reject(call, rejection_message=results[call.call_id])


class ApprovalStore:
    """Paused runs by thread. Above the limit, the oldest is dropped.

    They are in this process only: a restart, or another process, does not have them.
    """

    def __init__(self) -> None:
        self._runs: dict[str, PausedRun] = {}

    def save(self, thread: str, run: PausedRun) -> None:
        self._runs[thread] = run
        if len(self._runs) > _MAX_RUNS:
            del self._runs[next(iter(self._runs))]

    def find(self, thread: str) -> PausedRun:
        """Return the paused run of a thread. Raises `Misuse` if there is none."""
        if thread not in self._runs:
            raise no_pending_approval()
        return self._runs[thread]

    def delete(self, thread: str) -> None:
        self._runs.pop(thread, None)


def no_pending_approval() -> Misuse:
    return Misuse(
        "The agent does not wait for this answer.",
        hint="It has been given before, the thread has gone on without it, or the server is new.",
    )


def _build_interrupt(id: str, call: "ToolApprovalItem") -> Interrupt:
    message = f"Approve {call.tool_name}({call.arguments or ''})?"
    return Interrupt(
        interrupt_id=id,
        # v1 clients send all of it back, and with it the id
        value={"id": id, "reason": "tool_call", "message": message, "toolCallId": call.call_id},
        reason="tool_call",
        message=message,
        call_id=call.call_id,
        response_schema=_SCHEMA,
    )


def _read_rejection(answer: Mapping[str, Any]) -> str | None:
    """Return the reason of a rejection, None for an approval. Raises `Misuse` for neither."""
    if answer["status"] == "cancelled":
        return "Cancelled by the person."
    payload = parse_decision(answer.get("payload"))
    approved = payload.get("approved") if isinstance(payload, dict) else None
    if approved is True:
        return None
    if approved is False:
        return str(payload.get("reason") or "The person said no.")
    raise Misuse(
        "The agent cannot go on with this answer.",
        hint='It is neither {"approved": true} nor {"approved": false}.',
    )
