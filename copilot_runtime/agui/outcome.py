"""Decode and encode the outcome of an AG-UI run: result, interrupts, cancellation, error, usage."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from copilot_runtime.api.events import Event, Interrupt, RunFinished, Usage
from copilot_runtime.base.errors import Cancelled, CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_count,
    as_list,
    as_object,
    as_objects,
    as_optional_text,
    as_text,
    drop_none,
    get_object,
    get_text,
    optional_text,
    require_list,
    require_object,
    require_text,
    to_text,
)

FINISH_REASON = "finishReason"
"""The field with the finish reason of the model, in the terms of the AI SDK, as Node sends it."""

_FINISH_REASONS = {
    "tool_calls": "tool-calls",
    "content_filter": "content-filter",
    "refusal": "content-filter",
}
"""Finish reasons that differ from `Usage.stop_reason`."""

_STOP_REASONS = {"tool-calls": "tool_calls", "content-filter": "content_filter"}


class AgentFailed(CopilotError):
    """The run of a remote agent ended with an error."""

    status_code = 502
    visibility = "banner"


def decode_run_end(event: JsonObject) -> Iterator[Event]:
    """Yield the events of a RUN_FINISHED. Raises `Misuse` for one that is malformed."""
    yield from decode_usage(event)
    if (outcome := event.get("outcome")) is not None:
        if isinstance(outcome, str):  # as in the draft of interrupts
            first = [event["interrupt"]] if event.get("interrupt") else []
            outcome = {"type": outcome, "interrupts": first}
        outcome = require_object(outcome, "RUN_FINISHED.outcome")
        if outcome.get("type") == "interrupt":
            where = "RUN_FINISHED.outcome.interrupts"
            for at, interrupt in enumerate(require_list(outcome.get("interrupts"), where)):
                yield _interrupt(require_object(interrupt, f"{where}[{at}]"), f"{where}[{at}]")
    if (result := event.get("result")) is not None:
        yield RunFinished(result=result)


def is_of_langgraph(interrupt: Interrupt) -> bool:
    """Return whether an interrupt was raised by a LangGraph graph itself.

    A plan that forwards one adds to its metadata. The interrupt of a remote AG-UI agent may have
    any form, and its value contains the same metadata.
    """
    metadata = as_object(interrupt.metadata)
    has_raw = "raw" in as_object(metadata.get("langgraph"))
    is_remote = as_object(interrupt.value).get("metadata") == interrupt.metadata
    return has_raw and len(metadata) == 1 and not is_remote


def encode_langgraph_value(interrupt: Interrupt) -> str:
    """Return the value of a graph's interrupt as Node sends it: JSON, or a string as it is."""
    return to_text(interrupt.metadata["langgraph"]["raw"])


def decode_cancellation(event: JsonObject) -> Cancelled | None:
    """Return the error of a cancelled run from its RUN_FINISHED, or None."""
    if as_object(event.get("outcome")).get("type") == "cancelled":
        return Cancelled("The agent's run was stopped.")
    return None


def decode_run_error(event: JsonObject) -> AgentFailed:
    """Return the error of a RUN_ERROR."""
    message, code = event.get("message"), event.get("code")
    if not isinstance(message, str):
        message = "The agent failed." if message is None else dumps(message).decode()
    error = AgentFailed(message)
    if code is not None:
        error.code = str(code)
    return error


def decode_usage(event: JsonObject) -> Iterator[Usage]:
    """Yield the token usage of the run; an invalid count is `None`."""
    for item in as_objects(event.get("usage")):
        reason = _find_finish_reason(item, event, get_object(event, "metadata"))
        yield Usage(
            model=str(item.get("model") or ""),
            provider=str(item.get("provider") or ""),
            input_tokens=as_count(item.get("inputTokens")),
            output_tokens=as_count(item.get("outputTokens")),
            cached_tokens=as_count(item.get("cachedInputTokens")),
            cache_write_tokens=as_count(item.get("cacheWriteInputTokens")),
            reasoning_tokens=as_count(item.get("reasoningTokens")),
            stop_reason=None if reason is None else _STOP_REASONS.get(reason, reason),
        )


def encode_usage(usages: Sequence[Usage], *, legacy: bool) -> list[JsonObject]:
    """Return the token counts of a run, summed per model and provider.

    Unknown counts are omitted. For `legacy` clients, the finish reason of the model is next to its
    counts.
    """
    entries: dict[tuple[str, str], JsonObject] = {}
    for usage in usages:
        counts = drop_none(
            {
                "inputTokens": as_count(usage.input_tokens),
                "outputTokens": as_count(usage.output_tokens),
                "reasoningTokens": as_count(usage.reasoning_tokens),
                "cachedInputTokens": as_count(usage.cached_tokens),
                "cacheWriteInputTokens": as_count(usage.cache_write_tokens),
            }
        )
        if not counts:
            continue
        entry = entries.setdefault((usage.provider, usage.model), {})
        if usage.provider:
            entry["provider"] = usage.provider
        entry["model"] = usage.model
        for name, count in counts.items():
            entry[name] = entry.get(name, 0) + count
        if "inputTokens" in entry and "outputTokens" in entry:
            entry["totalTokens"] = entry["inputTokens"] + entry["outputTokens"]
        if legacy and (reason := encode_finish_reason([usage])) is not None:
            entry[FINISH_REASON] = reason
    return list(entries.values())


def encode_finish_reason(usages: Sequence[Usage]) -> str | None:
    """Return the finish reason of a run's last model request, or `None` if it is unknown."""
    reason = usages[-1].stop_reason if usages else None
    return None if reason is None else _FINISH_REASONS.get(reason, reason)


def _find_finish_reason(*places: JsonObject) -> str | None:
    reasons = (as_optional_text(place.get(FINISH_REASON)) for place in places)
    return next((reason for reason in reasons if reason), None)


def _interrupt(fields: JsonObject, where: str) -> Interrupt:
    schema, metadata = fields.get("responseSchema"), fields.get("metadata")
    return Interrupt(
        interrupt_id=require_text(fields, "id", where),
        value=fields,  # for clients of v1, which know an interrupt by its value only
        reason=optional_text(fields, "reason", where) or "input",
        message=optional_text(fields, "message", where),
        call_id=optional_text(fields, "toolCallId", where),
        response_schema=None
        if schema is None
        else require_object(schema, f"{where}.responseSchema"),
        expires_at=optional_text(fields, "expiresAt", where),
        metadata=metadata if isinstance(metadata, dict) else None,
    )


_KEYS = ("message", "details", "error", "detail")
"""The fields that may contain the reason; `detail` is FastAPI's."""


class RefusalReason(NamedTuple):
    """A reason, the error code if there is one, and the known agents if another was requested."""

    message: str
    code: str
    agents: Sequence[str]


def decode_refusal(body: bytes) -> RefusalReason | None:
    """Return the reason in an error body, or `None` if it says nothing but "not found"."""
    try:
        fields = as_object(loads(body))
    except ValueError:
        return None
    reasons = (get_text(fields, key) for key in _KEYS)
    message = next((it for it in reasons if it and it.lower() != "not found"), None)
    if message is None:
        return None
    agents = [as_text(name) for name in as_list(fields.get("known"))]
    return RefusalReason(message, get_text(fields, "code"), agents)
