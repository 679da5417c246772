"""RDF terms and triple patterns: how people write them, and their numbers in a table.

Inside the graph a term is its text in N-Triples, as `str` of a term of pyoxigraph gives it.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from textwrap import shorten
from typing import TypeGuard, cast

from pyoxigraph import BlankNode, Literal, NamedNode, Triple

from copilot_runtime.base.errors import LimitExceeded, Misuse, Refused
from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.extensions.knowledge.rdf.terms import (
    RDF,
    RDF_TYPE,
    RDFS,
    SCHEMA,
    XSD,
    parse_triples,
)

Term = NamedNode | BlankNode | Literal | Triple
"""A term in object position. Subjects are never literals, and predicates are IRIs."""

PREFIXES: Mapping[str, str] = {
    "rdf": RDF,
    "rdfs": RDFS,
    "sh": "http://www.w3.org/ns/shacl#",
    "dct": "http://purl.org/dc/terms/",
    "schema": SCHEMA,
    "foaf": "http://xmlns.com/foaf/0.1/",
    "ex": "https://example.invalid/",
    "owl": "http://www.w3.org/2002/07/owl#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "xsd": XSD,
}
"""Built-in prefixes of patterns, SPARQL and the ontology."""

WILDCARDS = frozenset({"", "?", "*", "_", "null", "NULL"})

_LITERAL = re.compile(
    r'"(?P<text>(?:[^"\\]|\\.)*)"(?:@(?P<language>[A-Za-z]+(?:-[A-Za-z0-9]+)*)|\^\^(?P<type>\S+))?',
    re.DOTALL,
)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def is_wildcard(term: str | None) -> bool:
    """Return whether a part of a pattern is a wildcard."""
    return term is None or term in WILDCARDS


@dataclass(frozen=True, slots=True)
class TermQuery:
    """The terms that match a part of a pattern."""

    terms: tuple[str, ...] = ()
    """Terms that match exactly."""
    quoted: tuple[str, ...] = ()
    """Literals with these texts (in N-Triples, with their quotes), of any language or datatype."""


class Prefixes(Mapping[str, str]):
    """Short names of namespaces: the built-in ones, and those of an operator."""

    def __init__(self, more: Mapping[str, str] | None = None) -> None:
        self._namespaces = {**PREFIXES, **(more or {})}

    def __getitem__(self, name: str) -> str:
        return self._namespaces[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._namespaces)

    def __len__(self) -> int:
        return len(self._namespaces)

    def expand(self, text: str) -> str | None:
        """Return the IRI of `prefix:name`, or None for an unknown prefix."""
        name, colon, rest = text.partition(":")
        namespace = self._namespaces.get(name) if colon else None
        return None if namespace is None else namespace + rest

    def shorten(self, iri: str) -> str:
        """Return an IRI as Turtle writes it: `prefix:name` if it can be, else in angle brackets."""
        for name, namespace in self._namespaces.items():
            if iri.startswith(namespace) and _LOCAL_NAME.fullmatch(iri, len(namespace)):
                return f"{name}:{iri[len(namespace) :]}"
        return str(make_iri(iri))

    def describe_unknown(self, *terms: str) -> str:
        """Return a sentence about the first unknown prefix of some terms, or an empty string."""
        found = (match[1] for term in terms if (match := _PREFIX.fullmatch(term)))
        name = next((it for it in found if it not in self and it.lower() not in _SCHEMES), None)
        if name is None:
            return ""
        return f"There is no prefix {name!r}. {suggest_prefix(name, self)}"

    def parse_node(self, text: str, part: str) -> TermQuery:
        """Parse a subject or a predicate of a pattern. Raises `Misuse` if it is not an IRI."""
        if part == "predicate" and text == "a":
            return TermQuery((str(RDF_TYPE),))
        if (iri := self._find_iri(text)) is not None:
            return TermQuery((str(make_iri(iri)),))
        raise InvalidQuery(
            f"The {part} of a pattern is an IRI, and {text[:200]!r} is none.",
            hint="Write it as <https://…>, urn:… or schema:name; ? stands for anything.",
        )

    def parse_object(self, text: str) -> TermQuery:
        """Read the object of a pattern: an IRI or a literal. Raises `Misuse`.

        A text with no language or datatype finds literals of all of them.
        """
        if text.startswith('"'):
            return self._parse_literal(text)
        if (iri := self._find_iri(text)) is None:
            return TermQuery(quoted=(str(Literal(text)),))
        is_certain = text.startswith(("<", "http://", "https://")) or self.expand(text) is not None
        return TermQuery((str(make_iri(iri)),), () if is_certain else (str(Literal(text)),))

    def _find_iri(self, text: str) -> str | None:
        if text.startswith("<") and text.endswith(">"):
            return text[1:-1]
        if (iri := self.expand(text)) is not None:
            return iri
        return text if _ABSOLUTE.fullmatch(text) else None

    def _parse_literal(self, text: str) -> TermQuery:
        if len(text) < 2 or '"' not in text[1:]:
            raise InvalidQuery("Unterminated quoted string", hint=f"It begins at {text[:200]!r}.")
        literal = _LITERAL.fullmatch(text)
        if literal is None:
            if not text.endswith('"'):
                raise InvalidQuery(
                    f"{text[:200]!r} is no literal.",
                    hint='Write it as "text", "text"@en or "5"^^xsd:integer.',
                )
            return TermQuery(quoted=(str(Literal(text[1:-1])),))
        texts = dict.fromkeys((_ESCAPE.sub(_unescape, literal["text"]), literal["text"]))
        if literal["language"]:
            language = literal["language"].lower()
            return TermQuery(tuple(str(Literal(text, language=language)) for text in texts))
        if literal["type"]:
            datatype = self._find_iri(literal["type"])
            if datatype is None:
                raise InvalidQuery(
                    f"{literal['type'][:200]!r} is no datatype.", hint="For example xsd:integer."
                )
            node = make_iri(datatype)
            return TermQuery(tuple(str(Literal(text, datatype=node)) for text in texts))
        return TermQuery(quoted=tuple(str(Literal(text)) for text in texts))


_PREFIX = re.compile(r"([A-Za-z][\w.-]*):(?!//)\S+")
_SCHEMES = frozenset(
    {"urn", "mailto", "tel", "tag", "did", "doi", "info", "data", "geo", "sip", "sips", "sms"}
)
"""Schemes of IRIs without `//`."""
_LOCAL_NAME = re.compile(r"[A-Za-z_](?:[\w-]|\.(?=[\w-]))*", re.ASCII)


class TermTable:
    """A number for each term. Terms are added, and never removed."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.kinds = array("i")
        """For each term: 0 for an IRI, -1 for a triple, the number of its suffix for a literal."""
        self.suffixes: list[str] = ["", ""]
        """Suffixes of literals, such as `@en` or `^^<…>`; number 1 is that of a plain text."""
        self._numbers: dict[str, int] = {}
        self._suffix_numbers = {"": 1}

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, text: str) -> int:
        """Return the number of a term, which is added if it is new."""
        number = self._numbers.get(text)
        if number is None:
            # what readers in other threads look at first is written last
            self.kinds.append(self._kind_of(text))
            self.texts.append(text)
            number = self._numbers[text] = len(self.texts) - 1
        return number

    def number(self, text: str) -> int | None:
        """Return the number of a term, or None if it was never added."""
        return self._numbers.get(text)

    def find(self, query: TermQuery) -> list[int]:
        """Return the numbers of all terms that match a part of a pattern."""
        texts: Iterable[str] = query.terms
        if query.quoted:
            endings = self.suffixes[1:]
            texts = [*texts, *(text + ending for text in query.quoted for ending in endings)]
        numbers = (self._numbers.get(text) for text in texts)
        return sorted({number for number in numbers if number is not None})

    def _kind_of(self, text: str) -> int:
        if text[0] != '"':
            return -1 if text.startswith("<<") else 0
        suffix = text[text.rindex('"') + 1 :]
        number = self._suffix_numbers.get(suffix)
        if number is None:
            self.suffixes.append(suffix)
            number = self._suffix_numbers[suffix] = len(self.suffixes) - 1
        return number


