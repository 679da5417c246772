"""Chunks of documents that fit into a prompt, with their positions."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, filterfalse, pairwise
from typing import Any

from copilot_runtime.base.folding import drop_invisible
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge.tokens import count_tokens

MOST_TOKENS = 400
"""Maximum number of tokens of a chunk: about 250 words."""

_WORD = re.compile(r"[^\W\u3040-\u9fff\uac00-\ud7af]+|\w")
"""A word, or a character of a script without spaces."""
_ASCII_MARKS = {code: " " for code in range(128) if not _WORD.match(chr(code))}
"""ASCII characters between words, for a quick way to split what is in ASCII alone."""
_TYPED = str.maketrans(
    {
        "\u00ad": "",
        "\ufb00": "ff",
        "\ufb01": "fi",
        "\ufb02": "fl",
        "\ufb03": "ffi",
        "\ufb04": "ffl",
    }
)
"""Hyphens that no line shows, and ligatures."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""Commands to a terminal, as in logs."""
_BELOW = " \u203a "
"""The separator between a heading and its parent heading."""
_SENTENCE = re.compile(r".*?(?:(?<=[.!?\u3002])\s+|\n+|\Z)", re.DOTALL)
"""A sentence or a line, with the white space after it."""


@dataclass(frozen=True, slots=True)
class ChunkPosition:
    """The position of a text in a document: page, heading or rows, as far as applicable."""

    page: int | None = None
    heading: str = ""
    """The headings above, from the outermost one."""
    lines: tuple[int, int] | None = None
    rows: tuple[int, int] | None = None
    """Row numbers of a table; row 1 is the header."""

    def encode(self) -> JsonObject:
        """Return the position as JSON, without empty fields."""
        encoded: JsonObject = {}
        if self.page is not None:
            encoded["page"] = self.page
        if self.heading:
            encoded["heading"] = self.heading
        if self.lines:
            encoded["lines"] = [*self.lines]
        if self.rows:
            encoded["rows"] = [*self.rows]
        return encoded

    def join(self, other: "ChunkPosition") -> "ChunkPosition | None":
        """Return the common position of two adjacent texts; `None` if they cannot be joined."""
        if (self.page, self.heading) != (other.page, other.heading):
            return None
        return replace(
            self, lines=_span(self.lines, other.lines), rows=_span(self.rows, other.rows)
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document."""

    text: str
    place: ChunkPosition = field(default_factory=ChunkPosition)

    def encode(self) -> JsonObject:
        """Return the JSON form."""
        return {"text": self.text, "place": self.place.encode()}


def decode_chunk(value: Any) -> Chunk:
    """Decode a chunk from its JSON."""
    place = value["place"]
    lines, rows = (place.get(name) and tuple(place[name]) for name in ("lines", "rows"))
    return Chunk(
        value["text"],
        ChunkPosition(place.get("page"), place.get("heading", ""), lines=lines, rows=rows),
    )


def pack_passages(passages: Iterable[Chunk], most_tokens: int = MOST_TOKENS) -> list[Chunk]:
    """Join passages of the same page and heading into chunks, and split long ones."""
    packed: list[Chunk] = []
    texts: list[str] = []
    place = ChunkPosition()
    size = 0
    for passage in _cut(map(_normalize, drop_headings(passages)), most_tokens):
        tokens = count_tokens(passage.text)
        joined = place.join(passage.place) if texts else passage.place
        if joined is None or (texts and size + tokens > most_tokens):
            packed.append(Chunk("\n".join(texts), place))
            texts, size, joined = [], 0, passage.place
        place = joined
        texts.append(passage.text)
        size += tokens + 1  # for what joins them
    if texts:
        packed.append(Chunk("\n".join(texts), place))
    return packed


def _normalize(passage: Chunk) -> Chunk:
    text = normalize_text(passage.text)
    return passage if text == passage.text else replace(passage, text=text)


def normalize_text(text: str) -> str:
    """Return a text with the characters that people see, and type into a search."""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", drop_invisible(text).translate(_TYPED))
    return text


def drop_headings(passages: Iterable[Chunk]) -> Iterator[Chunk]:
    """Leave out the headings that the next passage is below; others are texts of their own."""
    for passage, following in pairwise(chain(passages, (None,))):
        assert passage
        text, trail = passage.text, passage.place.heading
        if trail[-len(_BELOW) - len(text) :] not in (text, f"{_BELOW}{text}"):
            yield passage
        elif following is None or not f"{following.place.heading}{_BELOW}".startswith(
            f"{trail}{_BELOW}"
        ):
            outer = trail.removesuffix(text).removesuffix(_BELOW)
            yield Chunk(text, replace(passage.place, heading=outer))


def list_paragraphs(lines: Iterable[tuple[int, str]], heading: str) -> Iterator[Chunk]:
    """Yield the paragraphs of numbered lines, which are separated by blank lines."""
    texts: list[str] = []
    first = last = 0
    for number, line in (*lines, (0, "")):
        if line.strip():
            first = number if not texts else first
            last = number
            texts.append(line.rstrip())
        elif texts:
            yield Chunk("\n".join(texts), ChunkPosition(heading=heading, lines=(first, last)))
            texts = []


def find_new_passages(passages: Iterable[Chunk], texts: Iterable[str]) -> Iterator[Chunk]:
    """Yield the passages of a page most of whose pairs of words are in none of its annotations.

    If these say most of the page, short passages are left out as well: they are labels.
    """
    annotated = {*texts}
    passages = [*drop_headings(passages)]
    # most are a whole annotation, whose words need not be compared
    same = [it.text for it in passages if it.text in annotated]
    others = [it for it in passages if it.text not in annotated]
    if not others:
        return
    pairs = [_list_pairs(it.text) for it in others]
    words = _split_words(" _ ".join(annotated))
    sought = {*chain.from_iterable(pairs)}
    old = sought.intersection(words) | sought.intersection(pairwise(words))
    counts = [len([*filterfalse(old.__contains__, one)]) for one in pairs]
    total = sum(map(len, pairs)) + sum(it.count(" ") or 1 for it in same)
    is_annotated = 2 * sum(counts) <= total
    for passage, found, new in zip(others, pairs, counts, strict=True):
        is_short = new < 3 and not passage.text.endswith((".", "!", "?"))
        is_old = found and new * 2 <= len(found)
        if not (is_old or (is_short and is_annotated)):
            yield passage


def _list_pairs(text: str) -> Sequence[str | tuple[str, str]]:
    """Return the pairs of neighboring words of a text, or its only word."""
    words = _split_words(text)
    return [*pairwise(words)] or words


def _split_words(text: str) -> list[str]:
    if text.isascii():
        return text.lower().translate(_ASCII_MARKS).split()
    return _WORD.findall(text.lower())


def _cut(passages: Iterable[Chunk], most_tokens: int) -> Iterator[Chunk]:
    """Split long passages at sentences, or else at words."""
    for passage in passages:
        if len(passage.text) <= most_tokens or count_tokens(passage.text) <= most_tokens:
            if passage.text.strip():
                yield passage
            continue
        for text in _join(_SENTENCE.findall(passage.text), most_tokens, ""):
            yield Chunk(text.strip("\n").rstrip(), passage.place)


def _join(pieces: Iterable[str], most_tokens: int, separator: str) -> Iterator[str]:
    """Join pieces up to `most_tokens`; split longer ones into words or characters."""
    texts: list[str] = []
    size = 0
    for piece in pieces:
        tokens = count_tokens(piece)
        if tokens > most_tokens:
            if texts:
                yield separator.join(texts)
                texts, size = [], 0
            words = piece.split()
            if len(words) > 1:
                yield from _join(words, most_tokens, " ")
            else:
                yield from _letters(piece, most_tokens)
            continue
        if texts and size + tokens + 1 > most_tokens:
            yield separator.join(texts)
            texts, size = [], 0
        if tokens:
            texts.append(piece)
            size += tokens + 1
    if texts:
        yield separator.join(texts)


def _letters(word: str, most_tokens: int) -> Iterator[str]:
    """Split a text without spaces, such as a key or a sentence in Chinese."""
    length = most_tokens // 2  # a character has two tokens at most
    for start in range(0, len(word), length):
        yield word[start : start + length]


class Headings:
    """The headings above the current position in a document."""

    def __init__(self) -> None:
        self._levels: dict[int, str] = {}
        self._top: int | None = None
        self.title = ""
        """The first heading, if all others are below it."""

    def enter(self, level: int, text: str, page: int | None = None, line: int = 0) -> Chunk:
        """Begin the section of a heading; one without text only ends the section before.

        Returns the heading as a passage of its section.
        """
        text = normalize_text(text)
        self._levels = {outer: name for outer, name in self._levels.items() if outer < level}
        if text:
            self._levels[level] = text
            if self._top is None:
                self._top, self.title = level, text
            elif level <= self._top:
                self.title = ""
        return Chunk(text, ChunkPosition(page, self.trail, (line, line) if line else None))

    @property
    def trail(self) -> str:
        """The headings, from the outermost one."""
        return _BELOW.join(self._levels.values())


def _span(first: tuple[int, int] | None, second: tuple[int, int] | None) -> tuple[int, int] | None:
    return (first[0], max(first[1], second[1])) if first and second else first
