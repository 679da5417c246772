"""Quotes passages that a search found, and says which names they lack, for the demo model."""

import re
from collections.abc import Sequence

from copilot_runtime.adapters.demo.matching import QUOTED, split_words
from copilot_runtime.api.retrieval import Passage

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_COMMON = set(
    split_words(
        "a about all an and any are as at be been by can could did do does for from had has have "
        "how i in is it its many me much my of on or our please say "
        "show tell that the their them there "
        "they this to was we were what when where which who whom whose why will with would you"
    )
)
_WORD = re.compile(r"[^\W\d_]{2,}")
_ENDING = re.compile(r"(?:ing|ed|es|s)$")
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
    """Return the sentences that share most words with a question, with sources; may be empty."""
    words = _stems(_NOTE.sub("", question))
    found: list[tuple[float, int, str]] = []
    for number, passage in enumerate(passages, 1):
        title = _stems(passage.title)
        if len(words & (title | _stems(passage.text))) <= len(words) / 2:
            continue  # one word of several is no answer
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
            score += 0.5 if _FACT.match(sentence) else 0  # such as a job title
            if shared or (is_subject and len(sentence.split()) > _FEWEST_WORDS):
                found.append((score, number, _LABEL.sub("", sentence)[:_LONGEST]))
    found.sort(key=lambda row: -row[0])
    found = [*{text: (score, number, text) for score, number, text in reversed(found)}.values()][
        ::-1
    ]
    most = 1 if found and _FACT.match(found[0][2]) else _MOST_SENTENCES
    best = [row for row in found[:most] if row[0] >= found[0][0] * _CLOSE]
    return "\n\n".join(_quote(text, number, passages[number - 1]) for _, number, text in best)


def _quote(text: str, number: int, passage: Passage) -> str:
    """Return a sentence with its source; a property stands behind the thing that has it."""
    source = _cite(number, passage)
    return f"{source[1:-1]}, {text}" if _FACT.match(text) else f"{text} {source}"


def list_passages(question: str, passages: Sequence[Passage]) -> str:
    """Return links to the first passages that share a word with a question; may be empty."""
    words = _stems(_NOTE.sub("", question))
    links = {
        passage.title: _cite(number, passage)
        for number, passage in enumerate(passages, 1)
        if words & (_stems(passage.title) | _stems(passage.text))
    }
    return "\n".join(f"- {link[1:-1]}" for link in [*links.values()][:_MOST_SENTENCES])


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
    text = " ".join(" ".join(f"{one.title} {one.text}" for one in passages).lower().split())
    text = f" {text} {text.replace('-', '')}"
    return [name for name in dict.fromkeys(names) if not _has_name(text, name.lower())]


def _has_name(text: str, name: str) -> bool:
    start = "" if name == name.upper() else r"(?<!\w)"  # a script without capitals has no spaces
    return bool(re.search(start + re.escape(_ENDING.sub("", name) or name), text))


def _stems(text: str) -> set[str]:
    """Return the stems of a text's words, without stop words."""
    words = (_ENDING.sub("", word) for word in split_words(text) if word not in _COMMON)
    return {word for word in words if len(word) > 1}


def _cite(number: int, passage: Passage) -> str:
    title = passage.title or str(number)
    return f"([{title}]({passage.url}))" if passage.url else f"({title})"
