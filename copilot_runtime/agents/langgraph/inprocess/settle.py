"""Calls that a stop or a failure left without a result get one before the next question.

Models refuse a question that follows such a call, and with it all that come later in its thread.
"""

from collections.abc import Sequence
from typing import Any

from copilot_runtime.agents.langgraph.messages import interrupted
from copilot_runtime.jsonvalue import JsonObject, as_list


def settled(said: Sequence[JsonObject], kept: Any) -> Sequence[JsonObject]:
    """Return the messages of a page with results for such calls, if it asks something new.

    `kept` are the messages that the graph has.
    """
    before = as_list(kept)
    known = {getattr(message, "id", None) for message in before}
    if not any(one["role"] == "user" and one["id"] not in known for one in said):
        return said
    results = {getattr(message, "tool_call_id", None) for message in before}
    results |= {one.get("toolCallId") for one in said}
    calls = [call for message in before for call in getattr(message, "tool_calls", None) or ()]
    unanswered = [_result(call["id"], call["name"]) for call in calls if call["id"] not in results]
    settled: list[JsonObject] = []
    for one in said:
        if one["id"] in known:
            settled.append(one)
            continue
        its_own = [call for call in one.get("toolCalls", ()) if call["id"] not in results]
        settled += [*unanswered, one]
        settled += [_result(call["id"], call["function"]["name"]) for call in its_own]
        unanswered = []  # the graph adds what is new to what it has
    return settled


def _result(call_id: str, name: str) -> JsonObject:
    stands_for_it = interrupted({"id": call_id, "name": name})  # known to `ag_ui_langgraph`
    content = stands_for_it["content"]
    return {"id": stands_for_it["id"], "role": "tool", "toolCallId": call_id, "content": content}
