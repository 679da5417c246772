"""The surfaces (a form, a list) and the page that the demo model renders."""

import json
from collections.abc import Mapping, Sequence
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
    surface = next((action.name for action in actions if action.is_drawing), None)
    if surface and words & (_FORMS | _LISTS):
        surfaces = json.loads(Path(__file__).with_name("surfaces.json").read_bytes())
        return Call(surface, surfaces["form" if words & _FORMS else "timetable"])
    if words & _PAGES and any(action.name == PAGE_TOOL for action in actions):
        return Call(PAGE_TOOL, PAGE)
    return None


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


PAGE: Mapping[str, Any] = {
    "initialHeight": 190,
    "placeholderMessages": ["Winding up a stopwatch", "Painting its buttons"],
    "css": (
        ":root { color-scheme: light dark } "
        "body { margin: 0; padding: 16px; font: 16px system-ui, sans-serif; text-align: center } "
        "#time { font-size: 44px; font-variant-numeric: tabular-nums; margin: 12px 0 } "
        "button { font: inherit; padding: 6px 18px; margin: 0 4px; border-radius: 8px; "
        "border: 1px solid #0d7d74; background: transparent; color: inherit } "
        "#start { background: #0d7d74; color: #fff }"
    ),
    "html": (
        "<main> <h1 style='font-size: 18px; margin: 0'>Stopwatch</h1> "
        "<p id='time'>00:00.0</p> <button id='start'>Start</button> "
        "<button id='reset'>Reset</button> </main>"
    ),
    "jsFunctions": (
        "let began = 0, kept = 0; "
        "const passed = () => kept + (began ? Date.now() - began : 0); "
        "function draw() { const tenths = Math.floor(passed() / 100); "
        "const two = (n) => String(n).padStart(2, '0'); "
        "document.getElementById('time').textContent = two(Math.floor(tenths / 600)) + ':' "
        "+ two(Math.floor(tenths / 10) % 60) + '.' + tenths % 10; } "
        "function toggle() { kept = passed(); began = began ? 0 : Date.now(); "
        "document.getElementById('start').textContent = began ? 'Stop' : 'Start'; draw(); } "
        "function reset() { kept = 0; began = began ? Date.now() : 0; draw(); }"
    ),
    "jsExpressions": [
        "document.getElementById('start').onclick = toggle",
        "document.getElementById('reset').onclick = reset",
        "setInterval(draw, 100)",
    ],
}
"""The arguments of a page with a script."""
