"""Finds what the references in a schema point to: pointers, anchors and identifiers.

https://json-schema.org/draft/2020-12/json-schema-core#section-8.2
"""

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import unquote, urljoin

from copilot_runtime.base.jsonvalue import JsonObject, get_text


def join_uri(base: str, reference: str) -> str:
    """Return the absolute URI of a reference; `base` is the URI of the schema that contains it."""
    if reference.startswith("#"):  # urljoin would not join it to a URN
        return (base + reference).removesuffix("#")
    try:
        return urljoin(base, reference).removesuffix("#")
    except ValueError:  # it is no URI
        return reference


def find_base(base: str, schema: JsonObject) -> str:
    """Return the URI of a schema for references in it; `base` is that of what contains it."""
    own = get_text(schema, "$id")
    return join_uri(base, own).partition("#")[0] if own else base


class References:
    """The parts of a document that references may point to."""

    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._targets: dict[str, JsonObject] | None = None  # absolute URI → schema

    def find(self, reference: str, base: str) -> Any:
        """Return the target of a reference in a schema with this URI, or `None`.

        A pointer that leads nowhere in a part with its own `$id` counts for the whole document.
        """
        if self._targets is None:
            self._targets = dict(_list_targets(self._document, ""))
        uri = join_uri(base, reference)
        if uri in self._targets:
            return self._targets[uri]
        address, _, pointer = uri.partition("#")
        if pointer and not pointer.startswith("/"):
            return None
        found = _follow(self._targets.get(address), pointer)
        return _follow(self._document, pointer) if found is None and reference[:1] == "#" else found


def _list_targets(node: Any, base: str) -> Iterator[tuple[str, JsonObject]]:
    """Yield the schemas with an identifier or an anchor, by their URIs."""
    if isinstance(node, list):
        for one in cast("list[Any]", node):
            yield from _list_targets(one, base)
    if not isinstance(node, dict):
        return
    schema = cast("JsonObject", node)
    if own := get_text(schema, "$id"):
        yield join_uri(base, own), schema
    base = find_base(base, schema)
    for name in ("$anchor", "$dynamicAnchor"):
        if anchor := get_text(schema, name):
            yield f"{base}#{anchor}", schema
    for one in schema.values():
        yield from _list_targets(one, base)


def _follow(node: Any, pointer: str) -> Any:
    for part in unquote(pointer).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = cast("JsonObject", node).get(key)
        elif isinstance(node, list) and key.isdecimal():
            items = cast("list[Any]", node)
            node = items[int(key)] if int(key) < len(items) else None
        else:
            return None
    return node
