"""Expand the chunk events of AG-UI to start, content and end events."""

from copilot_runtime.base.jsonvalue import JsonObject, optional_text, require_text

_ID = {
    "TEXT_MESSAGE_CHUNK": "messageId",
    "TOOL_CALL_CHUNK": "toolCallId",
    "REASONING_MESSAGE_CHUNK": "messageId",
}
CHUNKS = frozenset(_ID)
_PIECE = {
    "TEXT_MESSAGE_CHUNK": "TEXT_MESSAGE_CONTENT",
    "TOOL_CALL_CHUNK": "TOOL_CALL_ARGS",
    "REASONING_MESSAGE_CHUNK": "REASONING_MESSAGE_CONTENT",
}
_STARTS = ("role", "name", "toolCallName", "parentMessageId")


class ChunkExpander:
    """Expands chunk events to start, content and end events, until another kind of event."""

    def __init__(self) -> None:
        self.open = ""
        """The type of the chunks in the open sequence; empty if there is none."""
        self._id = ""

    def expand(self, event: JsonObject) -> list[JsonObject]:
        """Return the full events of a chunk. Raises `Misuse` if the first chunk lacks a field."""
        kind, key = event["type"], _ID[event["type"]]
        id = optional_text(event, key, kind)
        full: list[JsonObject] = []
        if kind != self.open or (id is not None and id != self._id):
            id = require_text(event, key, f"The first {kind}")
            if kind == "TOOL_CALL_CHUNK":
                require_text(event, "toolCallName", f"The first {kind}")
            full += self.close()
            self.open, self._id = kind, id
            start = {name: event[name] for name in _STARTS if name in event}
            full.append({"type": kind.replace("CHUNK", "START"), key: id, **start})
        if event.get("delta"):
            full.append({"type": _PIECE[kind], key: self._id, "delta": event["delta"]})
        return full

    def close(self) -> list[JsonObject]:
        """Return the end event of the open sequence, or an empty list."""
        kind, self.open = self.open, ""
        return [{"type": kind.replace("CHUNK", "END"), _ID[kind]: self._id}] if kind else []
