"""Tools of OpenAI's Agents SDK that need a person's approval: interrupts and paused runs."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from copilot_runtime.agents.agui import encode_resumes
from copilot_runtime.agents.agui_inprocess import parse_decision
from copilot_runtime.api.events import Interrupt
from copilot_runtime.api.messages import ResultMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.base.jsonvalue import as_list, as_object

if TYPE_CHECKING:
    from agents import Agent, RunContextWrapper, RunState
    from agents.items import ToolApprovalItem

_PREFIX = "approve:"
_FORMAT = 1
"""The version of our envelope around the SDK's state, which has a version of its own."""

_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""The exceptions of the SDK for an invalid state, beside its own classes."""

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

        Raises `Misuse`, and changes nothing, for an answer without an open interrupt, and for one
        that is neither an approval nor a rejection.
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


def encode_paused_run(run: PausedRun) -> bytes:
    """Serialise a paused run without its context. Raises `CopilotError`.

    The application derives the context from each request, so the next request has its own.
    """
    from agents.exceptions import AgentsException

    try:
        state = run.state.to_json(context_serializer=lambda _: {})
        fields = {"version": _FORMAT, "external": sorted(run.external), "state": state}
        return json.dumps(fields, separators=(",", ":")).encode()
    except (AgentsException, *_UNREADABLE) as error:
        raise CopilotError(
            "The agent waits for a person, but its run cannot be stored until then. The server's "
            "log says why.",
            hint=f"{type(error).__name__}: {error}",
        ) from error


async def decode_paused_run(data: bytes, agent: "Agent[Any]", context: Any) -> PausedRun:
    """Deserialise a paused run of an unchanged agent.

    Raises `Misuse` if the agent's tools or hand-offs have changed, or if the SDK cannot read the
    version.
    """
    from agents import RunContextWrapper, RunState
    from agents.exceptions import AgentsException

    try:
        fields = as_object(json.loads(data))
        if fields.get("version") != _FORMAT:
            raise ValueError(f"The version {fields.get('version')!r} of a paused run is unknown.")
        wrapper: RunContextWrapper[Any] = RunContextWrapper(context=context)
        state = await RunState.from_json(agent, fields["state"], context_override=wrapper)
        external = frozenset(map(str, as_list(fields.get("external"))))
        paused = PausedRun(state, state.get_interruptions(), external)
        await _check_tools(paused.approvals.values(), wrapper)
        return paused
    except (AgentsException, *_UNREADABLE) as error:
        raise Misuse(
            "The agent cannot go on with this answer: it is not as it was when it asked. Ask it "
            "again.",
            hint=f"Another version of it, or of the Agents SDK, has asked. {error}",
        ) from error


async def _check_tools(
    calls: Iterable["ToolApprovalItem"], context: "RunContextWrapper[Any]"
) -> None:
    """Raise `LookupError` if an agent no longer has a tool that it has called."""
    for call in calls:
        if _get_type(call.raw_item) == "function_call":  # else the provider has the tool
            names = {tool.name for tool in await call.agent.get_all_tools(context)}
            if call.tool_name not in names:
                raise LookupError(f"The agent {call.agent.name!r} has no tool {call.tool_name!r}.")


def _get_type(item: Any) -> str | None:
    return item.get("type") if isinstance(item, dict) else getattr(item, "type", None)


def no_pending_approval() -> Misuse:
    return Misuse(
        "The agent does not wait for this answer.",
        hint="It has been given before, or the thread has gone on without it.",
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
