"""Calls that a stop or a failure left without a result get one before the next question.

Models refuse a question that follows such a call, and with it all that come later in its thread.
"""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

_STOPPED = "The call was stopped before it had a result."


def settled(said: Sequence[Json], kept: Any) -> Sequence[Json]:
    """Return the messages of a page with results for such calls, if it asks something new.

    `kept` are the messages that the graph has.
    """
    before = kept if isinstance(kept, list) else []
    known = {getattr(message, "id", None) for message in before}
    if not any(one["role"] == "user" and one["id"] not in known for one in said):
        return said
    results = {getattr(message, "tool_call_id", None) for message in before}
    results |= {one.get("toolCallId") for one in said}
    calls = [call for message in before for call in getattr(message, "tool_calls", None) or ()]
    unanswered = [call["id"] for call in calls if call["id"] and call["id"] not in results]
    settled: list[Json] = []
    for one in said:
        if one["id"] in known:
            settled.append(one)
            continue
        its_own = [call["id"] for call in one.get("toolCalls", ()) if call["id"] not in results]
        settled += [*map(_result, unanswered), one, *map(_result, its_own)]
        unanswered = []  # the graph adds what is new to what it has
    return settled


def _result(call_id: str) -> Json:
    id = f"result-{call_id}"
    return {"id": id, "role": "tool", "toolCallId": call_id, "content": _STOPPED}
