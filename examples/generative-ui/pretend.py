"""A model that draws by rules: surfaces, a form, a call of an MCP app, and a page of its own."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from copilot_runtime import Adapter, ChatRequest, Events
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Event,
)
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage, TextMessage, new_id

Steps = Iterator[tuple[str, Sequence[Event]]]
"""The name of each step of an answer, and its events."""

HERE = Path(__file__).parent

TRIPS = [
    {
        "from": "Kellsay",
        "to": "St Brannoc",
        "leaves": "09:10",
        "arrives": "10:00",
        "ship": "MV Tern",
        "fare": "£18",
    },
    {
        "from": "Kellsay",
        "to": "Corrow Town",
        "leaves": "10:30",
        "arrives": "11:25",
        "ship": "MV Gannet",
        "fare": "£14",
    },
    {
        "from": "St Brannoc",
        "to": "Corrow Town",
        "leaves": "13:45",
        "arrives": "14:03",
        "ship": "MV Petrel",
        "fare": "£6",
    },
]

TRIP_LIST = [
    {"id": "root", "component": "Column", "children": ["title", "trips"]},
    {"id": "title", "component": "Text", "variant": "h3", "text": "Trips on Saturday"},
    {
        "id": "trips",
        "component": "List",
        "children": {"componentId": "trip", "path": "/trips"},
    },
    {
        "id": "trip",
        "component": "Crossing",  # the component of the page's own, see src/catalog.tsx
        "from": {"path": "from"},
        "to": {"path": "to"},
        "leaves": {"path": "leaves"},
        "arrives": {"path": "arrives"},
        "ship": {"path": "ship"},
        "fare": {"path": "fare"},
        "action": {"event": {"name": "choose_trip", "context": {"to": {"path": "to"}}}},
    },
]

FORM = [
    {"id": "root", "component": "Card", "child": "fields"},
    {
        "id": "fields",
        "component": "Column",
        "children": ["title", "to", "name", "people", "dog", "book"],
    },
    {"id": "title", "component": "Text", "variant": "h3", "text": "Book a trip"},
    {
        "id": "to",
        "component": "ChoicePicker",
        "label": "Where to?",
        "variant": "mutuallyExclusive",
        "displayStyle": "chips",
        "options": [{"label": name, "value": name} for name in ("St Brannoc", "Corrow Town")],
        "value": {"path": "/to"},
    },
    {"id": "name", "component": "TextField", "label": "Your name", "value": {"path": "/name"}},
    {
        "id": "people",
        "component": "Slider",
        "label": "How many of you?",
        "min": 1,
        "max": 6,
        "value": {"path": "/people"},
    },
    {
        "id": "dog",
        "component": "CheckBox",
        "label": "A dog comes along",
        "value": {"path": "/dog"},
    },
    {
        "id": "book",
        "component": "Button",
        "variant": "primary",
        "child": "book_label",
        "action": {
            "event": {
                "name": "book_trip",
                "context": {key: {"path": f"/{key}"} for key in ("to", "name", "people", "dog")},
            }
        },
    },
    {"id": "book_label", "component": "Text", "text": "Book"},
]

WORDS = {
    "render_a2ui": "There you are.",
    "choose_seat": "Take a seat: the free ones are shown.",
    "generateSandboxedUi": "Move the line to see how high the water is.",
    "addBooking": "It is booked. You pay on board.",
}
"""What it says after a call has been answered."""

WELCOME = "I am at the desk of Skerry Line. Ask me for trips, a seat, a booking, or the tides."


async def _wait(step: str) -> None:  # noqa: ARG001
    await asyncio.sleep(0.25)


class PretendModel(Adapter):
    """Draws what it is asked for, in steps that a person can watch.

    `pause` is awaited before each step with its name.
    """

    suggestions = ("Which trips are there on Saturday?", "Show me the tides.")

    def __init__(self, pause: Callable[[str], Awaitable[None]] = _wait) -> None:
        self.pause = pause
        self.requests: list[ChatRequest] = []

    async def stream(self, request: ChatRequest) -> Events:
        """Answer a question, a click, or what came of a call."""
        self.requests.append(request)
        for name, events in _answer(request):
            await self.pause(name)
            for event in events:
                yield event


def _answer(request: ChatRequest) -> Steps:
    last = request.messages[-1] if request.messages else None
    if isinstance(last, ResultMessage):
        yield from _go_on(request, last)
        return
    question = last.content.lower() if isinstance(last, TextMessage) else ""
    tools = {action.name for action in request.actions}
    if "trips" in question:
        yield from _draw_trips()
    elif "seat" in question and "taken" in question:
        yield from _say("Noted. Boarding begins a quarter of an hour before the ship leaves.")
    elif "seat" in question:
        yield from _show_seats(question, tools)
    elif "book" in question:
        yield from _draw_form()
    elif "tide" in question:
        yield from _draw_tides(tools)
    else:
        yield from _say(WELCOME)


def _go_on(request: ChatRequest, result: ResultMessage) -> Steps:
    """Answer after a call: a click is one as well, of `log_a2ui_event`."""
    if result.name != "log_a2ui_event":
        yield from _say(WORDS.get(result.name, "Done."))
        return
    action, values = _read_click(request, result.call_id)
    if action == "choose_trip":
        yield from _draw_form(str(values.get("to", "")))
    elif not values.get("name"):
        yield from _say("What is your name? I need it for the booking.")
    else:
        booking = {
            "to": (values.get("to") or ["?"])[0],
            "name": values["name"],
            "people": values.get("people", 1),
            "dog": values.get("dog", False),
        }
        yield "booking", call("addBooking", booking, id=new_id())


def _read_click(request: ChatRequest, call_id: str) -> tuple[str, Mapping[str, Any]]:
    """Return the name of what was clicked, and the values that came with it."""
    for message in request.messages:
        if isinstance(message, ActionExecutionMessage) and message.id == call_id:
            click = json.loads(message.arguments)
            return click.get("name", ""), click.get("context") or {}
    return "", {}


def _draw_trips() -> Steps:
    """Call `render_a2ui` with arguments that come in pieces, one for each trip."""
    head = json.dumps({"surfaceId": "trips", "components": TRIP_LIST})[:-1] + ', "data": '
    yield from _call_in_pieces(
        "trips",
        "render_a2ui",
        [
            head + '{"trips": [',
            *(json.dumps(trip) + (", " if trip != TRIPS[-1] else "") for trip in TRIPS),
            "]}}",
        ],
    )


def _draw_form(to: str = "") -> Steps:
    data = {"to": [to or "St Brannoc"], "name": "", "people": 2, "dog": False}
    surface = {"surfaceId": f"booking-{new_id()}", "components": FORM, "data": data}
    yield "form", call("render_a2ui", surface, id=new_id())


def _show_seats(question: str, tools: set[str]) -> Steps:
    if "choose_seat" in tools:
        ship = "MV Gannet" if "gannet" in question else "MV Tern"
        yield "seats", call("choose_seat", {"ship": ship}, id=new_id())
    else:
        yield from _say("I cannot show the seats just now: their server does not answer.")


def _draw_tides(tools: set[str]) -> Steps:
    """Write a page of style, HTML and script, as a model does."""
    if "generateSandboxedUi" not in tools:
        yield from _say("High water is at 09:40 and 22:05.")
        return
    style, html, script = (_read(f"tides.{kind}") for kind in ("css", "html", "js"))
    fields = {
        "initialHeight": 410,  # as high as the page is: a reload draws it so, and does not measure
        "placeholderMessages": ["Looking up the tides", "Drawing the curve"],
        "css": style,
        "html": html,
        "jsFunctions": script,
        "jsExpressions": ["draw([[9.67, 5.1], [22.08, 4.9]])", "choose(12)"],
    }
    marks = ('"css"', '"html"', "<svg", "<label", '"jsFunctions"', '"jsExpressions"')
    pieces = _split(json.dumps(fields), marks)
    yield from _call_in_pieces("tides", "generateSandboxedUi", pieces)


def _call_in_pieces(step: str, name: str, pieces: Sequence[str]) -> Steps:
    id = new_id()
    yield f"{step}:call", [ActionExecutionStart(call_id=id, name=name)]
    for number, piece in enumerate(pieces):
        yield f"{step}:{number}", [ActionExecutionArgs(call_id=id, delta=piece)]
    yield f"{step}:end", [ActionExecutionEnd(call_id=id)]


def _say(text: str) -> Steps:
    yield "words", say([f"{word} " for word in text.split(" ")], id=new_id())


def _read(name: str) -> str:
    return (HERE / "tides" / name).read_text(encoding="utf-8")


def _split(text: str, marks: Sequence[str]) -> list[str]:
    """Cut a text before each mark."""
    cuts = [0, *(text.index(mark) for mark in marks), len(text)]
    return [text[start:end] for start, end in pairwise(cuts)]
