"""Folds letters, so that texts can be compared, and drops those that show nothing."""

import re
from unicodedata import combining, normalize

_MARKS = "\u180e\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_JOINERS = "\u200b-\u200d"
_VARIANTS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_INVISIBLE = re.compile(
    f"[{_MARKS}]|(?<![^\0-\x7f{_MARKS}{_JOINERS}])[{_JOINERS}]"
    f"|(?<=[{_JOINERS}{_VARIANTS}])[{_VARIANTS}]"
)
"""Characters that may hide a text in another one, such as Unicode tags.

Emoji and the scripts that need them have a single joiner or variation selector behind a letter.
"""


def fold_text(text: str) -> str:
    """Return a text in lower case and without diacritics."""
    return "".join(char for char in normalize("NFKD", text.casefold()) if not combining(char))


def drop_invisible(text: str) -> str:
    """Return a text without the characters that a reader cannot see and no script needs."""
    return text if text.isascii() else _INVISIBLE.sub("", text)
