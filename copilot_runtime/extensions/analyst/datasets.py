"""Chooses the data set that a question is about."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from copilot_runtime.base.errors import NotFound
from copilot_runtime.extensions.analyst.engine.datasets import Dataset

_WORD = re.compile(r"[^\W_]+")
_COMMON_WORDS = """
a all an and any are as average avg best by chart compare count data day days draw each first
for from graph hour how id in is it its last latest least list many max me mean median min
minute month months most much name number of on or over per plot quarter rate show sum table
than that the their there this time to today top total trend type value values week weeks what
when where which who with worst year years yesterday
"""
_COMMON = frozenset(_COMMON_WORDS.split())
"""Words that tell nothing about which table is meant."""


_GENERAL_LABELS = frozenset({"evaluation", "monitoring", "human_signals", "kpi"})
"""Those that pages of AXIS send, whatever the data is called."""

FindSynonyms = Callable[[str], Mapping[str, str]]
"""Returns what people call the columns of a table."""


def choose_dataset(
    datasets: Sequence[Dataset],
    label: str = "",
    message: str = "",
    find_synonyms: FindSynonyms = lambda _: {},
) -> Dataset | None:
    """Return the data set of a label, or else the one that shares most words with a question.

    A label is its name, or a part of it: `evaluation` finds `eval_data`. Without either, it is the
    first one. None if there is none. Raises `NotFound` for a label that names none of them.
    """
    if not datasets:
        return None
    if label:
        name = label.strip().lower()
        for one in datasets:
            if name in (one.name.lower(), one.source.lower()):
                return one
        for one in datasets:
            if any(_is_alike(word, name) for word in _list_words(one.name)):
                return one
        if name not in _GENERAL_LABELS:
            names = ", ".join(one.name for one in datasets)
            raise NotFound(
                f"There is no data set named {label[:100]!r}. Available data sets: {names[:1000]}."
            )
    words = _find_words([message]) - {_stem(word) for word in _COMMON}
    return max(datasets, key=lambda one: _score(one, words, find_synonyms(one.name)))


def _score(dataset: Dataset, words: set[str], synonyms: Iterable[str]) -> float:
    """Return how many words of a question a data set has: those of its name count most."""
    names = _find_words([dataset.name])
    columns = _find_words([*(column.name for column in dataset.columns), *synonyms])
    about = _find_words([dataset.description])
    return 5 * len(names & words) + 2 * len(columns & words) + 0.5 * len(about & words)


def _find_words(texts: Iterable[str]) -> set[str]:
    return {_stem(word) for text in texts for word in _list_words(text)}


def _list_words(text: str) -> Sequence[str]:
    return _WORD.findall(text.lower())


def _stem(word: str) -> str:
    return word.removesuffix("s") if len(word) > 3 else word


def _is_alike(word: str, name: str) -> bool:
    return len(word) > 2 and (name.startswith(word) or word.startswith(name))
