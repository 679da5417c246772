"""The tool with which a model draws a surface, and the guide that shows how to call it."""

from copilot_runtime.api.action import Action, RunAction
from copilot_runtime.api.run_input import ContextItem

RENDER_TOOL = "render_a2ui"
"""What the tool is called unless the operator calls it otherwise."""

_DESCRIPTION = (
    "Render a dynamic A2UI v0.9 surface with structured parameters. "
    "Follow the A2UI render tool usage guide provided in context."
)

_PARAMETERS = {
    "type": "object",
    "properties": {
        "surfaceId": {"type": "string", "description": "Unique surface identifier."},
        "components": {
            "type": "array",
            "description": "A2UI v0.9 component array (flat format). "
            'The root component must have id "root".',
            "items": {"type": "object"},
        },
        "data": {
            "type": "object",
            "description": "Initial data model for the surface. Written to the root path. "
            'Use for pre-filling form values (e.g. {"form": {"name": "Alice"}}) '
            "or providing data for components bound to data model paths.",
        },
    },
    "required": ["surfaceId", "components"],
}

_GUIDE = """\
`%(tool)s` draws an interactive surface in the chat: cards, lists, tables, forms. Call it when \
looking, comparing or filling in is easier than reading; answer in words otherwise. The person \
sees the surface grow while you write the call, so write the arguments in this order:

1. `surfaceId`: a short new name, such as "flight-results".
2. `components`: all components of the surface in ONE flat list. Never leave it out.
3. `data`: the values that components show by path. Leave it out if none does.

Which catalog is used is not yours to say: there is no argument for it.

Components
- Each has an `id` that no other has, and a `component`: a name from the component schema in this \
context. Other names cannot be drawn. All its properties stand beside these two.
- Exactly one has the id "root". Let it be a container such as Column, Row or Card.
- Components do not contain each other: they name each other by id. Several with \
`"children": ["a", "b"]`, one with `"child": "a"`. Every id that is named must be in the list, and \
none may lead back to itself.

Data
- A property is a value, or is read from `data`: `{"path": "/form/name"}`.
- One component for each item of a list: \
`"children": {"componentId": "card", "path": "/flights"}`. \
Inside of it, paths without a slash at the front belong to the item: `{"path": "price"}`.
- Inputs write back to their path. Give each input one of its own.

Buttons
- `"action": {"event": {"name": "book", "context": {"id": {"path": "id"}}}}`. When it is pressed, \
you get the name and the values as the result of `log_a2ui_event`. Never call that tool yourself.

Example
{"surfaceId": "flight-results", "components": [
 {"id": "root", "component": "Column", "children": ["title", "list"]},
 {"id": "title", "component": "Text", "text": "Flights to Oslo"},
 {"id": "list", "component": "Column", "children": {"componentId": "card", "path": "/flights"}},
 {"id": "card", "component": "Card", "child": "line"},
 {"id": "line", "component": "Row", "children": ["number", "book"]},
 {"id": "number", "component": "Text", "text": {"path": "number"}},
 {"id": "book", "component": "Button", "child": "label", \
"action": {"event": {"name": "book", "context": {"number": {"path": "number"}}}}},
 {"id": "label", "component": "Text", "text": "Book"}],
 "data": {"flights": [{"number": "SK 802"}, {"number": "DY 1103"}]}}

Use only facts and image addresses that you have. Afterwards say in a sentence what is shown, and \
do not repeat it in words. If the result lists errors, nothing was drawn: correct all of them and \
call `%(tool)s` again with the whole surface."""


def build_render_tool(name: str, run: RunAction | None = None) -> Action:
    """Return the tool. With `run` it is executed here, without it the page is thought to draw."""
    return Action(
        name=name, description=_DESCRIPTION, parameters=_PARAMETERS, run=run, is_drawing=True
    )


def build_guide(name: str) -> ContextItem:
    """Return the guide for a model that has the tool under this name."""
    description = f"A2UI render tool usage guide \u2014 how to call {name} with valid arguments."
    return ContextItem(description=description, value=_GUIDE % {"tool": name})
