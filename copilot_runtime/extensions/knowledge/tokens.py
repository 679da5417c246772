"""Estimate tokens without a tokenizer."""

import re

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonValue

# what JavaScript takes for white space: Python's `\s` knows four control characters more, and not
# the byte order mark
_SPACE = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SPACES = re.compile(f"[{_SPACE}]+")
_FOUR = re.compile(r"[A-Za-z0-9_]{1,4}")
_OTHER = re.compile(f"[^A-Za-z0-9_{_SPACE}]")


def count_tokens(text: str) -> int:
    """Return an estimate of the tokens of a text: at least 1, or 0 for a blank text.

    A word of letters and digits of ASCII counts one for each four characters begun, any other
    character one (two beyond the basic plane of Unicode), and each two spaces one. It is the
    rule of Copilot-LD (`libutil/tokenizer.js`), so that budgets of both mean the same.
    """
    text = _SPACES.sub(" ", text).strip(" ")
    if not text:
        return 0
    words = len(_FOUR.findall(text))
    others = len(_OTHER.findall(text))
    if not text.isascii():
        others += sum(char > "\uffff" for char in text)
    return max(1, words + others + (text.count(" ") + 1) // 2)


def count_json_tokens(value: JsonValue) -> int:
    """Return an estimate of the tokens of a JSON value, such as the schema of a tool."""
    return (len(dumps(value).decode()) + 3) // 4


def cut_text(text: str, max_tokens: int) -> str:
    """Return a text truncated to about `max_tokens`, with an ellipsis.

    It is cut at the end of a word, if possible. A text that fits is returned unchanged.
    """
    if count_tokens(text) <= max_tokens:
        return text
    low, high = 0, len(text)
    while low < high:  # how many characters fit
        middle = (low + high + 1) // 2
        if count_tokens(text[:middle]) < max_tokens:
            low = middle
        else:
            high = middle - 1
    head = text[:low]
    words = head.rsplit(None, 1)
    if low < len(text) and not text[low].isspace() and len(words) > 1:
        head = words[0]
    return f"{head.rstrip()}…" if max_tokens > 0 else ""
