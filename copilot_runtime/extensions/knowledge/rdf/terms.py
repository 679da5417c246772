"""RDF terms of annotations, and the statements of one page within limits."""

import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from pyoxigraph import BlankNode, Literal, NamedNode, Triple

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.knowledge.namespaces import SCHEMA, XSD

if TYPE_CHECKING:
    from collections.abc import Iterator


Node = NamedNode | BlankNode
Term = NamedNode | BlankNode | Literal

MOST_STATEMENTS = 100_000
MOST_CHARACTERS = 64 * 1024 * 1024
MOST_STEPS = 500_000
"""Maximum number of visited elements: about a second."""


class Statements:
    """Collects the triples of a page, each once, in their order.

    Elements that stand in one another, or refer to one another, may multiply what a small page
    says; beyond the limits `add` raises `LimitExceeded`.
    """

    def __init__(self) -> None:
        self._triples: dict[Triple, None] = {}
        self._steps = 0
        self._characters = 0
        self._nodes = 0

    def __iter__(self) -> "Iterator[Triple]":
        return iter(self._triples)

    def __len__(self) -> int:
        return len(self._triples)

    def add(self, subject: Node, predicate: NamedNode, value: Term) -> None:
        """Add one triple."""
        self._characters += len(value.value)
        if self._characters > MOST_CHARACTERS:
            raise LimitExceeded("The page repeats its text too often: elements are in each other.")
        self._triples[Triple(subject, predicate, value)] = None
        if len(self._triples) > MOST_STATEMENTS:
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
_CODE = re.compile(r"\s*(?:javascript|vbscript):", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")

_ZONE = r"(?:Z|[+-]\d\d:\d\d)?"
_DATE = r"-?\d{4,}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
_TIMES = [
    (re.compile(pattern, re.ASCII), NamedNode(XSD + name))
    for name, pattern in {
        "date": _DATE + _ZONE,
        "dateTime": f"{_DATE}T{_TIME}{_ZONE}",
        "time": _TIME + _ZONE,
        "gYearMonth": r"-?\d{4,}-(?:0[1-9]|1[0-2])" + _ZONE,
        "gYear": r"-?\d{4,}" + _ZONE,
        "duration": (
            r"-?P(?=.)(?:\d+Y)?(?:\d+M)?(?:\d+D)?"
            r"(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?"
        ),
    }.items()
]
_NUMBERS = [
    (re.compile(pattern, re.ASCII), NamedNode(XSD + name))
    for name, pattern in {
        "integer": r"-?\d+",
        "double": r"-?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?",
    }.items()
]


def make_iri(reference: str, base: str = "") -> NamedNode | None:
    """Resolve a reference to an IRI; `None` if it is malformed or would run code.

    Addresses of schema.org are normalised to https.
    """
    reference = reference.strip()
    if len(reference) > _MOST_CHARACTERS or _CODE.match(reference):
        return None
    try:
        # joining is slow, and does nothing to most absolute addresses
        joined = base and (not is_absolute(reference) or "/." in reference)
        iri = urljoin(base, reference) if joined else reference
        if _FORBIDDEN.search(iri):
            iri = _FORBIDDEN.sub(lambda match: f"%{ord(match[0]):02X}", iri)
        return NamedNode(normalize_schema(iri)) if is_absolute(iri) else None
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
    if language and _LANGUAGE.fullmatch(tag := language.strip().replace("_", "-")):
        return Literal(value, language=tag)
    return Literal(value)


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
