"""The text of Markdown files as passages: headings, sections and front matter."""

import re
from collections.abc import Iterator, Sequence

from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk, Headings, list_paragraphs

_UNDERLINE = re.compile(r"(=+|-{3,})\s*")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_MARKS = {"---": ("---", "..."), "+++": ("+++",)}
"""The lines that begin and end front matter in YAML and TOML."""
_TITLE = re.compile(r"title\s*[:=]\s*(?:[>|][-+]?\s*$)?(.*)")

_Line = tuple[int, str]
"""A line with its number."""


def read_passages(lines: Sequence[str]) -> tuple[str, list[Chunk]]:
    """Return the title of a text, or an empty string, and its passages."""
    headings = Headings()
    title, front = _read_front_matter(lines)
    start = front[-1][0] if front else 0
    passages = [*list_paragraphs(front[1:-1], "")]
    section: list[_Line] = []

    def enter(number: int, level: int, text: str) -> None:
        passages.extend(list_paragraphs(section, headings.trail))
        section.clear()
        passages.append(headings.enter(level, text, line=number))

    for number, line, is_code in _mark_code(lines, start):
        if is_code:
            section.append((number, line))
        elif heading := _parse_heading(line):
            enter(number, *heading)
        elif _UNDERLINE.fullmatch(line) and section and section[-1][1].strip():
            text = section.pop()[1].strip()
            enter(number - 1, 1 if line.startswith("=") else 2, text)
        else:
            section.append((number, line))
    passages.extend(list_paragraphs(section, headings.trail))
    return title or headings.title, passages


def _mark_code(lines: Sequence[str], start: int) -> Iterator[tuple[int, str, bool]]:
    """Yield the lines from some position on with their numbers, and whether they are code."""
    fence = ""
    for number, line in enumerate(lines[start:], start + 1):
        mark = _FENCE.match(line)
        yield number, line, bool(fence or mark)
        if not fence:
            fence = mark[1] if mark else ""
        elif mark and mark[1].startswith(fence):
            fence = ""


def _parse_heading(line: str) -> tuple[int, str] | None:
    """Return level and text of a heading line without closing marks; `None` for other lines."""
    marked = line.lstrip("#")
    level = len(line) - len(marked)
    if not 1 <= level <= 6 or not marked[:1].isspace():
        return None
    text = marked.strip()
    unmarked = text.rstrip("#")
    closed = not unmarked or unmarked[-1].isspace()
    return level, unmarked.rstrip() if closed else text


def _read_front_matter(lines: Sequence[str]) -> tuple[str, list[_Line]]:
    """Return the title in the front matter, and the other lines of it with those around it."""
    if not lines or not (ends := _MARKS.get(lines[0].strip())):
        return "", []
    end = next((at for at, line in enumerate(lines[1:200], 1) if line.strip() in ends), 0)
    if not end:
        return "", []
    titles: list[str] = []
    others = [(1, "")]
    is_title = False
    for number, line in enumerate(lines[1:end], 2):
        if found := None if titles else _TITLE.match(line):
            titles.append(found[1].strip())
            is_title = True
        elif is_title and line[:1].isspace() and line.strip():
            titles.append(line.strip())
        else:
            is_title = False
            others.append((number, line))
    return " ".join(titles).strip(" \"'"), [*others, (end + 1, "")]
