"""A question back to the person, as the analyst's text has it: a sentence, and options."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_OPTION = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)]|[A-Da-d][.)])\s+(?P<text>\S.*)$")
_MARKUP = re.compile(r"[*_`]{1,3}")
_SENTENCE = re.compile(r"[^.!?\n]*\?")

_MOST_OPTIONS = 6
_LONGEST = 1_200
"""Characters of a text that may be a question and no answer."""


@dataclass(frozen=True, slots=True)
class Clarification:
    """What the person is to choose; their next message is the answer."""

    question: str
    options: Sequence[str] = ()


def find_clarification(text: str) -> Clarification | None:
    """Return the question of a text, for which no tool was called; None if it asks nothing.

    A text asks if it ends with a question, or with a question and its options.
    """
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    if not lines or len(text) > _LONGEST:
        return None
    options: list[str] = []
    while lines and (match := _OPTION.match(lines[-1])):
        options.insert(0, _clean(match["text"]))
        lines.pop()
    if options and lines and lines[-1].endswith(":"):
        lines[-1] = lines[-1][:-1] + ("" if "?" in lines[-1] else "?")
    if not lines or not (lines[-1].endswith("?") or (options and "?" in lines[-1])):
        return None
    found: Sequence[str] = _SENTENCE.findall(lines[-1])
    question = _clean(found[-1]) if found else ""
    return Clarification(question, options[:_MOST_OPTIONS]) if question else None


def _clean(text: str) -> str:
    return _MARKUP.sub("", text).strip(" -\u2013\u2014")
