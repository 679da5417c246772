"""The text of Markdown files as passages: headings, sections and front matter."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk, Headings, list_paragraphs

_UNDERLINE = re.compile(r"(=+|-{3,})\s*")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_NOTE = re.compile(r"\s{0,3}\[[^\]]+\]:\s*(?:#|<>)\s*(?:[\"'(].*)?")
"""A definition of a link to nowhere, which writers use for comments."""
_MARKS = {"---": re.compile(r"-{3,}|\.{3}"), "+++": re.compile(r"\+{3,}")}
"""The lines that begin and end front matter in YAML and TOML."""
_FIELD = re.compile(r"[\w-]+\s*[:=](?:\s|$)|\s+\S|- ")
"""A line of front matter that has no end."""
_TITLE = re.compile(r"title\s*[:=]\s*+(?:[>|][-+]?\s*$)?((?![\[{&*!]).*)", re.IGNORECASE)

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

    for number, line, is_code in _drop_comments(lines, start):
        if is_code:
            section.append((number, line))
        elif _NOTE.fullmatch(line) and not (section and section[-1][1].strip()):
            continue
        elif heading := _parse_heading(line):
            enter(number, *heading)
        elif _UNDERLINE.fullmatch(line) and section and section[-1][1].strip():
            text = section.pop()[1].strip()
            enter(number - 1, 1 if line.startswith("=") else 2, text)
        else:
            section.append((number, line))
    passages.extend(list_paragraphs(section, headings.trail))
    return title or headings.title, passages


def _drop_comments(lines: Sequence[str], start: int) -> Iterator[tuple[int, str, bool]]:
    """Yield the lines from some position on with their numbers, and whether they are code.

    Comments are left out, but in code.
    """
    last = max((at for at, line in enumerate(lines) if "-->" in line), default=-1)
    is_comment, fence = False, ""
    for at, line in enumerate(lines[start:], start):
        text, mark = line, None if is_comment else _FENCE.match(line)
        is_code = bool(fence or mark)
        if mark:
            is_end = fence and mark[1].startswith(fence)
            fence = "" if is_end else fence or mark[1]
        elif not is_code and at <= last:
            text, is_comment = _cut_comments(line, is_comment, has_end=at < last)
        yield at + 1, text, is_code


def _cut_comments(line: str, is_comment: bool, *, has_end: bool) -> tuple[str, bool]:
    """Return a line without comments, and whether one goes on in the next line, which `has_end`."""
    texts: list[str] = []
    at, last, marks = 0, line.rfind("-->"), 0
    while at < len(line):
        if is_comment:
            end = line.find("-->", at)
            if end < 0:
                return "".join(texts), True
            at, is_comment = end + 3, False
            continue
        begin = line.find("<!--", at)
        if begin < 0 or (last < begin and not has_end):
            break
        text = line[at:begin]
        texts.append(text)
        at, is_comment = begin + 4, True
        marks += text.count("`")
        if marks % 2:  # it is quoted
            texts.append("<!--")
            is_comment = False
    return "".join(texts) + ("" if is_comment else line[at:]), is_comment


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
    start = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if not lines or not (mark := _MARKS.get(lines[start].strip())):
        return "", []
    inner = lines[start + 1 : start + 200]
    end = next((at for at, line in enumerate(inner) if mark.fullmatch(line.strip())), None)
    if is_open := end is None:  # it goes on as long as it looks like one
        end = sum(1 for _ in takewhile(_FIELD.match, inner))
    if is_open and not end:
        return "", []
    titles: list[str] = []
    others = [(start + 1, "")]
    is_title = False
    for number, line in enumerate(inner[:end], start + 2):
        if found := None if titles else _TITLE.match(line):
            titles.append(found[1].strip())
            is_title = True
        elif is_title and line[:1].isspace() and line.strip():
            titles.append(line.strip())
        else:
            is_title = False
            others.append((number, line))
    last = start + 1 + end + (not is_open)
    return " ".join(titles).strip(" \"'"), [*others, (last, "")]
