"""The surfaces (a form, a list), the page and the story that the demo model has ready."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from copilot_runtime.adapters.demo.matching import Call, split_words
from copilot_runtime.api.action import Action
from copilot_runtime.base.jsonvalue import JsonObject, get_text

PAGE_TOOL = "generateSandboxedUi"
"""The tool that renders a page in a sandboxed frame."""
CLICK_TOOL = "log_a2ui_event"
"""The tool whose call and result represent a click on a surface."""


_VERBS = {"draw", "show", "build", "make", "render"}
_FORMS = {"form", "booking"}
_LISTS = {"list", "table", "timetable", "surface", "card", "cards"}
_PAGES = {"page", "stopwatch"}


def plan_drawing(text: str, actions: Sequence[Action]) -> Call | None:
    """Return the call that renders the requested drawing, or `None` for other sentences."""
    words = set(split_words(text))
    if not words & _VERBS:
        return None
    surface = next((action.name for action in actions if action.is_drawing), "")
    page = next((action.name for action in actions if action.name == PAGE_TOOL), "")
    drawings = _read()
    for found, tool, name in (
        (_FORMS, surface, "form"),
        (_LISTS, surface, "timetable"),
        (_PAGES, page, "page"),
    ):
        if words & found and tool:
            return Call(tool, drawings[name])
    return None


def tell_story() -> str:
    """Return a long text, which streams for some seconds."""
    return _read()["story"]


def _read() -> Any:
    return json.loads(Path(__file__).with_name("drawings.json").read_bytes())


def list_other_actions(actions: Sequence[Action]) -> Sequence[Action]:
    """Return the actions that do not render: drawings have fixed arguments."""
    return [one for one in actions if not one.is_drawing and one.name != PAGE_TOOL]


def describe_drawing(name: str, result: str, output: JsonObject) -> str:
    """Return the text about a drawing or a click; an empty string for other results."""
    if name == CLICK_TOOL:
        return f"I got it: {result} A real model would go on from there."
    if name == PAGE_TOOL:
        return "There is the page. It runs in a frame of its own, without an origin or a network."
    if get_text(output, "status") == "rendered":
        return "There it is. Its data are in the surface; a button sends them to me."
    return ""
