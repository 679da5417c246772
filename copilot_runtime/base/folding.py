"""Folds letters, so that texts can be compared."""

from unicodedata import combining, normalize


def fold_text(text: str) -> str:
    """Return a text in lower case and without diacritics."""
    return "".join(char for char in normalize("NFKD", text.casefold()) if not combining(char))
