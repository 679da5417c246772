"""Embeddings without a model: hashed words and trigrams of a text.

A search finds texts that share words or parts of words with the query, which suffices for names,
terms and typing errors. It knows no meaning: "car" and "automobile" are unrelated.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from math import log, sqrt
from unicodedata import normalize
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.folding import fold_text
from copilot_runtime.telemetry.genai import start_embeddings_span
from copilot_runtime.telemetry.span import find_current_span, trace_block

_ADDRESS = re.compile(r"\S+@\S+")
_WORD = re.compile(r"\w+")
_FREQUENT_TEXT = """
a about after all also an and any are as at be because been before but by can could did do does for
from had has have he her his how i if in into is it its may me more most my no not of on or our she
should so some such than that the their them then there these they this to us was we were what when
where which who why will with would you your
"""
_FREQUENT = frozenset(_FREQUENT_TEXT.split())
"""Stop words, which count less."""
_POLITE_TEXT = """
am anything ask everything find get give hello help hi just know like look many much need new please
question say show since something take tell thank thanks there today using want work working
yesterday
"""
_UNSPECIFIC = _FREQUENT | {*_POLITE_TEXT.split()}
"""Words of a question that do not tell what it is about."""
_LETTERS = 3
_LETTERS_WEIGHT = 0.6
"""The total weight of a word's trigrams; the word itself has the weight 1."""
_FREQUENT_WEIGHT = 0.05
_FEWEST = 16
_LONG_WORD = 6
_CJK = "\u3040-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff"
"""Chinese, Japanese and Korean, whose words are nearly always two characters or more."""
_RUN = re.compile(f"[{_CJK}]+|[^{_CJK}]+")
_PAIRS = re.compile(f"[{_CJK}]")
_SPACELESS = re.compile(f"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff{_CJK}]")
"""Scripts that join words: Thai, Lao, Burmese, Khmer, and those of `_CJK`."""
_JAMO = re.compile("[\u1100-\u11ff]")
"""The letters of a Korean syllable, into which folding takes it apart."""
_SIGN = 1 << 31


class HashingEmbedder(Embedder):
    """Counts words and trigrams, each in the dimension that its hash selects (feature hashing).

    A word counts by the logarithm of its frequency. In Chinese, Japanese and Korean, each two
    neighboring characters count as a word. Words that share a dimension have random signs,
    so that collisions cancel out on average. Vectors are deterministic across processes and
    machines.

    Args:
        dimensions: The length of a vector.
    """

    version = "2"

    def __init__(self, dimensions: int | str = 512) -> None:
        try:
            self.dimensions = int(dimensions)
        except ValueError:
            self.dimensions = 0
        if self.dimensions < _FEWEST:
            raise ConfigurationFailed(
                f"{dimensions!r} is not a valid number of dimensions.",
                hint=f"Hashing has no models: write hashing, or hashing:512. At least {_FEWEST}.",
            )

    @property
    def model(self) -> str:
        return f"hashing:{self.dimensions}"

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with trace_block(
            start_embeddings_span(
                find_current_span(),
                provider="hashing",
                model=self.model,
                in_process=True,
                dimensions=self.dimensions,
            )
        ):
            return await asyncio.to_thread(hash_texts, texts, self.dimensions)

    def relates(self, query: str, text: str) -> bool:
        """Return whether a text has more than a third of a query's words, or words spelled alike.

        They are counted, or weighed by their lengths: longer words tell more, in any language.
        """
        words = {*_find_words(query)}
        words = words - _UNSPECIFIC or words
        if "@" not in query:
            text = _ADDRESS.sub(" ", text)  # a greeting does not ask for hello@example.org
        others = {*_find_words(text)}
        found = {
            word
            for word in words
            if word in others or any(_are_alike(word, other) for other in others)
        }
        return 3 * len(found) > len(words) or 3 * _weigh_words(found) > _weigh_words(words)


def hash_texts(texts: Sequence[str], dimensions: int) -> NDArray[np.float32]:
    """Return the hashed words of texts as rows: unit vectors, or zeros for texts without words."""
    vectors = np.zeros((len(texts), dimensions), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        words: Iterable[str] = _find_words(text)
        if not text.isascii() and _PAIRS.search("".join(words)):
            words = chain.from_iterable(map(_split_runs, words))
        for word, count in Counter(words).items():
            places, values = _hash_word(word, dimensions)
            np.add.at(vector, places, values * np.float32(1 + log(count)))
        length = np.linalg.norm(vector)
        if length > 0:
            vector /= length
    return vectors


def _find_words(text: str) -> list[str]:
    """Return the runs of letters and digits in a text, in lower case and without diacritics."""
    text = fold_text(text)
    if not text.isascii() and _JAMO.search(text):
        text = normalize("NFC", text)
    return _WORD.findall(text)


def _split_runs(word: str) -> Iterator[str]:
    """Yield a word, or the parts of it in different scripts; pairs of characters of `_CJK`."""
    for run in _RUN.findall(word):
        if len(run) > 2 and _PAIRS.match(run):
            yield from _split_word(run, 2)
        else:
            yield run


@lru_cache(maxsize=65_536)
def _hash_word(word: str, dimensions: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return the dimensions of a word and its trigrams, with their weights."""
    groups = _split_word(f"<{word}>", _LETTERS)
    weight = _LETTERS_WEIGHT / sqrt(len(groups))
    if word in _FREQUENT:
        return _weigh_terms([word], [_FREQUENT_WEIGHT], dimensions)
    if _PAIRS.match(word):
        return _weigh_terms([f" {word}"], [1.0], dimensions)
    # the space keeps a word apart from a group of the same letters
    return _weigh_terms([f" {word}", *groups], [1.0, *[weight] * len(groups)], dimensions)


def _are_alike(word: str, other: str) -> bool:
    """Return whether one word begins with the other, or shares half of its trigrams with it.

    A long one may stand anywhere, as in compounds. In scripts without spaces, two characters are
    enough.
    """
    if _SPACELESS.search(word):
        return not {*_split_word(word, 2)}.isdisjoint(_split_word(other, 2))
    short, long = sorted((word, other), key=len)
    if len(short) <= _LETTERS:
        return False
    if long.startswith(short) or (len(short) >= _LONG_WORD and short in long):
        return True
    if word[0] != other[0]:  # as in rate and date
        return False
    one, two = _list_trigrams(word), _list_trigrams(other)
    return 4 * len(one & two) >= len(one) + len(two)


@lru_cache(maxsize=65_536)
def _list_trigrams(word: str) -> frozenset[str]:
    return frozenset(_split_word(f"<{word}>", _LETTERS))


def _weigh_words(words: Iterable[str]) -> int:
    return sum(max(1, len(word) - _LETTERS) for word in words)


def _split_word(word: str, length: int) -> list[str]:
    """Return all runs of `length` characters, in order."""
    return [word[at : at + length] for at in range(len(word) - length + 1)]


def _weigh_terms(
    terms: Sequence[str], weights: Sequence[float], dimensions: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    hashes = [crc32(term.encode(errors="replace")) for term in terms]
    signs = [1 if hash & _SIGN else -1 for hash in hashes]
    values = [sign * weight for sign, weight in zip(signs, weights, strict=True)]
    places = np.array([(hash & ~_SIGN) % dimensions for hash in hashes], np.intp)
    return places, np.array(values, np.float32)
