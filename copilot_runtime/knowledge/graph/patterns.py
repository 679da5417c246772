"""Patterns: a subject, a predicate and an object, of which each may be anything."""

import re
from dataclasses import dataclass

from copilot_runtime.errors import Misuse
from copilot_runtime.knowledge.graph.terms import Prefixes, TermQuery, is_wildcard

_PART = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a triple must be; a part that is None or a wildcard (`? * _ null`) is anything.

    An IRI is written as `<https://…>`, `https://…`, `urn:…` or with a prefix, as `schema:name`; a
    literal as `"text"`, `"text"@en` or `"5"^^xsd:integer`. An object in any other form is a text.
    """

    subject: str | None = None
    predicate: str | None = None
    object: str | None = None

    def parse(self, prefixes: Prefixes) -> tuple[TermQuery | None, ...]:
        """Return what each part means, None for anything. Raises `Misuse`."""
        return (
            None
            if is_wildcard(self.subject)
            else prefixes.parse_node(self.subject or "", "subject"),
            None
            if is_wildcard(self.predicate)
            else prefixes.parse_node(self.predicate or "", "predicate"),
            None if is_wildcard(self.object) else prefixes.parse_object(self.object or ""),
        )


def parse_pattern(line: object) -> Pattern:
    """Read a pattern in one line: three parts with spaces between. Quotes keep spaces together.

    Raises `Misuse`, in the words of Copilot-LD.
    """
    if not isinstance(line, str):
        raise Misuse("line must be a string")
    if not line.strip():
        raise Misuse("line cannot be empty")
    parts: list[str] = []
    position = 0
    while line[position:].strip():
        position += len(line[position:]) - len(line[position:].lstrip())
        part = _PART.match(line, position)
        if part is None or (part.end() < len(line) and not line[part.end()].isspace()):
            raise Misuse("Unterminated quoted string")
        parts.append(part[0])
        position = part.end()
    if len(parts) != 3:
        raise Misuse(f"Expected 3 parts (subject predicate object), got {len(parts)}")
    return Pattern(*parts)
