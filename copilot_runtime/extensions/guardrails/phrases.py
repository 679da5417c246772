"""Finds words and phrases in text, in any notation.

Case, width, encoding of accents, invisible characters, punctuation and line breaks are ignored. In
user input, look-alike letters, added accents, digits in place of letters, and letters with dots or
spaces between them are recognised as well. Misspellings are not: this is no classifier.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from unicodedata import category, combining, normalize

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.homoglyphs import join_ends, list_readings, read_by_shape

_INVISIBLE = frozenset("\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")
"""Invisible characters that Unicode does not class as formatting."""

_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x11FF),  # Burmese, and the letters of Korean syllables
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Japanese syllables
    (0x3400, 0x9FFF),  # Chinese characters
    (0x20000, 0x3FFFF),
)
"""Scripts that do not separate words by spaces."""

_LONGEST_HOLD = 4096

_SHORTEST_DISGUISED = 3
"""Minimum letters of a phrase that is searched in obfuscated spellings; shorter ones would match
too often."""
_FEWEST_LONE = 2
"""Minimum number of single letters in a spaced phrase: "a" and "I" are words."""

_DOTS = "._-*+~·•\u2010\u2011"
_DOTTED = re.compile(rf"\w[{re.escape(_DOTS)}]+\w")


class Phrases:
    """A set of words and phrases, each of which matches as a whole."""

    def __init__(self, phrases: Iterable[str]) -> None:
        if isinstance(phrases, str):
            raise ConfigurationFailed(
                f"Expected a list of words, got the text {phrases!r}.", hint=f"Write [{phrases!r}]."
            )
        self.patterns = {_pattern(phrase): phrase for phrase in phrases}
        shapes = {_pattern(read_by_shape(phrase)): phrase for phrase in self.patterns.values()}
        self._shapes = {
            pattern: phrase
            for pattern, phrase in {**shapes, **self.patterns}.items()
            if len(pattern.strip()) >= _SHORTEST_DISGUISED
        }
        self._beginnings = frozenset(
            pattern[:length] for pattern in self.patterns for length in range(1, len(pattern))
        )

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def find(self, text: str) -> str | None:
        """Return the first phrase, as configured, that the text contains, or None."""
        return _find_words(_plain(text).split(), self.patterns)

    def search(self, texts: Sequence[str]) -> str | None:
        """Return a phrase in an obfuscated spelling, or split over several texts, or None."""
        if not self.patterns:
            return None
        for text in ("\n".join(texts), " ".join(join_ends(texts))):
            if (found := _search_reading(text, self.patterns)) is not None:
                return found
            for reading in list_readings(text):
                if (found := _search_reading(reading, self._shapes)) is not None:
                    return found
        return None

    def scan(self, plain: str) -> tuple[str | None, int]:
        """Search normalised text that may continue.

        Return a match, or where one may have started.
        """
        hold = len(plain)
        for start in range(len(plain)):
            for end in range(start + 1, len(plain) + 1):
                piece = plain[start:end]
                if piece in self.patterns:
                    return self.patterns[piece], start
                if piece not in self._beginnings:
                    break
            else:
                hold = min(hold, start)
        return None, hold


class Sieve:
    """A streaming filter: passes text through, but withholds a possible start of a phrase."""

    def __init__(self, phrases: Phrases) -> None:
        self._phrases = phrases
        self._pending = ""
        self._last_plain = " "
        """The normalised character before the withheld text; a space at the start."""

    def push(self, piece: str) -> str:
        """Process the next piece and return the text that is safe to send. Raises `PhraseFound`."""
        raw = self._pending + piece
        plain, origins = self._last_plain, [0]
        for index, char in enumerate(raw):
            for simple in _simple(char):
                if simple != " " or plain[-1] != " ":
                    plain += simple
                    origins.append(index)
        phrase, hold = self._phrases.scan(plain)
        if phrase is not None:
            raise PhraseFound(phrase)
        if hold < len(plain) and plain[hold] == " ":  # a gap is not part of a phrase
            hold += 1
        release_at = origins[hold] if hold < len(plain) else len(raw)
        if hold > 0:
            self._last_plain = plain[hold - 1]
        if len(raw) - release_at > _LONGEST_HOLD:
            release_at, self._last_plain = len(raw), plain[-1]
        self._pending = raw[release_at:]
        return raw[:release_at]

    def end(self) -> str:
        """Return the withheld text at the end of the stream. Raises `PhraseFound`."""
        pending = self._pending
        if pending:
            self.push(" ")
        self._pending, self._last_plain = "", " "
        return pending


class PhraseFound(Exception):
    """A text contains one of the phrases."""

    def __init__(self, phrase: str) -> None:
        super().__init__(phrase)
        self.phrase = phrase


def _find_words(words: Sequence[str], patterns: Mapping[str, str]) -> str | None:
    plain = f" {' '.join(words)} "
    return next((phrase for pattern, phrase in patterns.items() if pattern in plain), None)


def _search_reading(text: str, patterns: Mapping[str, str]) -> str | None:
    words = _plain(text).split()
    found = _find_words(words, patterns) or _find_lone_letters(words, patterns)
    if found is None and _DOTTED.search(text):
        found = _find_words(text.translate(_SIMPLE_WITHOUT_DOTS).split(), patterns)
    return found


def _find_lone_letters(words: Sequence[str], patterns: Mapping[str, str]) -> str | None:
    """Find phrases that are spelled as single letters, except for one piece: "b o m bs"."""
    pieces = _gather_lone_letters(words)
    text = "".join(pieces)
    starts = [0, *accumulate(map(len, pieces))]
    for pattern, phrase in patterns.items():
        letters = pattern.replace(" ", "")
        is_long = len(letters) >= _SHORTEST_DISGUISED or _is_unspaced(letters[0])
        at = text.find(letters) if is_long else -1
        while at >= 0:
            if _is_spaced(pattern, at, starts):
                return phrase
            at = text.find(letters, at + 1)
    return None


def _gather_lone_letters(words: Sequence[str]) -> Sequence[str]:
    """Return the words around single letters, with line breaks in place of other words."""
    pieces: list[str] = []
    end = 0
    lone = [at for at, word in enumerate(words) if len(word) == 1]
    for at, following in pairwise(lone):
        if following - at <= 2:  # with at most one longer piece between them
            start = max(at - 1, 0)
            pieces += ["\n"] if start > end else []
            pieces += words[max(start, end) : following + 2]
            end = following + 2
    return pieces


def _is_spaced(phrase: str, at: int, starts: Sequence[int]) -> bool:
    """Return whether a match consists of whole pieces, at most one of them longer than a letter."""
    ends = [*accumulate(map(len, phrase.split()), initial=at)]
    places = [bisect_left(starts, end) for end in ends]
    if any(starts[place] != end for place, end in zip(places, ends, strict=True)):
        return False  # the match starts or ends within a piece
    inside = starts[places[0] : places[-1] + 1]
    lone = sum(second - first == 1 for first, second in pairwise(inside))
    return lone >= _FEWEST_LONE and len(inside) - 1 - lone <= 1


def _pattern(phrase: str) -> str:
    plain = " ".join(_plain(phrase).split())
    if not plain:
        raise ConfigurationFailed(
            f"{phrase!r} cannot be looked for: it has no letter and no digit.",
            hint="Remove it from the guardrails.",
        )
    before = "" if _is_unspaced(plain[0]) else " "
    after = "" if _is_unspaced(plain[-1]) else " "
    return f"{before}{plain}{after}"


def _plain(text: str) -> str:
    return text.translate(_SIMPLE)


def _is_unspaced(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _UNSPACED)


@lru_cache(8192)  # bounded: a text with all of Unicode must not fill the memory
def _simple(char: str) -> str:
    """Return the normalised characters of one character: nothing, a space, or its decomposition."""
    if char in _INVISIBLE or category(char) in {"Cf", "Cn"}:
        return ""
    folded = normalize("NFKD", normalize("NFKD", char).casefold())
    return "".join(
        part if part.isalnum() or category(part)[0] == "M" else " "
        for part in folded
        if not _is_decoration(part)
    )


def _is_decoration(char: str) -> bool:
    """Return whether a mark makes no other letter: a stroke, a frame, or an invisible selector."""
    is_selector = 0xFE00 <= ord(char) <= 0xFE0F or 0xE0100 <= ord(char) <= 0xE01EF
    return is_selector or combining(char) == 1 or category(char) == "Me"


class _Table:
    """A lazily filled table for `str.translate`."""

    def __init__(self, removed: str = "") -> None:
        self._removed = frozenset(map(ord, removed))

    def __getitem__(self, code: int) -> str | None:
        return None if code in self._removed else _simple(chr(code))


_SIMPLE = _Table()
_SIMPLE_WITHOUT_DOTS = _Table(_DOTS)
