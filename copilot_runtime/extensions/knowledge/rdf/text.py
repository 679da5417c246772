"""Render the embedded text of a resource: text unchanged, and triples as readable lines.

An embedding of Turtle or JSON-LD is mostly one of its syntax: two resources of one class are alike
in it whatever they say. So a resource of triples becomes a few lines: what it is called and what it
is, then a line for each property, with the words of its name and the text of its value. For
`<#ada> a schema:Person; schema:name "Ada"; schema:worksFor <https://example.com/id/the-mill>;
schema:email <mailto:ada@mill.example>`:

    Ada, person
    works for: the mill
    email: ada@mill.example

What people copy, such as addresses of mail and of pages, stays as it is, to the last character.
"""

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any
from urllib.parse import unquote, urlsplit

from pyoxigraph import Literal, NamedNode, Triple

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.rdf.terms import RDF_TYPE, XSD, read_triples

_FLOATS = tuple(f"{XSD}{kind}" for kind in ("double", "float"))
_NAMES = ("name", "headline", "title", "label", "prefLabel", "legalName", "alternateName")
"""Local names of naming properties, the best first."""
_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-_+.]+|(?<=[A-Z])(?=[A-Z][a-z])")
_OPAQUE = re.compile(r"[0-9a-f]{8,}(-[0-9a-f]{4,})*|\d+", re.IGNORECASE)
_CHARACTERS_PER_TOKEN = 4

_CONTACTS = re.compile(r"(?:mailto|tel|sms|fax):([^?]*)", re.IGNORECASE)
_ADDRESSES = re.compile(r"(?:sips?|xmpp|geo|ftps?|sftp|wss?):", re.IGNORECASE)
_WEB = re.compile(r"https?:", re.IGNORECASE)
_EMBEDDED = re.compile(r"(?:data|javascript|blob):", re.IGNORECASE)
"""Schemes of IRIs that are content and not names."""
_FILE = re.compile(r"[^/]*[^/.]\.[a-z][a-z0-9]{1,3}", re.IGNORECASE)
_ADDRESS_PROPERTY = re.compile(
    r"(?:.*(?:url|urltemplate|page)|sameas|seealso|identifier|weblog|licen[sc]e)", re.IGNORECASE
)
"""Local names of properties whose values are addresses."""


def render_text(content: str, format: str, names: Mapping[str, str] | None = None) -> str:
    """Return a content as readable text; unchanged if it cannot be parsed.

    `names` are the labels of things that the content refers to, by IRI; without a label, the
    last part of the IRI is used.
    """
    try:
        triples = read_triples(content, format)
    except Misuse:
        return content
    return _render(triples, names or {}) if triples else content


def cut_to_tokens(text: str, most: int) -> str:
    """Return about the first `most` tokens of a text; 0 is unlimited."""
    return text[: most * _CHARACTERS_PER_TOKEN] if most else text


def _render(triples: list[Triple], others: Mapping[str, str]) -> str:
    """Return a paragraph for each subject, the first one first."""
    statements: dict[Any, list[Triple]] = {}
    for triple in triples:
        statements.setdefault(triple.subject, []).append(triple)
    names: dict[Any, str] = {NamedNode(iri): name for iri, name in others.items()}
    names |= {subject: name for subject, own in statements.items() if (name := _find_name(own))}
    return "\n\n".join(
        text for subject, own in statements.items() if (text := _render_one(subject, own, names))
    )


def _render_one(subject: Any, own: list[Triple], names: dict[Any, str]) -> str:
    kinds = [_read_value(one.object) for one in own if one.predicate == RDF_TYPE]
    called = names.get(subject, "")
    lines = [", ".join(dict.fromkeys(filter(None, [called, *kinds])))]
    values: dict[str, list[str]] = {}
    for one in own:
        value = _read_object(one, names)
        is_name = value == called and _local_name(one.predicate.value) in _NAMES
        if one.predicate != RDF_TYPE and value and not is_name:
            values.setdefault(_words(one.predicate.value), []).append(value)
    lines += [f"{name}: {', '.join(dict.fromkeys(found))}" for name, found in values.items()]
    return "\n".join(filter(None, lines))


def _find_name(own: Iterable[Triple]) -> str:
    found = {_local_name(one.predicate.value): _read_value(one.object) for one in reversed([*own])}
    return next((found[name] for name in _NAMES if found.get(name)), "")


def _read_object(triple: Triple, names: dict[Any, str]) -> str:
    """Return the readable object of a triple: an address, a label, or the text of a literal."""
    value, name = triple.object, _local_name(triple.predicate.value)
    if (
        isinstance(value, NamedNode)
        and _WEB.match(value.value)
        and _ADDRESS_PROPERTY.fullmatch(name)
    ):
        return value.value
    return names.get(value) or _read_value(value)


def _read_value(term: Any) -> str:
    """Return the text of a literal or IRI; empty for a blank node."""
    if isinstance(term, Literal):
        text = " ".join(term.value.split())
        return _write_number(text) if term.datatype.value in _FLOATS else text
    return _read_iri(term.value) if isinstance(term, NamedNode) else ""


def _read_iri(iri: str) -> str:
    """Return the IRI of a page unchanged, and the words of other IRIs."""
    if contact := _CONTACTS.match(iri):
        return unquote(contact[1])
    if _EMBEDDED.match(iri):
        return ""
    return iri if _ADDRESSES.match(iri) or _is_page(iri) else _words(iri)


def _is_page(iri: str) -> bool:
    """Return whether an IRI is the address of a site, of a file or of the answer to a query."""
    if not _WEB.match(iri):
        return False
    parts = urlsplit(iri)
    last = parts.path.rpartition("/")[2]
    is_site = not parts.path.strip("/")
    return not parts.fragment and bool(is_site or parts.query or _FILE.fullmatch(last))


def _write_number(text: str) -> str:
    """Return a number of JSON-LD, such as 4.8E0, in plain notation: 4.8."""
    try:
        number = float(text)
    except ValueError:
        return text
    return f"{number:.15g}" if isfinite(number) else text


def _words(iri: str) -> str:
    """Return the words in the last part of an IRI; none if it is only a number or a hash."""
    name = _local_name(iri)
    if _OPAQUE.fullmatch(name):
        return ""
    return " ".join(word for word in _WORD_ENDS.sub(" ", name).split()).lower()


def _local_name(iri: str) -> str:
    parts = urlsplit(iri)
    last = parts.fragment or parts.path.rstrip("/").rpartition("/")[2] or parts.netloc
    return unquote(last.rpartition(":")[2])
