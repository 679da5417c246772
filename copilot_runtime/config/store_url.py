"""Check the URLs of stores, whose passwords no message may repeat."""

import re
from urllib.parse import urlsplit

_HOST = re.compile(r"(\[[^\[\]@]*\]|[^:\[\]@]*)(:\d*)?")
_VALUE = re.compile(r"[A-Za-z_]+=.*")
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
    if not colon:
        return text
    try:
        parts = urlsplit(f"//{rest}")  # what is before may be two schemes, or a name
    except ValueError:  # a bracket
        raise ValueError(_WAY_OUT) from None
    user, _, hosts = parts.netloc.rpartition("@")
    is_broken = (
        re.search(r"[@\[\]\s]", user) is not None
        or any(_HOST.fullmatch(host) is None for host in hosts.split(","))
        or hosts.startswith(":")  # the beginning of a password
        or "@" in parts.path
        or bool(parts.fragment)
        or text.endswith("#")
        or any(_VALUE.fullmatch(part) is None for part in parts.query.split("&") if "@" in part)
    )
    if is_broken:
        raise ValueError(_WAY_OUT)
    return text


def mask_store_url(text: str) -> str:
    """Return a text with nothing of a URL but its scheme."""
    return re.sub(r"://.*", "://***", text, flags=re.DOTALL)
