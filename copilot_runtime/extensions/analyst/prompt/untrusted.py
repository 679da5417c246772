"""Sanitise untrusted text for a prompt: cells, names, hints, and bodies of skills.

Such text must not close its block, start another line of a comment, or be unlimited.
"""

import re
from typing import Any
from unicodedata import category

MOST_CHARS = 60
"""Default maximum length of a cell value, in characters."""

WITHHELD = "(a text that gives orders)"

_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")
"""Invisible characters that Unicode does not classify as formatting."""
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
_LESS = "<\ufe64\uff1c"
_TAG = re.compile(rf"[{_LESS}](?=\s*/|[!?]|[^\W\d])")
_BLOCKS = "skills?|schema|message|system|data|memory|instructions?|user|assistant|tools?"
# also of longer words, which may be cut to one of these
_BLOCK_TAG = re.compile(
    rf"[{_LESS}](?=[\s{_JOINERS}]*/?[\s{_JOINERS}]*(?:{_BLOCKS}))", re.IGNORECASE
)
_INSTRUCTION = re.compile(
    r"\b(?:ignore|forget|disregard|override|bypass)\b.{0,40}"
    r"\b(?:instructions?|system prompt|prompts?|rules|guidelines)\b"
    r"|\bnew (?:system )?instructions?\s*:|</?\s*system\s*>|&lt;/?\s*system",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\s+")
_CODE_FENCE = re.compile(r"`{3,}")


def quote_line(value: Any, limit: int = MOST_CHARS) -> str:
    """Return a value as one line of at most `limit` characters that cannot open or close a tag.

    Control and invisible characters become spaces, and `<` of a tag becomes `&lt;`.
    """
    text = str(value)[: limit * 4 + 64]
    text = "".join(
        " " if category(char) in {"Cc", "Cf", "Zl", "Zp", "Cs"} else char for char in text
    )
    text = _SPACE.sub(" ", text).strip()
    text = _CODE_FENCE.sub("'''", text).replace("*/", "* /")
    return cut_line(_BLOCK_TAG.sub("&lt;", _TAG.sub("&lt;", text)), limit)


def quote_cell(value: Any, limit: int = MOST_CHARS) -> str:
    """Return a cell as an SQL literal; instructions in it are replaced by a notice."""
    text = quote_line(value, limit)
    if is_instruction(str(value)[: 8 * limit]):
        return WITHHELD
    return "'" + text.replace("'", "''") + "'"


def is_instruction(text: str) -> bool:
    """Return `True` if a text looks like a prompt injection."""
    return _INSTRUCTION.search(text) is not None


def quote_block(text: str) -> str:
    """Return a multi-line text with all prompt tags escaped. Line ends are `\n`.

    It may contain SQL, so other uses of `<` are kept.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    allowed = "\n\t" + _JOINERS
    text = "".join(char for char in text if char in allowed or not _is_unseen(char))
    return _BLOCK_TAG.sub("&lt;", text).strip()


def quote_attribute(value: Any, limit: int = 64) -> str:
    """Return a value escaped for a quoted attribute of a tag."""
    text = quote_line(value, limit)
    return text.replace('"', "'").replace("<", "&lt;").replace(">", "&gt;")


def cut_line(text: str, limit: int) -> str:
    """Truncate a text to `limit` characters, with an ellipsis."""
    return text if len(text) <= limit else text[: max(0, limit - 1)].rstrip() + "…"


def cut_lines(text: str, limit: int) -> str:
    """Truncate a text to the whole lines that fit into `limit` characters."""
    if len(text) <= limit:
        return text
    end = text.rfind("\n", 0, limit + 1)
    return text[:end].rstrip() if end > 0 else ""


def _is_unseen(char: str) -> bool:
    return char in _UNSEEN or category(char) in _UNSEEN_CATEGORIES
