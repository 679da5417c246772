"""The stop reasons of all providers: some services pass on those of others."""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.base.jsonvalue import get_object

STOP_REASONS: Mapping[str, str] = {
    **dict.fromkeys(("completed", "end_turn", "eos", "stop", "stop_sequence"), "stop"),
    **dict.fromkeys(("incomplete", "length", "max_output_tokens", "max_tokens"), "length"),
    **dict.fromkeys(("model_context_window_exceeded", "model_length"), "length"),
    **dict.fromkeys(("function_call", "tool_calls", "tool_use"), "tool_calls"),
    **dict.fromkeys(("content_filter", "content_filtered", "safety"), "content_filter"),
    **dict.fromkeys(("continuation", "pause_turn"), "pause"),
    "refusal": "refusal",
}
"""The stop reasons of all providers, in lower case → those of `Usage`."""

_NAMES = ("finish_reason", "stop_reason", "done_reason", "stopReason")


def map_stop_reason(reason: str) -> str:
    """Return a stop reason as `Usage` has it; an unknown one remains unchanged."""
    return STOP_REASONS.get(reason.lower(), reason)


def read_stop_reason(metadata: Mapping[str, Any]) -> str | None:
    """Return the stop reason in the `response_metadata` of a message of LangChain, or `None`."""
    reasons = (metadata.get(name) for name in _NAMES)
    reason = next((one for one in reasons if isinstance(one, str) and one), None)
    return None if reason is None else map_stop_reason(reason)


def is_cut_off(message: Mapping[str, Any]) -> bool:
    """Return whether a model reached its limit before it had finished a message of LangChain."""
    return read_stop_reason(get_object(message, "response_metadata")) == "length"
