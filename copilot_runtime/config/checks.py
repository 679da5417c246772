"""Checks of secrets and of store URLs, whose passwords must not appear in messages."""

import re
from urllib.parse import urlsplit

from copilot_runtime.base.secrets import SECRET_PARAMETER

_HOST = re.compile(r"(\[[^\[\]@]*\]|[^:\[\]@]*)(:\d*)?")
_STORE = re.compile(r"[a-z][a-z0-9+_-]*(:|$)")
_VALUE = re.compile(r"[A-Za-z_]+=.*")
_USER = re.compile(r"(\A[\w+.:-]*//).*@|(//)\S*@", re.DOTALL)
_WAY_OUT = (
    "its user or password is not percent-encoded: write %2F for /, %23 for #, %3F for ?, "
    "%5B for [ and %40 for @"
)


def check_store_url(text: str) -> str:
    """Return a store URL such as `redis://:password@host:6379/0`, or other text, unchanged.

    Raises `ValueError`, without the URL, if clients would misparse it: a `#` in a password, for
    example, ends what they read as the host.
    """
    _, colon, rest = text.partition("://")
    if not colon or text.startswith("sqlite:"):
        return text
    try:
        parts = urlsplit(f"//{rest}")  # the text before may be two schemes, or a name
    except ValueError:  # a bracket
        raise ValueError(_WAY_OUT) from None
    is_broken = (
        not _is_authority(parts.netloc)
        or "@" in parts.path
        or bool(parts.fragment)
        or text.endswith("#")
        or any(_VALUE.fullmatch(part) is None for part in parts.query.split("&") if "@" in part)
    )
    if is_broken:
        raise ValueError(_WAY_OUT)
    return text


def check_store_address(address: str) -> str:
    """Return the address of a store, which begins with the store's name.

    Raises `ValueError` for any other text, and for a password that is not percent-encoded.
    """
    if _STORE.match(address) is None:
        is_path = address and "://" not in address and "@" not in address
        raise ValueError(
            "it does not begin with the name of a store: write "
            f"sqlite:{address if is_path else 'threads.db'} for a file, postgresql://... or memory"
        )
    is_postgres = re.match(r"postgres(ql)?:", address)  # plugins define their own formats
    return check_store_url(address) if is_postgres else address


def check_web_url(text: str) -> str:
    """Return an HTTP URL, whose path may have an `@`, unchanged. Raises `ValueError` likewise."""
    try:
        is_broken = not _is_authority(urlsplit(text).netloc)
    except ValueError:
        is_broken = True
    if is_broken:
        raise ValueError(_WAY_OUT)
    return text


def check_bucket_url(text: str) -> str:
    """Return the URL of a storage unchanged. Raises `ValueError` if a bucket has credentials."""
    _, colon, rest = text.partition("s3://")
    bucket, _, query = rest.partition("?")
    if colon and (re.search(r"[@:]", bucket.partition("/")[0]) or re.search(r"//[^&]*@", query)):
        raise ValueError(
            "a bucket has no user in its address: the keys are in AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    return text


def _is_authority(text: str) -> bool:
    """Return whether a text is a list of hosts, after percent-encoded credentials if any."""
    user, _, hosts = text.rpartition("@")
    return (
        re.search(r"[@\[\]\s]", user) is None
        and all(_HOST.fullmatch(host) is not None for host in hosts.split(","))
        and not hosts.startswith(":")  # the beginning of a password
    )


def mask_credentials(text: str) -> str:
    """Return a text in which users, passwords and keys of URLs are masked.

    Everything up to the last `@` is masked: a password that is not percent-encoded may have a `/`.
    """
    text = _USER.sub(lambda match: f"{match[1] or match[2]}***@", text)
    return SECRET_PARAMETER.sub(r"\1***", text)


def mask_store_url(text: str) -> str:
    """Return a text in which all of a URL but its scheme is masked."""
    return re.sub(r"://.*", "://***", text, flags=re.DOTALL)


_PUBLISHED = frozenset(
    {
        "0123456789abcdef0123456789abcdef",
        "for-the-example-a-text-of-32-bytes",
        "change-me-change-me-change-me-change-me",
    }
)
_SHORTEST = 32


def check_secret(text: str) -> str:
    """Return a secret. Raises `ValueError` for a published example secret."""
    if text in _PUBLISHED:
        raise ValueError(
            "it is the secret of an example, which is published: `openssl rand -hex 32` "
            "prints one of your own"
        )
    return text


def check_secrets(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the secrets. Raises `ValueError` as `check_secret` does."""
    return tuple(map(check_secret, texts))


def check_key(text: str) -> str:
    """Return a key for signatures or hashes; empty for none.

    Raises `ValueError` for a key that is too short, or a published example.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if 0 < size < _SHORTEST:
        raise ValueError(
            f"it must have {_SHORTEST} bytes or more; it has {size}: `openssl rand -hex 32` prints "
            "some"
        )
    return check_secret(text)
