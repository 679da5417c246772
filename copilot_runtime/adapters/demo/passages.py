"""Quotes passages that a search found, and says which names they lack, for the demo model."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import log

from copilot_runtime.adapters.demo.matching import QUOTED, split_words
from copilot_runtime.adapters.demo.plans import split_request
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.base.folding import fold_text

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_COMMON = set(
    split_words(
        "a about all an and any are as at be been by can could did do does for from get had has "
        "have how i in is it its many me much my of on or our please say "
        "show tell that the their them there "
        "they this to was we were what when where which who whom whose why will with would you"
    )
)
_WORD = re.compile(r"[^\W\d_]{2,}")
_COUNT = re.compile(r"\bhow (?:many (\w+)|much\b)", re.IGNORECASE)
_NAME = re.compile(r"(?<=\w )[A-Z]\w+")
"""A word with a capital letter inside of a sentence."""
_WHY = re.compile(r"^\W*why\b", re.IGNORECASE)
_CAUSE = re.compile(r"\b(?:because|caused?|causes|due to|owing to|reasons?)\b", re.IGNORECASE)
_NUMBER = re.compile(
    r"\d|\b(?:none|free|half|one|two|three|four|five|six|seven|eight|nine|ten|eleven"
    r"|twelve|\w+teen|\w+ty(?:-\w+)?|hundreds?|thousands?)\b",
    re.IGNORECASE,
)
"""A number, or a word for one."""
_ENDING = re.compile(r"(?:ing|ies|ed|es|s|y)$")
_START = re.compile(r"(?:^|[!?:\n]|\w{3}\.)\W*$")
"""Matches the text before the first word of a sentence."""
_NOTE = re.compile(r"^\[.*\]$", re.MULTILINE)
"""The note that the runtime adds to a question with an attached file."""
_BELOW = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
"""The separator of the headings in the first line of a passage."""
_MOST_SENTENCES = 3
_FEWEST_WORDS = 3
_LONGEST = 400
_CLOSE = 0.75
"""The part of the best sentence's score that others need to be quoted, too."""

_FACT = re.compile(r"^[a-z][a-z ]{0,30}: (?=[A-Z])(?!.*[.!?]$)")
"""A property of a thing that is no sentence."""
_LABEL = re.compile(r"^[a-z][a-z ]{0,30}: (?=[A-Z].*[.!?]$)")
"""A property name before a complete sentence, such as `description: `, which is not quoted."""


def quote_passages(question: str, passages: Sequence[Passage]) -> str:
    """Return the sentences that share most words with a question, or with each question in it,
    with their sources; may be empty.
    """
    question = _NOTE.sub("", question)
    pieces = split_request(question)
    if max(len(_stems(piece)) for piece in pieces) < 2:  # "I have a dog. May I bring it?"
        pieces = [question]
    found = _COUNT.search(question) if len(pieces) == 1 else None
    noun = _stems(found[1] or "") if found else set[str]()
    quotes = chain.from_iterable(
        _quote_sentences(piece, passages, noun, _NUMBER if found else _WORD) for piece in pieces
    )
    return "\n\n".join(dict.fromkeys(quotes))


def _quote_sentences(
    question: str, passages: Sequence[Passage], noun: set[str], needed: re.Pattern[str]
) -> Sequence[str]:
    """Return the best sentences that have a noun, and what is needed in them."""
    words, is_why = _stems(question), _WHY.search(question)
    names = {name for it in _NAME.findall(question) for name in _stems(it)}
    found: list[tuple[float, int, str]] = []
    counts = Counter(word for one in passages for word in words & _list_stems(one))
    for number, passage in enumerate(passages, 1):
        title = _stems(passage.title)
        missing = words - _list_stems(passage)
        weights = {word: log(1 + len(passages) / max(counts[word], 1)) for word in words}
        if 2 * sum(weights[word] for word in missing) >= sum(weights.values()):
            continue  # one word of several is no answer
        about = words & title
        is_subject = len(about) > len(words) / 2  # the title asks or says the same
        for sentence in filter(needed.search, _list_sentences(passage)):
            if not noun <= _stems(sentence):
                continue
            lacking = names - title - _stems(sentence)
            if needed is _NUMBER and 2 * _sum(weights, lacking) > _sum(weights, names):
                continue  # it counts those of something else
            shared = words & _stems(sentence)
            # a heading shares words as well, but says nothing
            worth = len(about) + 1 if is_subject else len(about) / 2
            score = len(shared) + worth - 1 / len(sentence.split())
            score += 0.5 if _FACT.match(sentence) else 0  # such as a job title
            is_cause = is_why and _CAUSE.search(sentence)
            score += len(words) if is_cause else 0
            if shared or is_cause or (is_subject and len(sentence.split()) > _FEWEST_WORDS):
                found.append((score, number, sentence[:_LONGEST]))
    found.sort(key=lambda row: -row[0])
    found = [*{text: (score, number, text) for score, number, text in reversed(found)}.values()]
    found.reverse()
    most = 1 if found and _FACT.match(found[0][2]) else _MOST_SENTENCES
    best = [row for row in found[:most] if row[0] >= found[0][0] * _CLOSE]
    return [_quote(text, number, passages[number - 1]) for _, number, text in best]


