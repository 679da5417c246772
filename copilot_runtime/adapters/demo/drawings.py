"""The surfaces (a form, a list) and the page that the demo model renders."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from copilot_runtime.adapters.demo.arguments import split_words
from copilot_runtime.api.action import Action
from copilot_runtime.base.jsonvalue import JsonObject, get_text

PAGE_TOOL = "generateSandboxedUi"
"""The tool that renders a page in a sandboxed frame."""
CLICK_TOOL = "log_a2ui_event"
"""The tool whose call and result represent a click on a surface."""


class Drawing(NamedTuple):
    """A call of a tool that draws; its arguments are JSON."""

    tool: str
    arguments: str


_VERBS = {"draw", "show", "build", "make", "render"}
_FORMS = {"form", "booking"}
_LISTS = {"list", "table", "timetable", "surface", "card", "cards"}
_PAGES = {"page", "stopwatch"}


def plan_drawing(text: str, actions: Sequence[Action]) -> Drawing | None:
    """Return the call that renders the requested drawing, or `None` for other sentences."""
    words = set(split_words(text))
    if not words & _VERBS:
        return None
    surface = next((action.name for action in actions if action.is_drawing), None)
    if surface and words & (_FORMS | _LISTS):
        return Drawing(surface, json.dumps(FORM if words & _FORMS else TIMETABLE))
    if words & _PAGES and any(action.name == PAGE_TOOL for action in actions):
        return Drawing(PAGE_TOOL, json.dumps(PAGE))
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


def _field(kind: str, id: str, label: str, path: str, **more: Any) -> Mapping[str, Any]:
    return {"id": id, "component": kind, "label": label, "value": {"path": path}, **more}


_REQUIRED = {
    "condition": {"call": "required", "args": {"value": {"path": "/booking/name"}}},
    "message": "Who is travelling?",
}
_OPTIONS = [
    {"label": "Foot passenger", "value": "foot"},
    {"label": "With a bicycle", "value": "bicycle"},
    {"label": "With a car", "value": "car"},
]

FORM: Mapping[str, Any] = {
    "surfaceId": "booking",
    "components": [
        {"id": "root", "component": "Card", "child": "form"},
        {
            "id": "form",
            "component": "Column",
            "children": ["title", "name", "day", "kind", "seats", "news", "total", "book"],
        },
        {"id": "title", "component": "Text", "text": "Book a crossing", "variant": "h3"},
        _field("TextField", "name", "Name", "/booking/name", checks=[_REQUIRED]),
        _field("DateTimeInput", "day", "Day", "/booking/day", enableDate=True),
        _field("ChoicePicker", "kind", "You come", "/booking/kind", options=_OPTIONS),
        _field("Slider", "seats", "Seats", "/booking/seats", min=1, max=9, step=1),
        _field("CheckBox", "news", "Tell me when the ferry is late", "/booking/news"),
        {
            "id": "total",
            "component": "Text",
            "variant": "caption",
            "text": {
                "call": "formatString",
                "args": {
                    "value": "${/booking/seats} ${pluralize(value: ${/booking/seats}, "
                    "one: 'seat', other: 'seats')} on ${formatDate(value: ${/booking/day}, "
                    "format: 'EEEE, d MMMM')}"
                },
            },
        },
        {
            "id": "book",
            "component": "Button",
            "child": "book-label",
            "variant": "primary",
            "checks": [_REQUIRED],
            "action": {"event": {"name": "book", "context": {"booking": {"path": "/booking"}}}},
        },
        {"id": "book-label", "component": "Text", "text": "Book"},
    ],
    "data": {
        "booking": {"name": "", "day": "2030-05-04", "kind": ["foot"], "seats": 2, "news": True}
    },
}
"""The arguments of a surface with inputs and a button."""

TIMETABLE: Mapping[str, Any] = {
    "surfaceId": "timetable",
    "components": [
        {"id": "root", "component": "Column", "children": ["title", "list"]},
        {"id": "title", "component": "Text", "text": "Crossings today", "variant": "h3"},
        {
            "id": "list",
            "component": "List",
            "children": {"componentId": "card", "path": "/crossings"},
        },
        {"id": "card", "component": "Card", "child": "line"},
        {
            "id": "line",
            "component": "Row",
            "children": ["time", "route", "choose"],
            "justify": "spaceBetween",
            "align": "center",
        },
        {"id": "time", "component": "Text", "text": {"path": "time"}, "variant": "h4"},
        {"id": "route", "component": "Text", "text": {"path": "route"}, "weight": 1},
        {
            "id": "choose",
            "component": "Button",
            "child": "choose-label",
            "action": {"event": {"name": "choose", "context": {"time": {"path": "time"}}}},
        },
        {"id": "choose-label", "component": "Text", "text": "Choose"},
    ],
    "data": {
        "crossings": [
            {"time": "07:10", "route": "Port Skerry to St Brannoc"},
            {"time": "09:40", "route": "St Brannoc to Port Skerry"},
            {"time": "12:15", "route": "Port Skerry to Tern Island"},
            {"time": "17:30", "route": "Tern Island to Port Skerry"},
        ]
    },
}
"""The arguments of a surface whose list grows item by item."""

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
