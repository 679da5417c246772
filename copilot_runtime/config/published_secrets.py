"""Refuse secrets that everybody can read, for they stood in examples."""

_PUBLISHED = frozenset(
    {
        "0123456789abcdef0123456789abcdef",
        "for-the-example-a-text-of-32-bytes",
        "change-me-change-me-change-me-change-me",
    }
)


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
