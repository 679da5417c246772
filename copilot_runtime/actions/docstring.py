"""Parse a docstring into a description of the action and of each parameter."""

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import NamedTuple

_GOOGLE_PARAMETERS = re.compile(r"(?:Args|Arguments|Parameters|Params|Keyword Args)\s*:\s*$")
_GOOGLE_SECTION = re.compile(
    r"(?:Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|See Also)\s*:\s*$"
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(?:\s+(.*))?$")
_REST_ENTRY = re.compile(
    r":(?:param|parameter|arg|argument|key)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$"
)
_REST_FIELD = re.compile(r":\w+[^:]*:")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_UNDERLINE = re.compile(r"-{3,}\s*$")


class Docstring(NamedTuple):
    """A description, and descriptions by parameter name."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Read a docstring in Google, NumPy or reST style; anything else is plain text."""
    lines = cleandoc(text or "").splitlines()
    parameters: dict[str, str] = {}
    for read in (_google, _numpy, _rest):
        for name, words in read(lines):
            if joined := " ".join(" ".join(words).split()):
                parameters.setdefault(name, joined)
    return Docstring(_first_paragraph(lines), parameters)


def _first_paragraph(lines: list[str]) -> str:
    words: list[str] = []
    for number, line in enumerate(lines):
        if not line.strip() or _starts_section(lines, number):
            break
        words.append(line.strip())
    return " ".join(words)


def _starts_section(lines: list[str], number: int) -> bool:
    line = lines[number]
    return bool(
        _GOOGLE_PARAMETERS.match(line)
        or _GOOGLE_SECTION.match(line)
        or _REST_FIELD.match(line)
        or (number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1]))
    )


def _google(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """`Args:`, then one indented `name (type): words` per parameter."""
    for number, line in enumerate(lines):
        if _GOOGLE_PARAMETERS.match(line):
            yield from _entries(_body(lines[number + 1 :], indented=True), _GOOGLE_ENTRY)


def _numpy(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """`Parameters`, an underline, then `name : type` with indented words below."""
    for number in range(len(lines) - 1):
        title = lines[number].strip()
        if title in ("Parameters", "Other Parameters") and _UNDERLINE.match(lines[number + 1]):
            body = _body(lines[number + 2 :], indented=False)
            for names, words in _entries(body, _NUMPY_ENTRY):
                for name in names.split(","):
                    yield name.strip().lstrip("*"), words


def _rest(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """`:param type name: words`, going on in indented lines."""
    for number, line in enumerate(lines):
        if entry := _REST_ENTRY.match(line):
            words = [entry[2]]
            for more in lines[number + 1 :]:
                if not more[:1].isspace():
                    break
                words.append(more)
            yield entry[1], words


def _body(lines: list[str], *, indented: bool) -> list[str]:
    """Return the lines of a section, without the indentation they share."""
    body: list[str] = []
    for number, line in enumerate(lines):
        outside = bool(line.strip()) and not line[0].isspace()
        if outside and (indented or _starts_section(lines, number)):
            break
        body.append(line)
    return cleandoc("\n" + "\n".join(body)).splitlines()


def _entries(body: list[str], entry: re.Pattern[str]) -> Iterator[tuple[str, list[str]]]:
    """Group a section's lines: an unindented entry, and the indented lines after it."""
    name, words = "", list[str]()
    for line in body:
        if line[:1].isspace() or not line.strip():
            words.append(line)
        elif match := entry.match(line):
            if name:
                yield name, words
            name = match[1]
            words = [match[2] or ""] if match.re.groups > 1 else []
    if name:
        yield name, words
