"""Reject secrets that are too short or taken from an example."""

_PUBLISHED = frozenset(
    {
        "0123456789abcdef0123456789abcdef",
        "for-the-example-a-text-of-32-bytes",
        "change-me-change-me-change-me-change-me",
    }
)
_SHORTEST = 32


def check_secret(text: str) -> str:
    """Return a secret. Raises `ValueError` for one of an example."""
    if text in _PUBLISHED:
        raise ValueError(
            "it is the secret of an example, which everybody can read: `openssl rand -hex 32` "
            "prints one of your own"
        )
    return text


def check_secrets(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return secrets. Raises `ValueError` as `check_secret` does."""
    return tuple(map(check_secret, texts))


def check_key(text: str) -> str:
    """Return the key of signatures or hashes, or an empty text for none.

    Raises `ValueError` for one that is short, or of an example.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if 0 < size < _SHORTEST:
        raise ValueError(
            f"it must have {_SHORTEST} bytes or more; it has {size}: `openssl rand -hex 32` prints "
            "some"
        )
    return check_secret(text)