def suggest_prefix(name: str, prefixes: Iterable[str]) -> str:
    """Return a sentence that lists the prefixes, the most similar one first."""
    names = sorted(prefixes)
    close = get_close_matches(name, names, n=1)
    return f"{f'Did you mean {close[0]}:? ' if close else ''}Known are {', '.join(names)}."


def make_iri(iri: str) -> NamedNode:
    """Return an IRI. Raises `Misuse` if it is not a valid one."""
    try:
        return NamedNode(iri)
    except ValueError as error:
        raise Misuse(f"{iri[:200]!r} is no IRI: {error}.") from None


def text_of(term: Term) -> str:
    """Return a term as N-Triples writes it."""
    return f"<<( {term} )>>" if isinstance(term, Triple) else str(term)


def parse_terms(texts: Iterable[str]) -> list[Term]:
    """Read terms as N-Triples writes them."""
    return [
        triple.object for triple in parse_triples(f"<urn:s> <urn:p> {text} ." for text in texts)
    ]


def _unescape(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2]
    if not digits:
        return _ESCAPES.get(escape[3], escape[3])
    code = int(digits, 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


class InvalidQuery(Misuse):
    """A pattern or a SPARQL query is malformed."""

    is_hint_public = True


class RefusedQuery(Refused):
    """A query would change data, or access other services."""

    is_hint_public = True


class QueryTooLarge(LimitExceeded):
    """A query is too long, or exceeds a limit of time or memory."""

    is_hint_public = True


_NO_SPACE = re.compile(r"\S")
_PART = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*+")++', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A triple pattern; a part that is `None` or one of `? * _ null` matches any term.

    An IRI is written as `<https://…>`, `https://…`, `urn:…` or with a prefix, as `schema:name`; a
    literal as `"text"`, `"text"@en` or `"5"^^xsd:integer`. An object in any other form is a text.
    """

    subject: str | None = None
    predicate: str | None = None
    object: str | None = None

    def parse(self, prefixes: Prefixes) -> tuple[TermQuery | None, ...]:
        """Return the query of each part, `None` for a wildcard. Raises `Misuse`."""
        subject, predicate, object = (
            None if is_wildcard(part) else replace_surrogates(part or "")
            for part in (self.subject, self.predicate, self.object)
        )
        return (
            None if subject is None else prefixes.parse_node(subject, "subject"),
            None if predicate is None else prefixes.parse_node(predicate, "predicate"),
            None if object is None else prefixes.parse_object(object),
        )


PatternLike = Pattern | str | tuple[str, str, str]
"""A pattern as callers write it: in one line, or as three texts."""


def read_pattern(pattern: object) -> Pattern:
    """Convert a line, a tuple or a pattern to a pattern. Raises `Misuse` if it is malformed."""
    if isinstance(pattern, Pattern):
        return pattern
    if isinstance(pattern, str):
        return parse_pattern(pattern)
    if not _is_triple(pattern):
        raise Misuse(
            f"{shorten(repr(pattern), 200)} is no pattern of three texts.",
            hint='Write ("?", "rdf:type", "schema:Person"); ? stands for anything.',
        )
    return Pattern(*pattern)


def parse_pattern(line: object) -> Pattern:
    """Read a pattern in one line: three parts with spaces between. Quotes keep spaces together.

    Raises `Misuse`, in the words of Copilot-LD.
    """
    if not isinstance(line, str):
        raise Misuse("line must be a string")
    if not line.strip():
        raise Misuse("line cannot be empty")
    parts: list[str] = []
    position = _skip_spaces(line, 0)
    while position < len(line):
        part = _PART.match(line, position)
        if part is None or (part.end() < len(line) and not line[part.end()].isspace()):
            raise Misuse("Unterminated quoted string")
        parts.append(part[0])
        position = _skip_spaces(line, part.end())
    if len(parts) != 3:
        raise Misuse(f"Expected 3 parts (subject predicate object), got {len(parts)}")
    return Pattern(*parts)


def _is_triple(value: object) -> TypeGuard[Sequence[str | None]]:
    if not isinstance(value, tuple | list):
        return False
    parts = cast("Sequence[object]", value)
    return len(parts) == 3 and all(part is None or isinstance(part, str) for part in parts)


def _skip_spaces(line: str, position: int) -> int:
    found = _NO_SPACE.search(line, position)
    return found.start() if found else len(line)
