"""Find words and phrases in text, however they are written.

Case, width, accents' encoding, invisible characters, punctuation and line breaks make no
difference. Look-alikes from other alphabets and misspellings do: this is no classifier.
"""

from collections.abc import Iterable
from functools import lru_cache
from unicodedata import category, normalize

from copilot_runtime.errors import ConfigurationFailed

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
"""Scripts in which a word need not stand between spaces."""

_LONGEST_HOLD = 4096


class Phrases:
    """A set of words and phrases to look for, each as a whole."""

    def __init__(self, phrases: Iterable[str]) -> None:
        if isinstance(phrases, str):
            raise ConfigurationFailed(
                f"Expected a list of words, got the text {phrases!r}.", hint=f"Write [{phrases!r}]."
            )
        self.patterns = {_pattern(phrase): phrase for phrase in phrases}
        self._beginnings = frozenset(
            pattern[:length] for pattern in self.patterns for length in range(1, len(pattern))
        )

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def find(self, text: str) -> str | None:
        """Return the first of the phrases, as it was given, that the text contains."""
        plain = f" {' '.join(_plain(text).split())} "
        return next((phrase for pattern, phrase in self.patterns.items() if pattern in plain), None)

    def scan(self, plain: str) -> tuple[str | None, int]:
        """Look at plain text that may go on. Return a phrase, or where one may have begun."""
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
    """Lets a text through piece by piece, but holds back what may begin a phrase."""

    def __init__(self, phrases: Phrases) -> None:
        self._phrases = phrases
        self._pending = ""
        self._last_plain = " "
        """The plain character before what is held; a space at the start."""

    def push(self, piece: str) -> str:
        """Take the next piece and return what may be shown now. Raises `PhraseFound`."""
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
        if hold < len(plain) and plain[hold] == " ":  # a gap itself is innocent
            hold += 1
        release_at = origins[hold] if hold < len(plain) else len(raw)
        if hold > 0:
            self._last_plain = plain[hold - 1]
        if len(raw) - release_at > _LONGEST_HOLD:
            release_at, self._last_plain = len(raw), plain[-1]
        self._pending = raw[release_at:]
        return raw[:release_at]

    def end(self) -> str:
        """Return what was held, now that nothing follows. Raises `PhraseFound`."""
        pending = self._pending
        if pending:
            self.push(" ")
        self._pending, self._last_plain = "", " "
        return pending


class PhraseFound(Exception):
    """A text contains a phrase that was looked for."""

    def __init__(self, phrase: str) -> None:
        super().__init__(phrase)
        self.phrase = phrase


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


@lru_cache(8192)  # not all of Unicode: a text that holds all of it must not fill the memory
def _simple(char: str) -> str:
    """Return the plain characters of one character: none, a space, or what it is made of."""
    if char in _INVISIBLE or category(char) in {"Cf", "Cn"}:
        return ""
    folded = normalize("NFKD", normalize("NFKD", char).casefold())
    # variation selectors are marks, but invisible ones
    return "".join(
        part if part.isalnum() or category(part)[0] == "M" else " "
        for part in folded
        if not 0xFE00 <= ord(part) <= 0xFE0F
    )


class _Table:
    """What `str.translate` asks for each character."""

    def __getitem__(self, code: int) -> str:
        return _simple(chr(code))


_SIMPLE = _Table()
