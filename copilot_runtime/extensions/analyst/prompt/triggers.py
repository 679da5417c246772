"""Finds whole words and phrases in what a person wrote."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from unicodedata import normalize

MOST_CHARS = 8_000
"""Characters of one text in which triggers are looked for."""

_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x11FF), (0x3040, 0x30FF), (0x3400, 0x9FFF))
"""Scripts in which words stand without spaces between them."""


def find_triggers(triggers: Iterable[str], texts: Sequence[str]) -> frozenset[str]:
    """Return those triggers, without case, that stand in a text as whole words."""
    bodies = [normalize("NFKC", text[:MOST_CHARS]) for text in texts]
    names = {fold(trigger) for trigger in triggers} - {""}
    return frozenset(name for name in names if any(_compile(name).search(body) for body in bodies))


def fold(trigger: str) -> str:
    """Return a trigger as it is compared: without case, with single spaces."""
    return " ".join(normalize("NFKC", trigger).casefold().split())


@lru_cache(maxsize=2_048)
def _compile(name: str) -> re.Pattern[str]:
    body = r"\s+".join(re.escape(word) for word in name.split())
    before = "" if _is_unspaced(name[0]) else r"(?<!\w)"
    after = "" if _is_unspaced(name[-1]) else r"(?!\w)"
    return re.compile(f"{before}{body}{after}", re.IGNORECASE)


def _is_unspaced(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _UNSPACED)
