"""Takes out of a text what may be about people, before it is remembered."""

import re
from collections.abc import Collection

MOST_CHARS = 120
"""Characters of a text that is remembered."""

MASK = "?"

_EMAIL = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")
_UUID = re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b", re.IGNORECASE)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_TOKEN = re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{24,}(?![\w-])")
_NUMBER = re.compile(r"(?<!\w)\+?\d(?:[ ()./-]?\d){4,}(?!\w)")
_LITERAL = re.compile(r"'((?:[^'\n]|'')*)'")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def strip_private(text: str, *, names: Collection[str] | None = ()) -> str:
    """Return one line of at most 120 characters without literals, addresses and long numbers.

    Args:
        text: What is to be remembered.
        names: What may stand in single quotes, as names do in messages; None for every name.
    """

    def mask(match: re.Match[str]) -> str:
        quoted = match.group(1)
        is_name = bool(_NAME.fullmatch(quoted)) if names is None else quoted in names
        return match.group(0) if is_name else f"'{MASK}'"

    text = " ".join(text[: 40 * MOST_CHARS].split())
    text = _LITERAL.sub(mask, text)
    for pattern in (_EMAIL, _URL, _UUID, _TOKEN, _NUMBER):
        text = pattern.sub(MASK, text)
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1].rstrip() + "…"
