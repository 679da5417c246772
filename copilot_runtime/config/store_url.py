"""Check the URLs of stores, whose passwords no message may repeat."""

import re
from urllib.parse import urlsplit

_HOST = re.compile(r"(\[[^\[\]@]*\]|[^:\[\]@]*)(:\d*)?")
_VALUE = re.compile(r"[A-Za-z_]+=.*")
_USER = re.compile(r"(\A[\w+.:-]*//).*@|(//)\S*@", re.DOTALL)
_SECRET_PARAMETER = re.compile(
    r"([?&][^=&\s]*(?:key|token|secret|passw|pwd|credential|auth|signature)[^=&\s]*=)[^&\s]*",
    re.IGNORECASE,
)
_WAY_OUT = (
    "its user or password is not percent-encoded: write %2F for /, %23 for #, %3F for ?, "
    "%5B for [ and %40 for @"
)


def check_store_url(text: str) -> str:
    """Return a URL such as `redis://:password@host:6379/0`, or what is none, as it is.

    Raises `ValueError`, which repeats nothing of it, for one that clients would read otherwise than
    it is meant: a `#` in a password ends what they take for the host.
    """
    _, colon, rest = text.partition("://")
    if not colon or text.startswith("sqlite:"):
        return text
    try:
        parts = urlsplit(f"//{rest}")  # what is before may be two schemes, or a name
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


def check_web_url(text: str) -> str:
    """Return a URL of HTTP, whose path may have an `@`, as it is. Raises `ValueError` likewise."""
    try:
        is_broken = not _is_authority(urlsplit(text).netloc)
    except ValueError:
        is_broken = True
    if is_broken:
        raise ValueError(_WAY_OUT)
    return text


def check_bucket_url(text: str) -> str:
    """Return the address of a storage as it is. Raises `ValueError` for one with a user in it."""
    _, colon, rest = text.partition("s3://")
    bucket, _, query = rest.partition("?")
    if colon and (re.search(r"[@:]", bucket.partition("/")[0]) or re.search(r"//[^&]*@", query)):
        raise ValueError(
            "a bucket has no user in its address: the keys are in AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    return text


def _is_authority(text: str) -> bool:
    """Return whether a text is hosts, and what stands before them is percent-encoded."""
    user, _, hosts = text.rpartition("@")
    return (
        re.search(r"[@\[\]\s]", user) is None
        and all(_HOST.fullmatch(host) is not None for host in hosts.split(","))
        and not hosts.startswith(":")  # the beginning of a password
    )


def mask_credentials(text: str) -> str:
    """Return a text without users, passwords and keys of the URLs in it, which stay readable.

    What stands before the last `@` goes: a password that is not percent-encoded may have a `/`.
    """
    text = _USER.sub(lambda match: f"{match[1] or match[2]}***@", text)
    return _SECRET_PARAMETER.sub(r"\1***", text)


def mask_store_url(text: str) -> str:
    """Return a text with nothing of a URL but its scheme."""
    return re.sub(r"://.*", "://***", text, flags=re.DOTALL)
