"""What a graph streams, made ready for `ag_ui_langgraph`, which does not read all of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.jsonvalue import JsonObject, as_text

_EVENTS = {
    "copilotkit_manually_emit_message": "manually_emit_message",
    "copilotkit_manually_emit_tool_call": "manually_emit_tool_call",
    "copilotkit_manually_emit_intermediate_state": "manually_emit_state",
    "copilotkit_exit": "Exit",
}
_METADATA = {
    "copilotkit:emit-messages": "emit-messages",
    "copilotkit:emit-tool-calls": "emit-tool-calls",
    "copilotkit:emit-intermediate-state": "predict_state",
}


def reworded(event: Any) -> Any:
    """Return an event of the package `copilotkit` in the words of `ag_ui_langgraph`."""
    if event.get("event") == "on_custom_event" and event.get("name") in _EVENTS:
        return {**event, "name": _EVENTS[event["name"]]}
    metadata = event.get("metadata")
    if not metadata or _METADATA.keys().isdisjoint(metadata):
        return event
    return {**event, "metadata": {_METADATA.get(key, key): v for key, v in metadata.items()}}


def parted(event: Any) -> Sequence[Any]:
    """Return a piece of a model's answer as several that say one thing each.

    The library takes only the first call of a piece, no arguments that come with a call's name,
    no text that comes with a call, and nothing at all of a last piece. Some providers send a call
    whole.
    """
    chunk: Any = (event.get("data") or {}).get("chunk")
    if event.get("event") != "on_chat_model_stream" or not hasattr(chunk, "tool_call_chunks"):
        return [event]
    text = as_text(chunk.content)
    calls = [part for call in chunk.tool_call_chunks for part in _parts(call)]
    last = bool(chunk.response_metadata.get("finish_reason"))
    if len(calls) + bool(text) + last < 2:  # the usual case
        return [event]
    rest: JsonObject = {"tool_call_chunks": [], "usage_metadata": None, "response_metadata": {}}
    pieces: list[JsonObject] = [{**rest, "content": text}] if text else []
    content = "" if text or last else chunk.content
    pieces += [{**rest, "content": content, "tool_call_chunks": [call]} for call in calls]
    if last:
        pieces.append({"content": "", "tool_call_chunks": []})
    else:
        pieces[-1].pop("usage_metadata")  # counted once
    return [
        {**event, "data": {**event["data"], "chunk": chunk.model_copy(update=piece)}}
        for piece in pieces
    ]


def _parts(call: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if call.get("name") and call.get("args"):
        return [{**call, "args": ""}, {**call, "name": None, "id": None}]
    return [call]
