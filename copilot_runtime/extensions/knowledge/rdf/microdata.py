"""Read microdata: https://html.spec.whatwg.org/multipage/microdata.html as RDF.

Values become terms as in https://www.w3.org/TR/microdata-rdf/, in the language of their element.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyoxigraph import Literal, NamedNode

from copilot_runtime.extensions.knowledge.rdf.html import clean_text, text_pieces
from copilot_runtime.extensions.knowledge.rdf.terms import (
    RDF_TYPE,
    Node,
    Statements,
    Term,
    is_absolute,
    make_iri,
    make_number,
    make_text,
    make_time,
)

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_ADDRESSES = {
    **dict.fromkeys(("a", "area", "link"), "href"),
    **dict.fromkeys(("audio", "embed", "iframe", "img", "source", "track", "video"), "src"),
    "object": "data",
}


def read_microdata(
    root: "Element", base: str, statements: Statements, hidden: "Collection[Element]"
) -> None:
    """Add the statements of the microdata items of a page, without its `hidden` elements."""
    _Reader(root, base, statements, hidden).read()


class _Reader:
    def __init__(
        self, root: "Element", base: str, statements: Statements, hidden: "Collection[Element]"
    ) -> None:
        self._root = root
        self._hidden = hidden
        self._base = base
        self._statements = statements
        self._nodes: dict[Element, Node] = {}
        self._names: dict[tuple[str, str], NamedNode | None] = {}
        """The IRIs of properties, by their vocabulary and name."""
        self._ids: dict[str, Element] | None = None
        self._languages: dict[Element | None, str] = {None: ""}

    def read(self) -> None:
        for scope in self._root.iter():
            if scope.get("itemscope") is not None and scope not in self._hidden:
                self._read_item(scope)

    def _read_item(self, scope: "Element") -> None:
        node = self._name_item(scope)
        types = self._types(scope)
        for name in types:
            self._statements.add(node, RDF_TYPE, name)
        vocabulary = _vocabulary(types[0].value) if types else ""
        visited = {scope}
        stack = [*reversed(scope)]
        for reference in reversed(scope.get("itemref", "").split()):
            element = self._find(reference)
            if element is not None:
                stack.append(element)
        references = len(stack) > len(scope)
        while stack:
            element = stack.pop()
            if references:  # only then may an element be met twice, and twice as often each time
                self._statements.add_steps()
                if element in visited:
                    continue
                visited.add(element)
            if (names := element.get("itemprop")) and element not in self._hidden:
                self._read_property(node, names, vocabulary, element)
            if len(element) and element.get("itemscope") is None:
                stack += reversed(element)

    def _read_property(self, item: Node, names: str, vocabulary: str, element: "Element") -> None:
        value: Term | None = None
        for name in dict.fromkeys(names.split()):
            predicate = self._name_property(name, vocabulary)
            if predicate is None:
                continue
            value = value or self._value(element)
            if value is None:
                return
            self._statements.add(item, predicate, value)

    def _value(self, element: "Element") -> Term | None:
        if element.get("itemscope") is not None:
            return self._name_item(element)
        tag = element.tag
        content = element.get("content")
        if content is not None:
            return make_text(clean_text(content).strip(), self._language(element))
        if (attribute := _ADDRESSES.get(tag)) and (address := element.get(attribute)) is not None:
            return make_iri(address, self._base)
        if tag in ("data", "meter") and (number := element.get("value")) is not None:
            return make_number(number)
        if tag == "time":
            moment = element.get("datetime")
            return Literal(self._text(element)) if moment is None else make_time(moment)
        return make_text(self._text(element), self._language(element))

    def _text(self, element: "Element") -> str:
        if not len(element):
            return clean_text(element.text or "").strip()
        pieces = [*text_pieces(element, self._hidden)]
        self._statements.add_steps(len(pieces))
        return clean_text("".join(pieces)).strip()

    def _name_item(self, scope: "Element") -> Node:
        """Return the node of an item, the same one every time."""
        if scope not in self._nodes:
            name = scope.get("itemid")
            iri = make_iri(name, self._base) if name and name.strip() else None
            self._nodes[scope] = iri or self._statements.make_node()
        return self._nodes[scope]

    def _name_property(self, name: str, vocabulary: str) -> NamedNode | None:
        key = vocabulary, name
        if key not in self._names:
            is_alone = not vocabulary or is_absolute(name)
            self._names[key] = make_iri(name if is_alone else vocabulary + name)
        return self._names[key]

    def _types(self, scope: "Element") -> list[NamedNode]:
        names = dict.fromkeys(scope.get("itemtype", "").split())
        return [iri for name in names if (iri := make_iri(name))]

    def _language(self, element: "Element") -> str:
        """Return the language that an element says it is in, or the nearest one around it."""
        path: list[Element] = []
        here: Element | None = element
        while here not in self._languages and here is not None:
            path.append(here)
            here = here.getparent()
        language = self._languages[here]
        for inner in reversed(path):
            own = inner.get("lang", inner.get("xml:lang"))
            language = self._languages[inner] = language if own is None else own
        return language

    def _find(self, id: str) -> "Element | None":
        if self._ids is None:
            self._ids = {}
            for element in self._root.iter():
                if (name := element.get("id")) is not None:
                    self._ids.setdefault(name, element)
        return self._ids.get(id)


def _vocabulary(type: str) -> str:
    """Return the vocabulary IRI of a type: up to its last # or /."""
    head, hash_sign, _ = type.rpartition("#")
    return head + hash_sign if hash_sign else type[: type.rfind("/") + 1]
