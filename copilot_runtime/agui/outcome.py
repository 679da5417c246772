"""How a run of AG-UI ended: with a result, with questions to a person, or with an error."""

from collections.abc import Iterator

from copilot_runtime.errors import CopilotError
from copilot_runtime.events import Event, Interrupt, RunFinished, Usage
from copilot_runtime.jsontext import dumps
from copilot_runtime.jsonvalue import (
    JsonObject,
    as_list,
    optional_text,
    require_list,
    require_object,
    require_text,
)


class AgentFailed(CopilotError):
    """A remote agent sent an error as the end of its run."""

    status_code = 502
    visibility = "banner"


def decode_run_end(event: JsonObject) -> Iterator[Event]:
    """Read a RUN_FINISHED. Raises `Misuse` for one that cannot be read."""
    yield from decode_usage(event)
    if (outcome := event.get("outcome")) is not None:
        outcome = require_object(outcome, "RUN_FINISHED.outcome")
        if outcome.get("type") == "interrupt":
            where = "RUN_FINISHED.outcome.interrupts"
            for at, interrupt in enumerate(require_list(outcome.get("interrupts"), where)):
                yield _interrupt(require_object(interrupt, f"{where}[{at}]"), f"{where}[{at}]")
    if (result := event.get("result")) is not None:
        yield RunFinished(result=result)


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
    """Return the token usage of the run; what is no number counts as 0."""
    counted = event.get("usage")
    for item in as_list(counted):
        if isinstance(item, dict):
            yield Usage(
                model=str(item.get("model") or ""),
                provider=str(item.get("provider") or ""),
                input_tokens=_count(item, "inputTokens"),
                output_tokens=_count(item, "outputTokens"),
                cached_tokens=_count(item, "cachedInputTokens"),
                reasoning_tokens=_count(item, "reasoningTokens"),
            )


def _count(item: JsonObject, key: str) -> int:
    value = item.get(key)
    return value if isinstance(value, int) else 0


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
