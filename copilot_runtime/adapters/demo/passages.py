"""Answers from passages that were retrieved for a question, for the demo model: it quotes them."""

import re
from collections.abc import Sequence

from copilot_runtime.adapters.demo.arguments import split_words
from copilot_runtime.api.retrieval import Passage

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_COMMON = set(
    split_words(
        "a about all an and any are as at be been by can could did do does for from had has have "
        "how i in is it its me my of on or our please say show tell that the their them there "
        "they this to was we were what when where which who whom whose why will with would you"
    )
)
_BELOW = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
"""Is between the headings above a text, which are its first line."""
_MOST_SENTENCES = 3
_FEWEST_WORDS = 3
_LONGEST = 400

_LABEL = re.compile(r"^[a-z][a-z ]{0,30}: (?=[A-Z].*[.!?]$)")
"""The name of a property before a sentence that says all without it, such as `description`."""


def quote_passages(question: str, passages: Sequence[Passage]) -> str:
    """Return the sentences that share most words with a question, each with its source, or ""."""
    words = _stems(question)
    found: list[tuple[float, int, str]] = []
    for number, passage in enumerate(passages, 1):
        title = _stems(passage.title)
        about = words & title
        is_subject = len(about) > len(words) / 2  # the title asks or says the same
        for sentence in filter(None, map(str.strip, _SENTENCE.split(passage.text))):
            if passage.title and sentence.startswith(passage.title):
                continue
            if _BELOW in sentence or _stems(sentence) <= title:
                continue
            shared = words & _stems(sentence)
            # a heading shares words as well, but says nothing
            worth = len(about) + 1 if is_subject else len(about) / 2
            score = len(shared) + worth - 1 / len(sentence.split())
            if shared or (is_subject and len(sentence.split()) > _FEWEST_WORDS):
                found.append((score, number, _LABEL.sub("", sentence)[:_LONGEST]))
    found.sort(key=lambda row: -row[0])
    best = [row for row in found[:_MOST_SENTENCES] if row[0] >= found[0][0] / 2]
    return "\n\n".join(f"{text} {_cite(number, passages[number - 1])}" for _, number, text in best)


def _stems(text: str) -> set[str]:
    """Return the words of a text that say something, without their usual endings."""
    words = (
        re.sub(r"(?:ing|ed|es|s)$", "", word) for word in split_words(text) if word not in _COMMON
    )
    return {word for word in words if len(word) > 1}


def _cite(number: int, passage: Passage) -> str:
    title = passage.title or str(number)
    return f"([{title}]({passage.url}))" if passage.url else f"({title})"
