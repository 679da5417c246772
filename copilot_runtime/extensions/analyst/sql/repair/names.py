"""Finds what a misspelt name was meant to be."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

FLOOR = 80
"""Similarity, of 100, below which a name stands for nothing else."""
PART_FLOOR = 90
"""The floor for a name that is part of exactly one other."""

_WORD_FLOOR = 60
"""The floor for each word, so that `min_price` does not become `max_price`."""
_SHORTEST_PREFIX = 4


class Match(NamedTuple):
    """The name that was meant, and how it was found."""

    name: str
    how: str


def find_name(
    name: str, candidates: Iterable[str], synonyms: Mapping[str, str] | None = None
) -> Match | None:
    """Return which candidate was meant; None if none or several are likely.

    Args:
        name: A name that nothing has.
        candidates: The names that there are.
        synonyms: Candidates by other words for them, in lower case.
    """
    names = list(dict.fromkeys(candidates))
    if exact := [one for one in names if one.casefold() == name.casefold()]:
        return Match(exact[0], "same letters") if exact[0] != name else None
    meant = (synonyms or {}).get(name.casefold(), "")
    if found := [one for one in names if one.casefold() == meant.casefold()]:
        return Match(found[0], "synonym")
    best = _find_similar(name, names) or _find_whole(name, names)
    return None if best is None else Match(best, "fuzzy match")


def _find_similar(name: str, names: Sequence[str]) -> str | None:
    from rapidfuzz import fuzz

    rated = [(fuzz.ratio(name.casefold(), one.casefold()), one) for one in names]
    rated = [pair for pair in rated if pair[0] >= FLOOR and _is_likely(name, pair[1])]
    top = max((score for score, _ in rated), default=0)
    best = [one for score, one in rated if score == top]
    return best[0] if len(best) == 1 else None


def _find_whole(name: str, names: Sequence[str]) -> str | None:
    """Return the only name that this one is part of, or that is part of it."""
    from rapidfuzz import fuzz

    text = name.casefold()
    around = [one for one in names if text in one.casefold() or one.casefold() in text]
    if len(around) != 1 or len(text) < 2 or not _is_part(text, around[0].casefold()):
        return None
    is_close = fuzz.WRatio(text, around[0].casefold()) >= PART_FLOOR
    return around[0] if is_close and _has_same_digits(name, around[0]) else None


def _is_likely(name: str, other: str) -> bool:
    """Return whether names differ as typos do, and not in a word or a number."""
    from rapidfuzz import fuzz

    words, others = _split(name), _split(other)
    return _has_same_digits(name, other) and (
        len(words) != len(others)
        or all(fuzz.ratio(*pair) >= _WORD_FLOOR for pair in zip(words, others, strict=True))
    )


def _has_same_digits(name: str, other: str) -> bool:
    digits, others = re.findall(r"\d+", name), re.findall(r"\d+", other)
    return digits == others or not (digits and others)


def _is_part(text: str, other: str) -> bool:
    """Return whether one is made of whole words of the other, or of a long part at its begin."""
    shorter, longer = sorted((text, other), key=len)
    words = re.escape(shorter)
    return bool(
        re.search(rf"(?<![^\W_]){words}(?![^\W_])", longer)
        or (len(shorter) >= _SHORTEST_PREFIX and longer.startswith(shorter))
    )


def _split(name: str) -> list[str]:
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).casefold()
    return [part for part in re.split(r"[\W_]+", parts) if part]
