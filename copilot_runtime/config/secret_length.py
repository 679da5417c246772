"""Refuse keys that are short enough to be found by trying."""

from copilot_runtime.config.published_secrets import check_secret

_SHORTEST = 32


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
