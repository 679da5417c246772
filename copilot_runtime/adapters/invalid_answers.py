"""Recognises answers of no use: empty ones, and those that their provider could not parse."""

from typing import TYPE_CHECKING

from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import ActionExecutionStart, Activity, TextMessageContent
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage
from copilot_runtime.base.errors import InvalidAnswer

if TYPE_CHECKING:
    from copilot_runtime.adapters.errors import Service

CONTENT = frozenset({TextMessageContent, ActionExecutionStart, Activity})
"""The types of events that answer a question; reasoning alone is no answer."""

MALFORMED = frozenset(
    {
        *("json_validate_failed", "output_parse_failed", "tool_use_failed"),
        *("malformed_function_call", "malformed_response", "malformed_tool_call"),
        *("too_many_tool_calls", "unexpected_tool_call"),
        *("malformed_model_output", "malformed_tool_use"),
    }
)
"""Error codes and stop reasons, in lower case, of answers that the provider could not parse.

Groq: https://console.groq.com/docs/tool-use, https://console.groq.com/docs/structured-outputs;
Google: https://ai.google.dev/api/generate-content#FinishReason;
Bedrock: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_MessageStopEvent.html.
"""

_FAILURE = '{"error":'
"""The beginning of the result of a call that has failed, or was not run."""


def find_malformed_answer(
    service: "Service", stop_reason: str, message: str = ""
) -> InvalidAnswer | None:
    """Return the error for a stop reason of an answer that could not be parsed, else `None`.

    Google's endpoint for OpenAI's API sends another word and a colon before its own.
    """
    if stop_reason.rpartition(":")[2].strip().lower() not in MALFORMED:
        return None
    return _build_error(service, f"The model stopped with {stop_reason}. {message}".rstrip())


def find_empty_answer(
    service: "Service", request: ChatRequest, stop_reason: str | None
) -> InvalidAnswer | None:
    """Return the error for an answer without content, or `None` if it needs no content.

    After an action of the page, whose effect the person has seen, a model may have nothing to add:
    https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons.
    """
    last = request.messages[-1] if request.messages else None
    if isinstance(last, ResultMessage) and not last.result.startswith(_FAILURE):
        browser = {action.name for action in request.actions if action.in_browser}
        calls = (it for it in request.messages if it.id == last.call_id)
        if any(isinstance(it, ActionExecutionMessage) and it.name in browser for it in calls):
            return None
    if stop_reason == "length":
        return _build_error(
            service,
            "The limit of the answer was reached before it had begun.",
            "Raise max_tokens, or lower reasoning_effort: reasoning counts as well.",
        )
    return _build_error(
        service, "The model's answer is empty.", f"Its stop reason is {stop_reason!r}."
    )


def _build_error(service: "Service", reason: str, hint: str = "") -> InvalidAnswer:
    model = f"Model: {service.model!r}." if service.model else ""
    return InvalidAnswer(
        f"{service.name} API error: {reason}",
        hint=" ".join(filter(None, [hint, model])) or None,
        kind="InternalServerError",
    )
