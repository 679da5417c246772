"""Is a run of AG-UI legal from its first event to its last? The order that @ag-ui/client enforces.

It is shown little of a stream: what came before the first measured chunk, joined with what came
after the last. The two halves make one event, so the whole is a run like any other.
"""

import json
from collections.abc import Iterator

Event = dict[str, object]

# what a type of event does to the item that its field names
_OPENS = {
    "TEXT_MESSAGE_START": "messageId",
    "TOOL_CALL_START": "toolCallId",
    "STEP_STARTED": "stepName",
}
_FILLS = {"TEXT_MESSAGE_CONTENT": "messageId", "TOOL_CALL_ARGS": "toolCallId"}
_CLOSES = {
    "TEXT_MESSAGE_END": "messageId",
    "TOOL_CALL_END": "toolCallId",
    "STEP_FINISHED": "stepName",
}


def agui_fault(stream: bytes) -> str:
    """Return the first thing a client would refuse in server-sent events, or ""."""
    if not stream.endswith(b"\n\n"):
        return f"cut in an event: {stream[-80:]!r}"
    try:
        return _fault(list(_events(stream)))
    except (ValueError, KeyError) as error:
        return f"not an event: {error!r}"


def _events(stream: bytes) -> Iterator[Event]:
    for block in stream.split(b"\n\n"):
        data = [line[5:] for line in block.split(b"\n") if line.startswith(b"data:")]
        if data:
            yield json.loads(b"\n".join(data))


def _fault(events: list[Event]) -> str:
    if not events or events[0]["type"] != "RUN_STARTED":
        return f"begins with {events[:1]}"
    if events[-1]["type"] != "RUN_FINISHED":
        return f"ends with {events[-1]}"
    if _run(events[0]) != _run(events[-1]):
        return f"finished another run than it started: {events[-1]}"
    return _item_fault(events[1:-1])


def _run(event: Event) -> tuple[object, object]:
    return event["threadId"], event["runId"]


def _item_fault(events: list[Event]) -> str:
    items = set[tuple[str, object]]()
    for event in events:
        kind = str(event["type"])
        field = _OPENS.get(kind) or _FILLS.get(kind) or _CLOSES.get(kind)
        if kind.startswith("RUN_"):
            return f"in the middle: {event}"
        if field is None:
            continue
        item = (field, event[field])
        if (item in items) == (kind in _OPENS):
            return f"out of place: {event}"
        if kind in _OPENS:
            items.add(item)
        elif kind in _CLOSES:
            items.remove(item)
    return f"left open: {items}" if items else ""