def _sum(weights: Mapping[str, float], words: Iterable[str]) -> float:
    return sum(weights[word] for word in words)


def _quote(text: str, number: int, passage: Passage) -> str:
    """Return a sentence with its source; a property stands behind the thing that has it."""
    source = _cite(number, passage)
    return f"{source[1:-1]}, {text}" if _FACT.match(text) else f"{text} {source}"


def list_passages(question: str, passages: Sequence[Passage]) -> str:
    """Return links to the first passages that share a word with a question, with the rows of
    their tables that do, and their first sentences; may be empty.
    """
    words = _stems(_NOTE.sub("", question))
    links: dict[str, str] = {}
    for number, passage in enumerate(passages, 1):
        if words & _list_stems(passage):
            sentences = _list_sentences(passage)
            rows = [one for one in sentences if one[-1] not in ".!?" and words & _stems(one)]
            first = [*rows, *(one for one in sentences if one[-1] in ".!?")][:_MOST_SENTENCES]
            link = _cite(number, passage)[1:-1]
            links[passage.title] = ": ".join(filter(None, [link, " ".join(first)[:_LONGEST]]))
    return "\n".join(f"- {link}" for link in [*links.values()][:_MOST_SENTENCES])


def _list_sentences(passage: Passage) -> Sequence[str]:
    """Return the sentences below the headings of a passage, without the names of properties."""
    title = _stems(passage.title)
    lines = passage.text.split("\n")
    rows = zip(["", *lines], lines, [*lines[1:], ""], strict=False)
    # without the headers of tables
    lines = [it for above, it, below in rows if "|" in above or "|" not in it or "|" not in below]
    sentences = filter(None, map(str.strip, _SENTENCE.split("\n".join(lines))))
    return [
        _LABEL.sub("", sentence)
        for sentence in sentences
        if _BELOW not in sentence
        and not _stems(sentence) <= title
        and (sentence[-1] in ".!?" or not passage.title or not sentence.startswith(passage.title))
    ]


def describe_missing(text: str, passages: Sequence[Passage], *, is_name: bool) -> str:
    """Return a sentence about the words of a question that no passage has; may be empty."""
    missing = _list_missing(text, passages, is_name=is_name) if passages else ()
    words = " or ".join(f"“{word}”" for word in missing[:3])
    return f"No page that was found has {words}. " if words else ""


def _list_missing(question: str, passages: Sequence[Passage], *, is_name: bool) -> Sequence[str]:
    """Return the names in a question that no passage has: texts in quotation marks, and words with
    a capital letter inside of a sentence. Without `is_name`, the last word counts as one.
    """
    question = _NOTE.sub("", question)
    names = [quote[1] or quote[2] for quote in QUOTED.finditer(question)]
    rest = QUOTED.sub(" a ", question)
    words = [*_WORD.finditer(rest)]
    for word in words if is_name else words[-1:]:
        is_plain = word[0][0].islower() or rest.isupper() or _START.search(rest[: word.start()])
        if word[0].lower() not in _COMMON and not (is_name and is_plain):
            names.append(word[0])
    text = " ".join(fold_text(" ".join(f"{one.title} {one.text}" for one in passages)).split())
    text = f" {text} {text.replace('-', '')}"
    return [name for name in dict.fromkeys(names) if not _has_name(text, fold_text(name))]


def _has_name(text: str, name: str) -> bool:
    start = "" if name == name.upper() else r"(?<!\w)"  # a script without capitals has no spaces
    return bool(re.search(start + re.escape(_ENDING.sub("", name) or name), text))


def _stems(text: str) -> set[str]:
    """Return the stems of a text's words, without stop words."""
    words = (_ENDING.sub("", one) for one in split_words(fold_text(text)) if one not in _COMMON)
    return {word for word in words if len(word) > 1}


def _list_stems(passage: Passage) -> set[str]:
    return _stems(f"{passage.title} {passage.text}")


def _cite(number: int, passage: Passage) -> str:
    title = passage.title or str(number)
    return f"([{title}]({passage.url}))" if passage.url else f"({title})"
