"""Triple patterns: subject, predicate and object, each a term or a wildcard."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TypeGuard, cast

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.extensions.knowledge.graph.terms import Prefixes, TermQuery, is_wildcard

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
