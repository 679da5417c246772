"""Read RDFa: all of RDFa Lite, and of RDFa 1.1 what pages use besides.

That is `about`, `content`, `datatype`, `rel` and `rev` with whole or prefixed names, and `rel`
whose object stands further inside; not `inlist`, nor `rel` with a bare word.

https://www.w3.org/TR/rdfa-lite/ https://www.w3.org/TR/html-rdfa/
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyoxigraph import BlankNode, Literal, NamedNode

from copilot_runtime.extensions.knowledge.rdf.html import clean_text, text_pieces
from copilot_runtime.extensions.knowledge.rdf.terms import (
    RDF,
    RDF_TYPE,
    RDFS,
    SCHEMA,
    XSD,
    Node,
    Statements,
    Term,
    make_iri,
    make_text,
    make_time,
)

if TYPE_CHECKING:
    from lxml.etree import _Element as Element  # pyright: ignore[reportPrivateUsage]

_PREFIXES: Mapping[str, str] = {
    "dc": "http://purl.org/dc/terms/",
    "dcterms": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "og": "http://ogp.me/ns#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "rdf": RDF,
    "rdfs": RDFS,
    "schema": SCHEMA,
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "xsd": XSD,
}
"""Prefixes that need no declaration: https://www.w3.org/2011/rdfa-context/rdfa-1.1"""

_SUBJECTS = ("about", "resource", "typeof", "rel", "rev")
"""Attributes of an element that make elements in it speak of something else."""


@dataclass(frozen=True, slots=True)
class _Context:
    """The context that an element inherits."""

    subject: Node
    object: Node
    """The default subject of nested elements."""
    pending: tuple[list[NamedNode], list[NamedNode]] = ([], [])
    """Incomplete relations, forward and backward, completed by a nested element."""
    vocabulary: str = ""
    language: str = ""
    prefixes: Mapping[str, str] = field(default_factory=lambda: _PREFIXES)


def read_rdfa(
    root: "Element", base: str, statements: Statements, hidden: "Collection[Element]"
) -> None:
    """Add the statements of the RDFa attributes of a page, without its `hidden` elements."""
    if (page := make_iri(base)) is not None:
        _Reader(root, base, statements, hidden).read(_Context(page, page))


