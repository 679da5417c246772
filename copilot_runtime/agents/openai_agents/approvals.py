"""Tools of OpenAI's Agents SDK that wait for a person: the questions, the wait and the answers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from copilot_runtime.agents.agui import run_agent_input
from copilot_runtime.agents.agui_inprocess import decision
from copilot_runtime.errors import Misuse
from copilot_runtime.events import Interrupt
from copilot_runtime.interfaces import RunInput
from copilot_runtime.messages import ResultMessage

if TYPE_CHECKING:
    from agents import RunState
    from agents.items import ToolApprovalItem

_PREFIX = "approve:"
_MOST = 1_000
"""Threads that may wait at one time."""

_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


@dataclass(frozen=True, slots=True)
class Wait:
    """A run that ended with calls; those of `elsewhere` are not for a person to approve."""

    state: "RunState[Any]"
    calls: Sequence["ToolApprovalItem"]
    elsewhere: Collection[str]

    @property
    def approvals(self) -> Mapping[str, "ToolApprovalItem"]:
        """The calls that a person has to approve, by the ids of the questions."""
        return {
            f"{_PREFIX}{call.call_id}": call
            for call in self.calls
            if call.tool_name not in self.elsewhere
        }

    def questions(self) -> list[Interrupt]:
        return [_question(id, call) for id, call in self.approvals.items()]

    def answer(self, run: RunInput) -> Mapping[str, str]:
        """Let the run go on; return the names of the calls that do, by their ids.

        Raises `Misuse`, and changes nothing, for an answer to no question, and for one that says
        neither yes nor no.
        """
        approvals = self.approvals
        given: list[tuple[ToolApprovalItem, str | None]] = []
        for one in run_agent_input(run, {}).get("resume", ()):
            call = approvals.get(one["interruptId"])
            if call is None:
                raise not_waiting()
            given.append((call, _refusal(one)))
        if not given:
            raise not_waiting()
        for call, refusal in given:
            if refusal is None:
                self.state.approve(call)
            else:
                self.state.reject(call, rejection_message=refusal)
        self._settle(run)
        return {call.call_id or "": call.tool_name or "" for call, _ in given}

    def _settle(self, run: RunInput) -> None:
        """Tell the run what the calls beside it came to, which others have made."""
        results = {
            one.call_id: one.result for one in run.messages if isinstance(one, ResultMessage)
        }
        for call in self.calls:
            if call.tool_name in self.elsewhere and call.call_id in results:
                self.state.reject(call, rejection_message=results[call.call_id])


class Waiting:
    """Runs that wait for a person, by thread. Of too many, the oldest is forgotten.

    They live in this process: after it, or in another one, nobody waits for the answer.
    """

    def __init__(self) -> None:
        self._waits: dict[str, Wait] = {}

    def keep(self, thread: str, wait: Wait) -> None:
        self._waits[thread] = wait
        if len(self._waits) > _MOST:
            del self._waits[next(iter(self._waits))]

    def find(self, thread: str) -> Wait:
        """Return the run that waits. Raises `Misuse`."""
        if thread not in self._waits:
            raise not_waiting()
        return self._waits[thread]

    def forget(self, thread: str) -> None:
        self._waits.pop(thread, None)


def not_waiting() -> Misuse:
    return Misuse(
        "The agent does not wait for this answer.",
        hint="It has been given before, the thread has gone on without it, or the server is new.",
    )


def _question(id: str, call: "ToolApprovalItem") -> Interrupt:
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


def _refusal(answer: Mapping[str, Any]) -> str | None:
    """Return why a call is not approved, None if it is."""
    if answer["status"] == "cancelled":
        return "Cancelled by the person."
    payload = decision(answer.get("payload"))
    approved = payload.get("approved") if isinstance(payload, dict) else None
    if approved is True:
        return None
    if approved is False:
        return str(payload.get("reason") or "The person said no.")
    raise Misuse(
        "The agent cannot go on with this answer.",
        hint='It is neither {"approved": true} nor {"approved": false}.',
    )
