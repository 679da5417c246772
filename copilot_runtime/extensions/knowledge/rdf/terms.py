"""RDF terms, the statements of one page within limits, and triples in contents."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from functools import lru_cache
from urllib.parse import urljoin

from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat, Triple, parse

from copilot_runtime.base.errors import LimitExceeded, Misuse
from copilot_runtime.base.folding import drop_invisible

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
SCHEMA = "https://schema.org/"
XSD = "http://www.w3.org/2001/XMLSchema#"

RDF_TYPE = NamedNode(f"{RDF}type")


Node = NamedNode | BlankNode
Term = NamedNode | BlankNode | Literal
Statement = tuple[Node, NamedNode, Term]
"""Subject, predicate and object: a `Triple` takes long to make, and copies them at each access."""

MOST_STATEMENTS = 100_000
MOST_CHARACTERS = 64 * 1024 * 1024
MOST_STEPS = 500_000
"""Maximum number of visited elements: about a second."""


class Statements:
    """Collects the statements of a page, each once, in their order.

    Elements that stand in one another, or refer to one another, may multiply what a small page
    says; beyond the limits `add` raises `LimitExceeded`.
    """

    def __init__(self) -> None:
        self._statements: dict[Statement, None] = {}
        self._steps = 0
        self._characters = 0
        self._nodes = 0

    def __iter__(self) -> Iterator[Statement]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)

    def add(self, subject: Node, predicate: NamedNode, value: Term) -> None:
        """Add one statement, without invisible characters in its text."""
        text = value.value
        if isinstance(value, Literal) and (clean := drop_invisible(text)) != text:
            text, tag = clean, value.language
            value = Literal(text, language=tag) if tag else Literal(text, datatype=value.datatype)
        self._characters += len(text)
        if self._characters > MOST_CHARACTERS:
            raise LimitExceeded("The page repeats its text too often: elements are in each other.")
        self._statements[subject, predicate, value] = None
        if len(self._statements) > MOST_STATEMENTS:
            raise LimitExceeded(f"The page makes more than {MOST_STATEMENTS} statements.")

    def add_steps(self, count: int = 1) -> None:
        """Count visits of elements that may be visited repeatedly."""
        self._steps += count
        if self._steps > MOST_STEPS:
            raise LimitExceeded("The page refers to its elements, or nests them, too often.")

    def make_node(self) -> BlankNode:
        """Return a new blank node."""
        self._nodes += 1
        return BlankNode(f"n{self._nodes}")


_MOST_CHARACTERS = 8192
"""Maximum length of an IRI; longer ones are embedded images or attacks."""
_OLD_SCHEMA = re.compile(r"https?://(?:www\.)?schema\.org(?:/|$)", re.IGNORECASE)
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_FORBIDDEN = re.compile(r'[\x00-\x20<>"{}|\\^`\x7f]')
_ROOT = re.compile(r"https?://[\w.:-]+/", re.ASCII)
_PLAIN_PATH = re.compile(r"/[\w%~-][\w%~/-]*")
_CODE = re.compile(r"\s*(?:javascript|vbscript):", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")

_ZONE = r"(?:Z|[+-]\d\d:\d\d)?"
_DATE = r"-?\d{4,}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
_SPANS = {
    "gYearMonth": rf"-?\d{{4,}}-(?:0[1-9]|1[0-2]){_ZONE}",
    "gYear": rf"-?\d{{4,}}{_ZONE}",
    "duration": (
        r"-?P(?=.)(?:\d+Y)?(?:\d+M)?(?:\d+D)?"
        r"(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?"
    ),
}
_TIMES = [
    (re.compile(pattern, re.ASCII), NamedNode(XSD + name))
    for name, pattern in {
        "date": _DATE + _ZONE,
        "dateTime": f"{_DATE}T{_TIME}{_ZONE}",
        "time": _TIME + _ZONE,
        **_SPANS,
    }.items()
]
_NUMBERS = [
    (re.compile(pattern, re.ASCII), NamedNode(XSD + name))
    for name, pattern in {
        "integer": r"-?\d+",
        "double": r"-?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?",
    }.items()
]

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)"
LEXICAL_FORMS = {
    f"{XSD}{name}": re.compile(pattern, re.ASCII)
    for name, pattern in {
        **dict.fromkeys(("integer", "int", "long", "short", "byte"), r"[+-]?\d+"),
        **dict.fromkeys(("nonNegativeInteger", "unsignedInt"), r"\+?\d+"),
        **dict.fromkeys(("double", "float"), rf"{_NUMBER}(?:[eE][+-]?\d+)?|[+-]?INF|NaN"),
        "decimal": _NUMBER,
        "boolean": r"true|false|0|1",
        "date": rf"\d{{4}}-\d\d-\d\d{_ZONE}",
        "dateTime": rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?{_ZONE}",
        "time": rf"\d\d:\d\d:\d\d(?:\.\d+)?{_ZONE}",
        **_SPANS,
    }.items()
}
"""Lexical forms of XML Schema datatypes; others are not checked."""
_EXISTING: Mapping[str, Callable[[str], object]] = {
    f"{XSD}date": lambda text: date.fromisoformat(text[:10]),
    f"{XSD}dateTime": lambda text: datetime.fromisoformat(text[:19]),
    f"{XSD}time": lambda text: time.fromisoformat(text[:8]),
}
"""Raise `ValueError` for a date or a time that does not exist."""


def is_well_formed(text: str, datatype: str) -> bool:
    """Return whether a text is a literal of one of the datatypes; dates must exist."""
    try:
        _EXISTING.get(datatype, str)(text)
    except ValueError:
        return False
    return LEXICAL_FORMS[datatype].fullmatch(text) is not None


def make_iri(reference: str, base: str = "") -> NamedNode | None:
    """Resolve a reference to an IRI; `None` if it is malformed or would run code.

    Addresses of schema.org are normalised to https.
    """
    reference = reference.strip()
    if len(reference) > _MOST_CHARACTERS:
        return None
    # joining is slow, and does nothing to most absolute addresses
    if base and (not is_absolute(reference) or "/." in reference):
        try:
            if _PLAIN_PATH.fullmatch(reference):
                reference = _find_root(base) + reference[1:]
            else:
                reference = urljoin(base, reference)
        except ValueError:
            return None
    return _make_absolute(reference)


def _find_root(base: str) -> str:
    return found[0] if (found := _ROOT.match(base)) else urljoin(base, "/")


@lru_cache(maxsize=1024)  # pages repeat types, properties and names
def _make_absolute(iri: str) -> NamedNode | None:
    if _CODE.match(iri) or not is_absolute(iri):
        return None
    if _FORBIDDEN.search(iri):
        iri = _FORBIDDEN.sub(lambda match: f"%{ord(match[0]):02X}", iri)
    try:
        return NamedNode(normalize_schema(iri))
    except ValueError:
        return None


def is_absolute(reference: str) -> bool:
    """Return whether a reference begins with a scheme."""
    return _ABSOLUTE.match(reference) is not None


def normalize_schema(iri: str) -> str:
    """Return an IRI of schema.org in its one form: with https, and without www."""
    return _OLD_SCHEMA.sub(SCHEMA, iri, count=1) if _OLD_SCHEMA.match(iri) else iri


def make_text(value: str, language: str = "") -> Literal:
    """Return a literal with a language; a malformed language tag is ignored."""
    return Literal(value, language=_read_language(language))


@lru_cache(maxsize=64)
def _read_language(language: str) -> str | None:
    tag = language.strip().replace("_", "-")
    return tag if _LANGUAGE.fullmatch(tag) else None


def make_number(value: str) -> Literal:
    """Return a numeric literal, or a plain one if the text is not a number."""
    return _match_datatype(value, _NUMBERS)


def make_time(value: str) -> Literal:
    """Return a literal of the matching date or time datatype, or a plain one."""
    return _match_datatype(value, _TIMES)


def _match_datatype(value: str, kinds: list[tuple[re.Pattern[str], NamedNode]]) -> Literal:
    value = value.strip()
    datatype = next((datatype for pattern, datatype in kinds if pattern.fullmatch(value)), None)
    return Literal(value, datatype=datatype) if datatype else Literal(value)


_FORMATS = {
    "turtle": RdfFormat.TURTLE,
    "nquads": RdfFormat.N_QUADS,
    "jsonld": RdfFormat.JSON_LD,
}
"""Content formats with triples. No parser of pyoxigraph fetches a context."""
_BARE = {
    f"{XSD}boolean": re.compile(r"true|false"),
    f"{XSD}integer": re.compile(r"[+-]?\d+", re.ASCII),
    f"{XSD}decimal": re.compile(r"[+-]?\d*\.\d+", re.ASCII),
    f"{XSD}double": re.compile(r"[+-]?(?:\d+\.\d*|\.?\d+)[eE][+-]?\d+", re.ASCII),
}
"""Lexical forms that Turtle accepts without quotation marks."""


def write_turtle(triples: Iterable[Triple]) -> str:
    """Return triples as Turtle without prefixes, types first, in the layout of Copilot-LD."""
    pieces: list[str] = []
    last: Triple | None = None
    for triple in order_types_first(triples):
        value = _write_term(triple.object)
        if last and last.subject == triple.subject:
            if last.predicate == triple.predicate:
                pieces.append(f", {value}")
            else:
                pieces.append(f";\n    {_write_predicate(triple.predicate)} {value}")
        else:
            if last:
                pieces.append(".\n")
            pieces.append(f"{triple.subject} {_write_predicate(triple.predicate)} {value}")
        last = triple
    return "".join(pieces) + (".\n" if last else "")


def write_nquads(triples: Iterable[Triple]) -> str:
    """Return triples as N-Quads of the default graph, types first."""
    return "".join(f"{triple} .\n" for triple in order_types_first(triples))


def read_triples(content: str, format: str, what: str = "The content") -> list[Triple]:
    """Return the triples of a resource's content; an empty list for text. Raises `Misuse`."""
    if format == "text":
        return []
    if format not in _FORMATS:
        raise Misuse(f"{format!r} is no format of triples.", hint=f"Known: {', '.join(_FORMATS)}.")
    try:
        return [quad.triple for quad in parse(content.encode(), format=_FORMATS[format])]
    except (SyntaxError, ValueError) as error:
        raise Misuse(f"{what} is no {format}: {error}") from None


def parse_triples(lines: Iterable[str]) -> list[Triple]:
    """Read triples of N-Triples, one in each line."""
    return [quad.triple for quad in parse("\n".join(lines), format=RdfFormat.N_TRIPLES)]


def get_value(term: object) -> str:
    """Return the IRI or the text of a term."""
    return str(getattr(term, "value", term))


def order_types_first(triples: Iterable[Triple]) -> list[Triple]:
    """Return the `rdf:type` triples first, then the others, in stable order."""
    return sorted(triples, key=lambda triple: triple.predicate != RDF_TYPE)


def _write_predicate(predicate: NamedNode) -> str:
    return "a" if predicate == RDF_TYPE else str(predicate)


def _write_term(term: object) -> str:
    if isinstance(term, Literal) and (bare := _BARE.get(term.datatype.value)):
        return term.value if bare.fullmatch(term.value) else str(term)
    return str(term)