class _Reader:
    def __init__(
        self, root: "Element", base: str, statements: Statements, hidden: "Collection[Element]"
    ) -> None:
        self._root = root
        self._hidden = hidden
        self._base = base
        self._statements = statements
        self._nodes: dict[str, BlankNode] = {}

    def read(self, context: _Context) -> None:
        stack = [(self._root, context)]
        while stack:
            element, around = stack.pop()
            if element in self._hidden:
                if not any(name in element.attrib for name in _SUBJECTS):
                    inside = self._declare(element, around)
                    stack += [(child, inside) for child in reversed(element)]
                continue
            inside = self._read_element(element, around) if element.attrib else around
            stack += [(child, inside) for child in reversed(element)]

    def _read_element(self, element: "Element", around: _Context) -> _Context:
        """Follow the steps of https://www.w3.org/TR/rdfa-core/#s_sequence for one element."""
        here = self._declare(element, around)
        properties = self._names(element, "property", here)
        types = self._names(element, "typeof", here)
        relations = (self._names(element, "rel", here), self._names(element, "rev", here))
        about = self._resource(element, here, "about")
        target = self._resource(element, here, "resource", "href", "src")
        literal = "content" in element.attrib or "datatype" in element.attrib
        inner: Node | None = None

        if any(relations):
            subject = about or here.object
            inner = target or (self._statements.make_node() if types and not about else None)
            typed = about or inner
        elif properties and not literal:
            subject = about or here.object
            typed = about or target or (self._statements.make_node() if types else None)
            inner = typed if types else None
        else:
            typed = about or target or (self._statements.make_node() if types else None)
            if typed is None and not properties:
                return here
            subject = typed or here.object

        for name in types if typed else ():
            self._statements.add(typed or subject, RDF_TYPE, name)
        if any(relations) and inner:
            self._relate(subject, inner, relations)
        if properties:
            resource = None if any(relations) else target
            resource = resource or (typed if types and not about else None)
            value = self._value(element, here, None if literal else resource)
            for name in properties:
                self._statements.add(subject, name, value)
        self._relate(here.subject, subject, here.pending)
        if any(relations) and not inner:
            node = self._statements.make_node()
            return replace(here, subject=subject, object=node, pending=relations)
        return replace(here, subject=subject, object=inner or subject, pending=([], []))

    def _relate(
        self, subject: Node, value: Node, relations: tuple[list[NamedNode], list[NamedNode]]
    ) -> None:
        forward, backward = relations
        for name in forward:
            self._statements.add(subject, name, value)
        for name in backward:
            self._statements.add(value, name, subject)

    def _value(self, element: "Element", context: _Context, resource: Node | None) -> Term:
        if resource is not None:
            return resource
        content = element.get("content")
        if content is None and element.tag == "time":
            content = element.get("datetime")
        if content is None:
            pieces = [element.text or ""]
            if len(element):
                pieces = [*text_pieces(element, self._hidden)]
            self._statements.add_steps(len(pieces))
            text = clean_text("".join(pieces)).strip()
        else:
            text = clean_text(content).strip()
        if names := self._names(element, "datatype", context):
            return Literal(text, datatype=names[0])
        if element.tag == "time" and (moment := make_time(text)).datatype.value != f"{XSD}string":
            return moment
        return make_text(text, context.language)

    def _resource(self, element: "Element", context: _Context, *attributes: str) -> Node | None:
        for attribute in attributes:
            reference = element.get(attribute)
            if reference is None:
                continue
            reference = reference.strip()
            if attribute in ("about", "resource"):
                if reference.startswith("[") and reference.endswith("]"):
                    reference = reference[1:-1].strip()
                if reference.startswith("_:"):
                    if reference not in self._nodes:
                        self._nodes[reference] = self._statements.make_node()
                    return self._nodes[reference]
                if iri := _expand(reference, context):
                    return iri
            return make_iri(reference, self._base)
        return None

    def _names(self, element: "Element", attribute: str, context: _Context) -> list[NamedNode]:
        """Return the names of properties, types or relations that an attribute lists."""
        names: dict[NamedNode, None] = {}
        for word in (element.get(attribute) or "").split():
            iri = _expand(word, context)
            if iri is None and ":" in word:
                iri = make_iri(word)
            elif iri is None and context.vocabulary and attribute not in ("rel", "rev"):
                iri = make_iri(context.vocabulary + word)
            if iri is not None:
                names[iri] = None
        return [*names]

    def _declare(self, element: "Element", around: _Context) -> _Context:
        """Return the context with what an element says about vocabulary, prefixes and language."""
        vocabulary = element.get("vocab")
        prefixes = element.get("prefix")
        language = element.get("lang", element.get("xml:lang"))
        if vocabulary is None and prefixes is None and language is None:
            return around
        words = iter((prefixes or "").split())
        added = {
            name[:-1].lower(): iri
            for name in words
            if name.endswith(":") and name != ":" and (iri := next(words, ""))
        }
        if added:  # each element that declares one has a copy of all
            self._statements.add_steps(len(around.prefixes) + len(added))
        return replace(
            around,
            vocabulary=around.vocabulary if vocabulary is None else vocabulary.strip(),
            prefixes={**around.prefixes, **added} if added else around.prefixes,
            language=around.language if language is None else language,
        )


def _expand(word: str, context: _Context) -> NamedNode | None:
    """Return the IRI of a name with a declared prefix, or `None`."""
    prefix, colon, rest = word.partition(":")
    namespace = context.prefixes.get(prefix.lower()) if colon else None
    return make_iri(namespace + rest) if namespace and not rest.startswith("//") else None
