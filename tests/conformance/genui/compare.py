"""Makes what two runtimes did comparable: the messages of a page, and the way that led to them.

Activities count by their states: one runtime sends a whole one again where another sends what has
changed. States follow each other, and other events, in the same order; one that is the same as
before is none. Ids that are random are numbered in the order of their appearance.
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import jsonpatch

Page = Mapping[str, Any]
"""What `drive.mjs` writes of a scenario."""

SECTIONS = ("live", "events", "results", "errors", "inputs", "requests")

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN = re.compile(r'("serverHash": )"[^"]*"')
_GUIDE = "A2UI render tool usage guide"
_ASKED = ("tools/call", "resources/read", "ping")
"""Requests to MCP servers that do not depend on how long a session lasts."""


def normalize(page: Page) -> dict[str, Any]:
    """Return the sections of a page that two runtimes have alike."""
    sections = {
        **{name: page[name] for name in ("live", "results", "errors") if name in page},
        "events": fold(page["events"]),
        "inputs": [_read_input(one) for one in page.get("inputs", ())],
        "requests": [_read_request(one) for one in page.get("requests", ()) if _is_asked(one)],
    }
    return {name: value for name in SECTIONS if (value := number_ids(sections[name]))}


def fold(events: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return events with the states of activities in the place of snapshots and deltas."""
    states: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    folded: list[Any] = []
    for event in events:
        key = event.get("messageId", "")
        match event["type"]:
            case "ACTIVITY_SNAPSHOT":
                if key in states and not event.get("replace", True):
                    continue
                states[key] = event["content"]
            case "ACTIVITY_DELTA" if key not in states:
                continue  # pages leave it out
            case "ACTIVITY_DELTA":
                states[key] = jsonpatch.apply_patch(states[key], event["patch"])
            case _:
                if (other := _read_event(event)) is not None:
                    folded.append(other)
                continue
        state = [key, event["activityType"], _leave_out_pieces(states[key])]
        if shown.get(key) != state:
            folded.append(state)
        shown[key] = state
    return folded


def number_ids(value: Any) -> Any:
    """Number the ids that are random, and join the pieces of a page."""
    numbers: dict[str, str] = {}
    text = _UUID.sub(
        lambda match: numbers.setdefault(match[0], f"<id{len(numbers) + 1}>"), json.dumps(value)
    )
    return _join_pieces(json.loads(_TOKEN.sub(r'\1"<token>"', text)))


def _read_event(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what counts of an event that is none of an activity."""
    other = {name: value for name, value in event.items() if name != "protocolVersion"}
    match event["type"]:
        case "CUSTOM" if "traceId" in (event["value"] if isinstance(event["value"], dict) else ()):
            return None
        case "RUN_STARTED" | "RUN_FINISHED":
            other.pop("threadId")  # that of an app is the run's on Node
        case "TOOL_CALL_RESULT":
            other.pop("role", None)
        case "RUN_ERROR" if event.get("code") == "UNKNOWN":
            other.pop("code")
        case _:
            pass
    return other


def _read_input(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an agent got. The guide to the tool that draws is in words of our own."""
    context = [
        {**one, "value": "<guide>"} if one["description"].startswith(_GUIDE) else one
        for one in run["context"]
    ]
    names = ("tools", "forwardedProps", "state", "messages")
    return {**{name: run[name] for name in names}, "context": context}


def _is_asked(request: Mapping[str, Any]) -> bool:
    return request.get("method") in _ASKED


def _read_request(request: Mapping[str, Any]) -> dict[str, Any]:
    match request["params"]:
        case dict() as params:
            return {**request, "params": {key: params[key] for key in params if key != "_meta"}}
        case _:
            return {**request}


def _leave_out_pieces(content: Any) -> Any:
    """Return the state of a page without its HTML as long as that is not complete.

    How it is cut into pieces is the server's to choose.
    """
    state = deepcopy(content)
    if isinstance(state, dict) and state.get("generating") and "htmlComplete" not in state:
        state.pop("html", None)
    return state


def _join_pieces(value: Any) -> Any:
    match value:
        case {"html": list(pieces)}:
            # half a character may be the end of a piece
            text = "".join(map(str, pieces)).encode("utf-16", "surrogatepass").decode("utf-16")
            return {**value, "html": [text]}
        case dict():
            return {name: _join_pieces(one) for name, one in value.items()}
        case list():
            return [_join_pieces(one) for one in value]
        case _:
            return value
