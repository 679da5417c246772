"""Builds surfaces of components of A2UI's basic catalog.

Catalog: https://a2ui.org/specification/v0_9/basic_catalog.json.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    BASIC_CATALOG,
    Operation,
    create_surface,
    update_components,
)

Variant = Literal["h1", "h2", "h3", "h4", "h5", "caption", "body"]

COMPONENTS = frozenset({"Button", "Card", "Column", "Divider", "Image", "Row", "Text"})
"""Those that a `Surface` is made of: a catalog that has them can draw it."""


class Surface:
    """A surface that grows component by component; each method returns the id of a new one.

    No more than `most` components are taken, the root not counted: `is_full` says that there is no
    room, and further ones are left out. Their id is empty, and `column` and `row` drop it.
    """

    def __init__(self, surface_id: str, *, most: int = 2_000) -> None:
        self.id = surface_id
        self._most = most
        self._components: list[Mapping[str, Any]] = []

    @property
    def is_full(self) -> bool:
        return len(self._components) >= self._most

    def text(self, text: str, variant: Variant = "body") -> str:
        """Add a text; Markdown in it is drawn, so `escape_markdown` what people wrote."""
        return self._add("Text", text=text, variant=variant)

    def image(self, url: str, description: str) -> str:
        """Add an image at an address, which may be a `data:` one."""
        fields = {"url": url, "description": description, "fit": "contain"}
        return self._add("Image", **fields, variant="largeFeature")

    def divider(self) -> str:
        """Add a line."""
        return self._add("Divider")

    def row(self, children: Sequence[str], justify: str = "start") -> str:
        """Add a row of components."""
        present = [child for child in children if child]
        return self._add("Row", children=present, justify=justify, align="center")

    def column(self, children: Sequence[str]) -> str:
        """Add components below each other."""
        return self._add("Column", children=[child for child in children if child])

    def card(self, child: str) -> str:
        """Add a frame around a component."""
        return self._add("Card", child=child) if child else ""

    def link(self, label: str, url: str) -> str:
        """Add a button that opens an address."""
        call = {"call": "openUrl", "args": {"url": url}}
        child = self.text(label)
        if not child:
            return ""
        return self._add("Button", child=child, variant="borderless", action={"functionCall": call})

    def button(self, label: str, action: str, context: Mapping[str, Any]) -> str:
        """Add a button whose click reaches the agent as an action of that name."""
        child = self.text(label)
        if not child:
            return ""
        event = {"name": action, "context": dict(context)}
        return self._add("Button", child=child, action={"event": event})

    def build(
        self, children: Sequence[str], catalog_id: str = BASIC_CATALOG
    ) -> Sequence[Operation]:
        """Return the operations that draw the surface, with these components below each other."""
        present = [child for child in children if child]
        root = {"id": "root", "component": "Column", "children": present}
        return [
            create_surface(self.id, catalog_id),
            update_components(self.id, [root, *self._components]),
        ]

    def _add(self, component: str, **fields: Any) -> str:
        if self.is_full:
            return ""
        id = f"c{len(self._components) + 1}"
        self._components.append({"id": id, "component": component, **fields})
        return id


def escape_markdown(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    flat = " ".join(text.split())
    return "".join(f"\\{char}" if char in _MARKUP else char for char in flat)


_MARKUP = frozenset("\\`*_{}[]<>()#+-!|~")
